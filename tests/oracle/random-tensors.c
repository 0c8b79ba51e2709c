/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tensors of a random case: strides, contents, scales, masks. */
#include <math.h>

#include "random-case.h"

enum {
    PERIOD = 1021,                          /* elements, a prime: neighbours of every stride differ */
    NEW_ROWS = MOST_SEQS * (MOST_K / 2 + 2) /* rows of k_new at most, gaps between sequences included */
};

static double pick_number(struct rng *rng, double most)
{
    return most * ((double)pick(rng, 1 << 20) / (1 << 19) - 1);
}

/* Fills memory with numbers of a type; `oddity` is put in place of one of 16. */
static void fill(struct rng *rng, uint32_t dtype, double most, const double *oddity, void *to, size_t bytes)
{
    size_t size = oracle_size(dtype), period = PERIOD * size;
    unsigned char *at = to;

    for (size_t i = 0; i < PERIOD; i++)
        oracle_store(dtype, oddity != NULL && pick(rng, 16) == 0 ? *oddity : pick_number(rng, most),
                     at + i * size);
    for (size_t done = period; done < bytes; done++)
        at[done] = at[done - period];
}

/* A tensor of `heads` heads with random gaps, token-major or head-major, some of them backwards. */
static void lay_out_tensor(struct rng *rng, struct attn_tensor *tensor, uint32_t dtype, uint32_t heads,
                           uint32_t columns, uint32_t rows, void *memory)
{
    int64_t size = oracle_size(dtype), vector = (columns + pick(rng, 4)) * size;

    tensor->buffer.data = memory;
    tensor->head_stride = vector;
    tensor->token_stride = vector * heads + pick(rng, 4) * size;
    if (pick(rng, 3) == 0) {
        tensor->token_stride = vector;
        tensor->head_stride = vector * MOST_SEQS * MOST_K / 8;
    } else if (pick(rng, 3) == 0) {
        tensor->buffer.byte_offset = (uint64_t)(rows * tensor->token_stride);
        tensor->token_stride = -tensor->token_stride;
    }
}

static void lay_out_scale(struct rng *rng, struct attn_scale *scale, uint32_t granularity, float *memory)
{
    scale->granularity = granularity;
    if (granularity <= ATTN_SCALES_NONE)
        return;
    scale->kind = granularity == ATTN_SCALES_UNIT ? ATTN_SCALE_UNIT : ATTN_SCALE_HOST;
    scale->buffer.data = memory;
    scale->buffer.byte_offset = 4 * pick(rng, 4);
    for (int i = 0; i < 4096; i++)
        memory[i] = 0.25f + (float)pick(rng, 1000) / 1000;
    if (granularity >= ATTN_SCALES_HEAD)
        scale->head_stride = 4 * (1 + (int64_t)pick(rng, 2));
    if (granularity >= ATTN_SCALES_HEAD)
        scale->outer_stride = pick(rng, 2) ? 0 : 800;
    if (granularity == ATTN_SCALES_TOKEN_HEAD)
        scale->token_stride = 72;
}

static void lay_out_cache(struct random_case *c, struct rng *rng)
{
    const struct attn_problem *p = &c->problem;
    struct attn_kv_desc *kv = &c->kv;
    bool dense = p->addressing == ATTN_DENSE;
    int64_t tokens = dense ? 4 * MOST_K / 3 : p->block;
    int64_t k = oracle_size(p->k_dtype), v = oracle_size(p->v_dtype);

    kv->k_dtype = p->k_dtype;
    kv->v_dtype = p->v_dtype;
    kv->layout = p->layout;
    kv->pages = CASE_PAGES;
    kv->block = (uint32_t)tokens;
    kv->kv_heads = p->kv_heads;
    kv->head_dim = p->head_dim;
    kv->head_dim_vo = p->head_dim_vo;
    kv->k.data = c->k;
    kv->v.data = c->v;
    if (p->mla)
        kv->v.data = NULL;
    kv->k_head_stride = (p->head_dim + pick(rng, 3)) * k;
    kv->k_token_stride = kv->k_head_stride * p->kv_heads;
    kv->k_page_stride = kv->k_token_stride * tokens;
    kv->v_token_stride = (p->head_dim_vo + pick(rng, 3)) * v; /* head-major */
    kv->v_head_stride = kv->v_token_stride * tokens;
    kv->v_page_stride = kv->v_head_stride * p->kv_heads;
    if (p->layout == ATTN_PAGED_X) {
        kv->k_head_stride = p->head_dim * tokens * k;
        kv->k_page_stride = kv->k_head_stride * p->kv_heads + k;
        kv->k_token_stride = kv->v_token_stride = 0;
    }
    lay_out_scale(rng, &kv->k_scale, p->k_scale, c->scales[0]);
    lay_out_scale(rng, &kv->v_scale, p->v_scale, c->scales[1]);
}

static void lay_out_mask(struct random_case *c, struct rng *rng)
{
    const uint32_t dtypes[] = {ATTN_F16, ATTN_BF16, ATTN_F32};
    const double lowest[] = {-65504, -0x1.fep127, -0x1.fffffep127};
    struct attn_tensors *t = &c->tensors;
    const struct attn_problem *p = &c->problem;
    int64_t size = 1, columns = MOST_K;

    t->mask.data = c->mask;
    if (p->mask == ATTN_MASK_BITS) {
        for (size_t i = 0; i < sizeof c->mask; i++)
            c->mask[i] = (unsigned char)(pick(rng, 256) | pick(rng, 256));
        t->mask_packed = pick(rng, 2);
        columns = MOST_K / 8;
    } else if (p->mask > ATTN_MASK_BITS) {
        uint32_t kind = p->mask - ATTN_MASK_F16;
        const double oddity = pick(rng, 2) ? lowest[kind] : -(double)INFINITY;
        size = oracle_size(dtypes[kind]);
        fill(rng, dtypes[kind], 3, &oddity, c->mask, sizeof c->mask);
    }
    t->mask_row_stride = pick(rng, 5) ? (columns + pick(rng, 3)) * size : 0;
    t->mask_head_stride = pick(rng, 2) ? 0 : (columns + 3) * size * MOST_Q;
    t->mask_seq_stride = (columns + 3) * size * MOST_Q * MOST_HEADS;
    if (pick(rng, 2)) {
        t->mask_starts.data = c->mask_starts;
        for (uint32_t n = 0; n < MOST_SEQS; n++)
            c->mask_starts[n] = pick(rng, 4) ? (int64_t)pick(rng, 900) * size : -1;
    }
}

static void lay_out_extras(struct random_case *c, struct rng *rng)
{
    struct attn_tensors *t = &c->tensors;

    for (int h = 0; h < MOST_HEADS; h++)
        c->slopes[h] = (float)pick_number(rng, 0.5);
    t->alibi_slopes.data = c->slopes;
    t->sinks.data = c->sinks;
    t->sinks_dtype = pick(rng, 2) ? ATTN_F32 : ATTN_BF16;
    for (uint32_t h = 0; h < MOST_HEADS; h++)
        oracle_store(t->sinks_dtype, pick(rng, 4) ? pick_number(rng, 6) : -(double)INFINITY,
                     c->sinks + h * oracle_size(t->sinks_dtype));
    lay_out_mask(c, rng);
}

void lay_out_tensors(struct random_case *c, struct rng *rng)
{
    const struct attn_problem *p = &c->problem;
    struct attn_tensors *t = &c->tensors;
    bool parts = p->mla && p->head_dim_vo < p->head_dim && pick(rng, 2);
    const double nan = (double)NAN, *oddity = pick(rng, 8) == 0 ? &nan : NULL;
    double most = p->k_dtype == ATTN_INT8 ? 127 : 4;

    t->softmax_scale = (float)(0.02 + 0.4 / sqrt(p->head_dim));
    if (p->k_dtype == ATTN_INT8)
        t->softmax_scale /= 64;
    lay_out_tensor(rng, &t->q, p->q_dtype, p->heads, parts ? p->head_dim_vo : p->head_dim, MOST_ROWS, c->q);
    if (parts)
        lay_out_tensor(rng, &t->q_rope, p->q_dtype, p->heads, p->head_dim - p->head_dim_vo, MOST_ROWS,
                       c->q_rope);
    lay_out_tensor(rng, &t->k_new, p->k_dtype, p->kv_heads, p->head_dim, NEW_ROWS, c->k_new);
    lay_out_tensor(rng, &t->v_new, p->v_dtype, p->kv_heads, p->head_dim_vo, NEW_ROWS, c->v_new);
    lay_out_scale(rng, &t->q_scale, p->q_scale, c->scales[2]);
    lay_out_scale(rng, &t->k_new_scale, p->k_scale, c->scales[3]);
    lay_out_scale(rng, &t->v_new_scale, p->v_scale, c->scales[4]);
    lay_out_cache(c, rng);
    lay_out_extras(c, rng);
    fill(rng, p->q_dtype, p->q_dtype == ATTN_INT8 ? 9 : 2, NULL, c->q, sizeof c->q);
    fill(rng, p->q_dtype, p->q_dtype == ATTN_INT8 ? 9 : 2, NULL, c->q_rope, sizeof c->q_rope);
    fill(rng, p->k_dtype, most, p->k_dtype == ATTN_INT8 ? NULL : oddity, c->k, sizeof c->k);
    fill(rng, p->k_dtype, most, NULL, c->k_new, sizeof c->k_new);
    fill(rng, p->v_dtype, p->v_dtype == ATTN_INT8 ? 127 : 3, NULL, c->v, sizeof c->v);
    fill(rng, p->v_dtype, p->v_dtype == ATTN_INT8 ? 127 : 3, p->v_dtype == ATTN_INT8 ? NULL : oddity,
         c->v_new, sizeof c->v_new);
}
