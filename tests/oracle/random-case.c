/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random problems over all keys: dtypes, features, granularities. Their memory is laid out in random-batch.c.
 */
#include "random-case.h"

uint32_t pick(struct rng *rng, uint32_t count)
{
    rng->state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = rng->state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) % count);
}

static uint32_t pick_dtype(struct rng *rng)
{
    static const uint32_t dtypes[] = {ATTN_F32,  ATTN_F16,      ATTN_BF16,     ATTN_E4M3,
                                      ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ, ATTN_INT8};

    return dtypes[pick(rng, sizeof dtypes / sizeof dtypes[0])];
}

static void pick_keys(struct attn_problem *p, struct rng *rng)
{
    p->type = 1 + pick(rng, 4);
    p->kv_source = pick(rng, 2) ? ATTN_KV_CACHE : 1 + pick(rng, 3);
    p->cp = pick(rng, 4) == 0;
    if (p->cp)
        p->kv_source = ATTN_KV_CACHE;
    p->addressing = 1 + pick(rng, 3);
    p->index_dtype = pick(rng, 2) ? ATTN_INT32 : ATTN_INT64;
    p->block = UINT32_C(1) << pick(rng, 5);
    p->layout = ATTN_STRIDED;
    if (p->addressing != ATTN_DENSE && pick(rng, 3) == 0)
        p->layout = ATTN_PAGED_X;
}

static void pick_shape(struct attn_problem *p, struct rng *rng)
{
    p->q_dtype = pick_dtype(rng);
    p->k_dtype = pick_dtype(rng);
    p->v_dtype = pick_dtype(rng);
    p->out_dtype = ATTN_F32;
    p->mla = pick(rng, 6) == 0;
    p->kv_heads = p->mla ? 1 : 1 + pick(rng, MOST_KV_HEADS);
    p->heads = p->kv_heads * (1 + pick(rng, 3));
    p->head_dim = 1 + pick(rng, MOST_DIM);
    p->head_dim_vo = pick(rng, 2) ? p->head_dim : 1 + pick(rng, MOST_DIM);
    if (p->layout == ATTN_PAGED_X)
        p->head_dim = 16 * (1 + pick(rng, 2)); /* whole lines in every type */
    if (p->mla) {
        p->head_dim_vo = 1 + pick(rng, p->head_dim);
        p->v_dtype = p->k_dtype;
    }
}

static void pick_rules(struct attn_problem *p, struct rng *rng)
{
    p->causal = 1 + pick(rng, 2);
    p->seq_causal = pick(rng, 4) == 0;
    p->align = 1 + pick(rng, 2);
    p->positions = pick(rng, 3) == 0;
    if (pick(rng, 3) == 0)
        p->given |= ATTN_GIVEN_WINDOW_LEFT;
    if (pick(rng, 3) == 0)
        p->given |= ATTN_GIVEN_WINDOW_RIGHT;
    p->window_left = (int32_t)pick(rng, 12) - 1;
    p->window_right = (int32_t)pick(rng, 8) - 1;
    p->softcap = pick(rng, 3) ? 0 : (float)(1 + pick(rng, 60)) / 2;
    p->sinks = pick(rng, 3) == 0;
    p->mask = pick(rng, 3) ? 1 + pick(rng, 5) : ATTN_MASK_NONE;
    p->span = 1 + pick(rng, 2);
    p->alibi = 1 + pick(rng, 3);
    if (p->mask > ATTN_MASK_BITS && pick(rng, 3) == 0)
        p->alibi = ATTN_ALIBI_MASK;
}

static void pick_scales(struct attn_problem *p, struct rng *rng)
{
    p->q_scale = 1 + pick(rng, 6);
    p->k_scale = 1 + pick(rng, 5);
    p->v_scale = p->mla ? (uint32_t)ATTN_SCALES_NONE : 1 + pick(rng, 5);
}

void random_case_init(struct random_case *c, uint64_t seed)
{
    struct rng rng = {seed * UINT64_C(0x2545f4914f6cdd1d) + 1};

    memset(c, 0, sizeof *c);
    ATTN_INIT(&c->problem);
    ATTN_INIT(&c->batch);
    ATTN_INIT(&c->tensors);
    ATTN_INIT(&c->kv);
    pick_keys(&c->problem, &rng);
    pick_shape(&c->problem, &rng);
    pick_rules(&c->problem, &rng);
    pick_scales(&c->problem, &rng);
    lay_out_batch(c, &rng);
    lay_out_tensors(c, &rng);
}
