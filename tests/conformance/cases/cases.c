/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random problems: every key that can be laid out here, alone and mixed. */
#include "conform.h"

static uint32_t pick_dtype(struct rng *rng)
{
    static const uint32_t types[] = {ATTN_F32, ATTN_F16, ATTN_BF16};

    return rng_pick(rng, types);
}

static void pick_shape(struct rng *rng, struct attn_problem *problem)
{
    static const uint32_t kv_heads[] = {1, 1, 2, 3, 4};
    static const uint32_t groups[] = {1, 2, 3, 4, 6, 7, 8, 12};
    static const struct {
        uint32_t qk, vo;
    } dims[] = {{1, 1},     {3, 3},    {8, 8},   {16, 16},   {40, 40},   {64, 64},   {64, 64},
                {72, 72},   {80, 80},  {96, 96}, {128, 128}, {128, 128}, {128, 128}, {256, 256},
                {192, 128}, {64, 128}, {40, 72}, {8, 3},     {5, 130},   {576, 512}, {33, 33}};

    problem->kv_heads = rng_pick(rng, kv_heads);
    problem->heads = problem->kv_heads * rng_pick(rng, groups);
    uint32_t which = rng_below(rng, sizeof dims / sizeof dims[0]);
    problem->head_dim = dims[which].qk;
    problem->head_dim_vo = dims[which].vo;
}

static void pick_types(struct rng *rng, struct attn_problem *problem)
{
    problem->q_dtype = pick_dtype(rng);
    problem->k_dtype = rng_chance(rng, 60) ? problem->q_dtype : pick_dtype(rng);
    problem->v_dtype = rng_chance(rng, 90) ? problem->k_dtype : pick_dtype(rng);
    problem->out_dtype = rng_chance(rng, 70) ? problem->q_dtype : pick_dtype(rng);
}

static void pick_window(struct rng *rng, struct attn_problem *problem)
{
    const uint32_t sizes[] = {0,   1,  problem->block - 1, problem->block, problem->block + 1, 63, 64, 65,
                              100, 511};

    if (!rng_chance(rng, 40))
        return;
    if (rng_chance(rng, 85)) {
        problem->given |= ATTN_GIVEN_WINDOW_LEFT;
        problem->window_left = (int32_t)rng_pick(rng, sizes);
    }
    if (rng_chance(rng, 40)) {
        problem->given |= ATTN_GIVEN_WINDOW_RIGHT;
        problem->window_right = rng_chance(rng, 20) ? -1 : (int32_t)rng_pick(rng, sizes);
    }
}

static void pick_extras(struct rng *rng, struct attn_problem *problem)
{
    problem->sinks = rng_chance(rng, 20);
    problem->alibi = ATTN_ALIBI_NONE;
    if (rng_chance(rng, 18))
        problem->alibi = rng_chance(rng, 50) ? ATTN_ALIBI_KEY : ATTN_ALIBI_DISTANCE;
}

static void pick_mask(struct rng *rng, struct attn_problem *problem)
{
    problem->mask = ATTN_MASK_NONE;
    problem->span = rng_chance(rng, 50) ? ATTN_SPAN_SQUARE : ATTN_SPAN_FULL;
    if (!rng_chance(rng, 25))
        return;
    problem->mask = rng_chance(rng, 45) ? ATTN_MASK_BITS : ATTN_MASK_F16 + rng_below(rng, 3);
    if (problem->mask != ATTN_MASK_BITS && rng_chance(rng, 30))
        problem->alibi = ATTN_ALIBI_MASK;
}

/* Every type with every source: a type changes defaults alone. */
static void pick_source(struct rng *rng, struct attn_problem *problem)
{
    problem->kv_source = ATTN_KV_CACHE;
    if (rng_chance(rng, 30))
        problem->kv_source = rng_chance(rng, 50) ? ATTN_KV_NEW : ATTN_KV_CACHE_NEW;
    if (rng_chance(rng, 25)) {
        problem->type = ATTN_ENCODER + rng_below(rng, 3);
        if (problem->type != ATTN_ENCODER_DECODER && rng_chance(rng, 60))
            problem->kv_source = ATTN_KV_NEW;
        if (rng_chance(rng, 60))
            problem->causal = ATTN_CAUSAL_NO;
    }
}

/* Makes some problems that read a strided cache of any other type read one of blocks. */
static void pick_blocks(struct attn_problem *problem, uint64_t seed)
{
    static const uint32_t types[] = {ATTN_Q8_0, ATTN_Q4_0, ATTN_Q4_1, ATTN_Q5_0, ATTN_Q5_1, ATTN_IQ4_NL};
    struct rng rng = {mix(seed, 90)};

    if (problem->kv_source > ATTN_KV_CACHE || problem->layout > ATTN_STRIDED || !rng_chance(&rng, 15))
        return;
    problem->head_dim = (problem->head_dim + 31) / 32 * 32;
    problem->head_dim_vo = (problem->head_dim_vo + 31) / 32 * 32;
    const bool both = problem->mla != 0 || rng_chance(&rng, 60), k = both || rng_chance(&rng, 50);
    if (k) {
        problem->k_dtype = rng_pick(&rng, types);
        problem->k_scale = rng_chance(&rng, 50) ? ATTN_SCALES_NONE : ATTN_SCALES_UNIT;
    }
    if (problem->mla != 0) {
        problem->v_dtype = problem->k_dtype;
    } else if (both || !k) {
        problem->v_dtype = rng_chance(&rng, 50) && k ? problem->k_dtype : rng_pick(&rng, types);
        problem->v_scale = rng_chance(&rng, 50) ? ATTN_SCALES_NONE : ATTN_SCALES_UNIT;
    }
}

void problem_generate(struct attn_problem *problem, uint64_t seed)
{
    static const uint32_t blocks[] = {1, 2, 5, 16, 16, 32, 33, 64};
    static const float caps[] = {0.5f, 5, 30, 50};
    static const uint32_t addressings[] = {ATTN_DENSE, ATTN_TABLE, ATTN_TABLE, ATTN_CSR};
    struct rng rng = {mix(seed, 1)};

    ATTN_INIT(problem);
    problem->type = ATTN_DECODER;
    pick_types(&rng, problem);
    pick_shape(&rng, problem);
    problem->addressing = rng_pick(&rng, addressings);
    problem->block = problem->addressing == ATTN_DENSE ? 16 : rng_pick(&rng, blocks);
    problem->index_dtype = problem->addressing == ATTN_CSR && rng_chance(&rng, 50) ? ATTN_INT64 : ATTN_INT32;
    problem->causal = rng_chance(&rng, 75) ? ATTN_CAUSAL_YES : ATTN_CAUSAL_NO;
    problem->align = rng_chance(&rng, 80) ? ATTN_ALIGN_END : ATTN_ALIGN_START;
    pick_window(&rng, problem);
    problem->softcap = rng_chance(&rng, 20) ? rng_pick(&rng, caps) : 0;
    problem->lse = rng_chance(&rng, 60);
    problem->det = rng_chance(&rng, 40);
    problem->positions = rng_chance(&rng, 12);
    problem->seq_causal = rng_chance(&rng, 12);
    pick_extras(&rng, problem);
    pick_source(&rng, problem);
    pick_mask(&rng, problem);
    problem_pick_8bit(problem, seed);
    shapes_generate(problem, seed);
    pick_blocks(problem, seed);
}

bool problem_covered(const struct attn_problem *problem, const char **out_key)
{
    struct attn_problem plain = *problem;

    /* What the generator adds to the plain problems of the oracle. */
    plain.type = ATTN_DECODER;
    plain.kv_source = ATTN_KV_CACHE;
    plain.sinks = 0;
    plain.alibi = ATTN_ALIBI_NONE;
    plain.mask = ATTN_MASK_NONE;
    plain.q_dtype = plain.k_dtype = plain.v_dtype = plain.out_dtype = ATTN_F32;
    plain.q_scale = plain.k_scale = plain.v_scale = plain.out_scale = ATTN_SCALES_NONE;
    plain.mla = plain.cp = 0;
    plain.layout = ATTN_STRIDED;
    if (!shapes_covered(problem, out_key))
        return false;
    if (plain.heads > MAX_HEADS) {
        *out_key = "heads";
        return false;
    }
    return oracle_covers(&plain, out_key);
}
