/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How many keys and query tokens the sequences of a case have. */
#include "conform.h"

/* Many short sequences of any kind; decode on longer keys; a few on long ones; one or two chunks on longer
 * ones. */
enum { SHORT, DECODE, LONG, CHUNKS };

static uint32_t pick_length(struct rng *rng, uint32_t block, uint32_t profile)
{
    const uint32_t small[] = {1,
                              2,
                              3,
                              block,
                              block > 1 ? block - 1 : 1,
                              block + 1,
                              2 * block + 1,
                              15,
                              16,
                              17,
                              31,
                              33,
                              63,
                              64,
                              65,
                              127,
                              128,
                              129,
                              200};
    static const uint32_t middle[] = {255, 256, 257, 511, 512, 513, 640, 1023, 1025};
    static const uint32_t large[] = {2047, 2048, 2049, 4097};

    if (profile == LONG)
        return rng_pick(rng, large);
    if (profile == CHUNKS)
        return 300 + rng_below(rng, 900);
    if (profile == DECODE && rng_chance(rng, 50))
        return rng_pick(rng, middle);
    return rng_pick(rng, small);
}

/* Query tokens for so many keys: none, decode, a few, a chunk, all, more than keys. */
static uint32_t pick_queries(struct rng *rng, uint32_t kv_len, uint32_t profile)
{
    static const uint32_t few[] = {2, 3, 4, 5, 8};
    static const uint32_t chunk[] = {16, 17, 31, 32, 33, 63, 64, 65, 128};
    uint32_t kind = rng_below(rng, 100);

    if (profile == CHUNKS || (profile == LONG && kind >= 85))
        return rng_pick(rng, chunk);
    if (profile == DECODE)
        return kind < 90 ? 1 : 0;
    if (profile == LONG)
        return kind < 60 ? 1 : rng_pick(rng, few);
    if (kind < 8)
        return 0;
    if (kind < 35)
        return 1;
    if (kind < 50)
        return rng_pick(rng, few);
    if (kind < 70)
        return rng_pick(rng, chunk);
    return kind < 92 ? kv_len : kv_len + rng_pick(rng, few);
}

static double products(const struct conform_case *c)
{
    double sum = 0;

    for (uint32_t n = 0; n < c->count; n++)
        sum += (double)c->sequences[n].q_len * c->sequences[n].kv_len;
    return sum * c->problem.heads * (c->problem.head_dim + c->problem.head_dim_vo);
}

void case_set_lengths(struct conform_case *c, const struct fixed_lengths *fixed)
{
    c->count = fixed->count;
    for (uint32_t n = 0; n < c->count; n++) {
        c->sequences[n].q_len = fixed->q_len[n];
        c->sequences[n].kv_len = fixed->kv_len[n];
    }
}

void case_pick_lengths(struct conform_case *c, struct rng *rng, const struct effort *effort, bool write)
{
    const bool is_long = rng_chance(rng, effort->long_percent);
    const uint32_t kind = is_long ? 0 : rng_below(rng, 100);
    const uint32_t profile = is_long ? LONG : kind < 50 ? SHORT : kind < 65 ? CHUNKS : DECODE;
    uint32_t per_key = c->problem.kv_heads * (c->problem.head_dim + c->problem.head_dim_vo);
    uint32_t most = effort->elements / per_key;

    c->equal = c->problem.kv_source == ATTN_KV_NEW && c->seed % 2 == 0;
    bool few = write || c->problem.kv_source == ATTN_KV_CACHE_NEW; /* no more queries than keys */
    c->count = 1 + rng_below(rng, profile == CHUNKS ? 2 : profile == LONG || rng_chance(rng, 20) ? 3 : 8);
    for (uint32_t n = 0; n < c->count; n++) {
        struct sequence *s = &c->sequences[n];
        s->kv_len = rng_chance(rng, 8) ? 0 : pick_length(rng, c->problem.block, profile);
        if (s->kv_len > most)
            s->kv_len = most;
        s->q_len = pick_queries(rng, s->kv_len, profile);
        if (c->equal || (few && s->q_len > s->kv_len))
            s->q_len = s->kv_len;
        while (products(c) > effort->products && s->q_len > 1)
            s->q_len /= 2;
        while (products(c) > effort->products && s->kv_len > 1 && n > 0)
            s->kv_len /= 2;
        if (few && s->q_len > s->kv_len)
            s->q_len = s->kv_len;
        if (c->equal)
            s->kv_len = s->q_len;
        most -= s->kv_len < most ? s->kv_len : most - 1;
    }
}
