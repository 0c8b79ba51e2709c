/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random problems of other shapes: MLA caches, keys sharded over ranks, caches in chunks. */
#include "conform.h"

static void make_mla(struct rng *rng, struct attn_problem *problem)
{
    static const struct {
        uint32_t qk, vo;
    } dims[] = {{576, 512}, {576, 512}, {192, 128}, {72, 64}, {64, 64}, {40, 32}, {33, 17}, {24, 3}, {1, 1}};
    static const uint32_t heads[] = {1, 2, 3, 8, 12, 16, 20, 64};
    uint32_t which = rng_below(rng, sizeof dims / sizeof dims[0]);

    problem->mla = 1;
    problem->kv_heads = 1;
    problem->heads = rng_pick(rng, heads);
    problem->head_dim = dims[which].qk;
    problem->head_dim_vo = dims[which].vo;
    problem->v_dtype = problem->k_dtype;
    problem->v_scale = ATTN_SCALES_NONE;
    if (rng_chance(rng, 15)) { /* the scale of both parts of a query */
        problem->q_dtype = rng_chance(rng, 50) ? ATTN_E4M3 : ATTN_INT8;
        problem->q_scale = rng_chance(rng, 50) ? ATTN_SCALES_TOKEN_HEAD : ATTN_SCALES_HEAD;
    }
}

void shapes_generate(struct attn_problem *problem, uint64_t seed)
{
    struct rng rng = {mix(seed, 31)};

    if (rng_chance(&rng, 12))
        make_mla(&rng, problem);
    if (rng_chance(&rng, 15)) {
        uint32_t x = paged_x_elements(problem->k_dtype);
        problem->layout = ATTN_PAGED_X;
        problem->head_dim = (problem->head_dim + x - 1) / x * x;
    }
    if (rng_chance(&rng, 15)) {
        problem->cp = 1;
        problem->kv_source = ATTN_KV_CACHE;
    }
}

bool shapes_covered(const struct attn_problem *problem, const char **out_key)
{
    if (problem->layout == ATTN_PAGED_X && problem->head_dim % paged_x_elements(problem->k_dtype) != 0) {
        *out_key = "head_dim";
        return false;
    }
    return true;
}

/*
 * Values of an MLA cache are keys: what is not finite in one is so in the other. Scores shifted by the last
 * column would shift the values if it is one of them.
 */
void case_make_mla(struct conform_case *c)
{
    uint32_t kept = 0;

    if (c->problem.mla == 0)
        return;
    if (c->problem.head_dim == c->problem.head_dim_vo)
        c->shift = 0;
    for (uint32_t i = 0; i < c->injection_count; i++) {
        if (c->injections[i].kind == INJECT_BURIED)
            continue;
        if (c->injections[i].kind != INJECT_Q)
            c->injections[i].kind = INJECT_K;
        c->injections[kept++] = c->injections[i];
    }
    c->injection_count = kept;
    c->infinite = false;
}

void case_make_loud(const struct conform_case *c, const struct scaled_vector *vector, double factor)
{
    uint32_t columns = c->problem.mla != 0 ? (c->problem.head_dim_vo + 3) / 4 : 0;
    uint32_t size = oracle_size(vector->dtype);

    if (factor != 0 && c->scales[vector->what].raw)
        return; /* codes of every size as they are */
    if (oracle_has_blocks(vector->dtype))
        return; /* a block has one scale for what is loud and what is not */
    for (uint32_t d = 0; d < columns; d++) {
        unsigned char *at = (unsigned char *)vector->to + (size_t)d * size;
        double value;
        oracle_load(vector->dtype, at, 1, &value);
        oracle_store(vector->dtype, value * factor, at);
    }
}
