/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The warp groups that multiply, on Hopper: each has 64 rows of a work tile. Scores of an iteration are
 * multiplied while the results of the one before are, and softmax is computed meanwhile.
 */
#ifndef ATTN_GPU_MMA_CONSUMER_H
#define ATTN_GPU_MMA_CONSUMER_H

#include "combine.h"
#include "mask.h"
#include "nonfinite.h"
#include "pipeline.h"
#include "wgmma.h"

/* What a warp keeps in registers from one KV iteration to the next. */
template <class C> struct mma_consumer {
    mma_out_fragments<C> o;
    mma_row_pairs<C> max, sum, factor;
    mma_iteration_p<C> p; /* of the iteration whose results are next */
    struct mma_rules rules;
    bool plain;         /* scores change only where a row does not see a key */
    gpu_matrix queries; /* of the warp group */
    uint32_t row_warp;
    uint32_t used;  /* uses of the buffers before the work tile */
    uint32_t tiles; /* work tiles before */
    bool checked;   /* values are not trusted */
};

/*
 * The warp groups begin their products in turns: while those of one are computed, the other one computes
 * softmax.
 */
template <class C> GPU_INLINE void mma_wait_turn(uint32_t group)
{
    gpu_barrier_part(MMA_BARRIER_TURN + group, C::CTA_THREADS - C::THREADS);
}
template <class C> GPU_INLINE void mma_give_turn(uint32_t group)
{
    gpu_barrier_arrive(MMA_BARRIER_TURN + 1 - group, C::CTA_THREADS - C::THREADS);
}

template <class C> GPU_INLINE void mma_clear_consumer(mma_consumer<C> *own)
{
    own->max[0][0] = own->max[0][1] = -GPU_INFINITY;
    own->sum[0][0] = own->sum[0][1] = 0;
    GPU_UNROLL
    for (uint32_t n = 0; n < C::WARP_DV / 8; n++)
        own->o[0][n][0] = own->o[0][n][1] = own->o[0][n][2] = own->o[0][n][3] = 0;
}

/* Begins the results of the iteration whose P is in registers. */
template <class C>
GPU_INLINE void mma_begin_results(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                                  uint32_t n, mma_consumer<C> *own)
{
    mma_wait_full(&shared->pipeline[1], n);
    mma_begin_results_of<C>(mma_p_bf16<C>(run), mma_pipeline_stage<C>(stages, true, n), own->p, own->o);
}

/*
 * Values that are not finite, where they are not trusted: rows that see them get them. The results before are
 * done, and their values have been read.
 */
template <class C>
GPU_INLINE void mma_spread_iteration(mma_shared<C> *shared, uint32_t tile, uint32_t n, mma_consumer<C> *own,
                                     mma_iteration_scores<C> s)
{
    mma_wait_full(&shared->pipeline[1], n);
    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++)
        if (shared->nonfinite_tile[t] == tile + t + 1)
            mma_spread_nonfinite<C>(shared, t * GPU_TILE, 0, s[t], own->o);
}

/* Whether all keys of an iteration exist. One lane reads it, the one that releases stages. */
template <class C> GPU_INLINE bool mma_all_present(const mma_shared<C> *shared, uint32_t slot)
{
    uint64_t all = C::ALL_PRESENT;

    if (gpu_thread() % GPU_WARP == 0) {
        GPU_UNROLL
        for (uint32_t t = 0; t < C::TILES; t++)
            all &= shared->present[slot][t];
    }
    return gpu_ballot(all != C::ALL_PRESENT) == 0;
}

/* What the rules make of an iteration's products. */
template <class C>
GPU_INLINE void mma_apply_iteration_rules(const struct gpu_run *run, const mma_shared<C> *shared,
                                          const mma_consumer<C> *own, uint32_t slot, uint32_t tile,
                                          mma_iteration_scores<C> s)
{
    const bool all = mma_all_present<C>(shared, slot);

    if (own->plain && tile * GPU_TILE >= own->rules.lo && tile * GPU_TILE + C::KEYS <= own->rules.hi && all)
        return;
    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++) {
        const uint64_t present = all ? C::ALL_PRESENT : shared->present[slot][t];
        if (!mma_keeps_scores<C>(run, &own->rules, tile + t, present))
            mma_apply_rules<C>(run, shared, &own->rules, slot, own->row_warp, tile, t * GPU_TILE, present,
                               s[t]);
    }
}

/* The exponents of a row that a lane has in each fragment, the upper or the lower one. */
template <class C>
GPU_INLINE void mma_exponentiate_row(mma_consumer<C> *own, uint32_t h, mma_iteration_scores<C> s)
{
    const float base = mma_exponent_base(own->max[0][h]), factor = own->factor[0][h];

    GPU_UNROLL
    for (uint32_t n = 0; n < C::KEYS / 8; n++) {
        GPU_UNROLL
        for (uint32_t e = 2 * h; e < 2 * h + 2; e++)
            s[n / 8][0][n % 8][e] = gpu_exp2_fast(gpu_fma(s[n / 8][0][n % 8][e], factor, -base));
    }
}

/* Adds them to the row's sum, when all have been computed: a warp waits for each. */
template <class C> GPU_INLINE void mma_sum_row(mma_consumer<C> *own, uint32_t h, mma_iteration_scores<C> s)
{
    float sum[4] = {own->sum[0][h], 0, 0, 0};

    GPU_UNROLL
    for (uint32_t n = 0; n < C::KEYS / 8; n++) {
        sum[n % 2 * 2] += s[n / 8][0][n % 8][2 * h];
        sum[n % 2 * 2 + 1] += s[n / 8][0][n % 8][2 * h + 1];
    }
    own->sum[0][h] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* P in place of scores. True if row maxima have risen: results so far are to be multiplied by `correction`,
 * but only when those before are done, for which all warps of a group wait at one place. */
template <class C>
GPU_INLINE bool mma_softmax_iteration(mma_consumer<C> *own, mma_iteration_scores<C> s, float correction[2])
{
    float tile_max[2] = {-GPU_INFINITY, -GPU_INFINITY};

    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++) {
        float one[2];
        mma_fragment_max(s[t][0], own->factor[0], one);
        tile_max[0] = fmaxf(tile_max[0], one[0]);
        tile_max[1] = fmaxf(tile_max[1], one[1]);
    }
    const bool grown = gpu_ballot(mma_has_grown(tile_max, own->max[0])) != 0;
    if (grown)
        mma_raise_row_max(tile_max, own->max[0], own->sum[0], correction);
    mma_exponentiate_row<C>(own, 0, s);
    mma_exponentiate_row<C>(own, 1, s);
    mma_sum_row<C>(own, 0, s);
    mma_sum_row<C>(own, 1, s);
    return grown;
}

/* P as an operand. With 8-bit values it is `bf16` where it is multiplied by the `scales` of single values. */
template <class C>
GPU_INLINE void mma_pack_iteration(bool bf16, const float *scales, mma_iteration_scores<C> s,
                                   mma_iteration_p<C> p)
{
    GPU_UNROLL
    for (uint32_t k = 0; k < C::KEYS / 16; k++) {
        float scale[4] = {1, 1, 1, 1};
        if (C::KV8 && bf16)
            mma_load_scales(scales, k, scale);
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const float *pair = &s[k / 4][0][k % 4 * 2 + i / 2][i % 2 * 2];
            p[k][i] = mma_pack(pair[0] * scale[i / 2 * 2], pair[1] * scale[i / 2 * 2 + 1], bf16);
        }
    }
}

/* One KV iteration: scores of the i-th, and results of the one before. */
template <class C>
GPU_INLINE void mma_consume_iteration(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                                      const struct gpu_work_tile *p, mma_consumer<C> *own, uint32_t i)
{
    const uint32_t n = own->used + i, slot = i % C::ADDRESS_STAGES, tile = p->first + i * C::TILES;
    mma_iteration_scores<C> s;
    float correction[2];

    mma_wait_full(&shared->pipeline[0], n);
    const bool checked = own->checked = shared->trust == MMA_CHECKED;
    mma_wait_turn<C>(own->row_warp / 4);
    mma_begin_scores_of<C>(own->queries, mma_pipeline_stage<C>(stages, false, n), s);
    if (i > 0)
        mma_begin_results<C>(run, shared, stages, n - 1, own);
    gpu_wgmma_commit(); /* the group is empty in the first iteration */
    mma_give_turn<C>(own->row_warp / 4);
    mma_wait_scores<C, 1>(s);
    mma_release(&shared->pipeline[0], n);
    mma_apply_iteration_rules<C>(run, shared, own, slot, tile, s);
    if (checked) {
        mma_wait_results<C>(own->o);
        if (i > 0)
            mma_release(&shared->pipeline[1], n - 1);
        mma_spread_iteration<C>(shared, tile, n, own, s);
    }
    const bool grown = mma_softmax_iteration<C>(own, s, correction);
    mma_keep_scores<C>(s);
    /* In a branch: otherwise the assembler moves this before the exponents. The first iteration has no
     * results, and to rescale those outside would make the assembler wait for each product. */
    if (i > 0) {
        mma_wait_results<C>(own->o);
        if (!checked)
            mma_release(&shared->pipeline[1], n - 1);
        if (grown)
            mma_rescale_rows(correction, own->o[0]);
    }
    if (C::KV8 && mma_p_bf16<C>(run))
        mma_pack_iteration<C>(true, shared->v_scale[slot], s, own->p);
    else
        mma_pack_iteration<C>(C::BF16_MMA, NULL, s, own->p);
}

/* Attention of a work tile by the rows of a warp. */
template <class C>
GPU_INLINE void mma_consume(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                            const struct gpu_work_tile *p, mma_consumer<C> *own)
{
    const uint32_t iterations = mma_iterations<C>(p);

    mma_clear_consumer<C>(own);
    if (iterations == 0)
        return;
    mma_wait_queries<C>(shared, own->tiles++);
    own->rules = mma_find_rules<C>(run, shared, p);
    own->plain =
        own->rules.elementwise == 0 && run->mask.base == 0 && !mma_scale_per_key<C>(run->problem.k_scale);
    mma_row_factors<C>(shared, &own->rules, own->row_warp, own->factor);
    GPU_LOOP
    for (uint32_t i = 0; i < iterations; i++)
        mma_consume_iteration<C>(run, shared, stages, p, own, i);
    own->used += iterations;
    mma_begin_results<C>(run, shared, stages, own->used - 1, own);
    gpu_wgmma_commit();
    mma_wait_results<C>(own->o);
    mma_release(&shared->pipeline[1], own->used - 1);
}

/* Whether a result of a row that exists is not finite, where a masked tile was taken for finite. */
template <class C>
GPU_INLINE bool mma_finds_nonfinite(const struct gpu_run *run, const mma_shared<C> *shared,
                                    const struct gpu_work_tile *p, const mma_consumer<C> *own)
{
    const uint32_t rows = shared->sequence.q_len * run->group - p->row0, keys = shared->sequence.kv_len;
    const uint32_t end = p->end * GPU_TILE < keys ? p->end * GPU_TILE : keys;
    bool found = false;

    if (mma_iterations<C>(p) == 0 || own->checked ||
        (run->mask.base == 0 && p->first * GPU_TILE >= own->rules.lo && end <= own->rules.hi))
        return false;
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t row = own->row_warp * 16 + h * 8 + gpu_thread() % GPU_WARP / 4;
        float zero[2] = {0, 0};
        GPU_UNROLL
        for (uint32_t n = 0; n < C::WARP_DV / 8; n++) {
            zero[0] = gpu_fma(own->o[0][n][2 * h], 0, zero[0]);
            zero[1] = gpu_fma(own->o[0][n][2 * h + 1], 0, zero[1]);
        }
        found = found || (row < rows && !(zero[0] + zero[1] == 0));
    }
    return found;
}

/* The part of these warp groups in a work tile: results are stored in the output or the split workspace. */
template <class C>
GPU_INLINE void mma_consume_tile(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                                 unsigned char *stages, const struct gpu_work_tile *p)
{
    const uint32_t rows = shared->sequence.q_len * run->group - p->row0;
    mma_consumer<C> own;

    own.row_warp = gpu_shuffle_u32(gpu_thread() / GPU_WARP - C::FIRST_WARP, 0); /* the same of all lanes */
    own.queries = gpu_matrix_of<C::KEYS>(queries + mma_swizzled<C>(own.row_warp / 4 * 64, 0, C::K_ROW));
    own.used = own.tiles = 0;
    mma_find_visible_keys<C>(run, shared, p->row0, p->kv_head);
    mma_row_barrier<C>();
    if (own.row_warp / 4 == 1)
        mma_give_turn<C>(1); /* the other group is the first */
    do {
        mma_consume<C>(run, shared, stages, p, &own);
    } while (mma_begins_again_together<C>(shared, mma_finds_nonfinite<C>(run, shared, p, &own)));
    if (mma_stores_directly<C>(run, p)) {
        mma_store_rows<C>(run, shared, queries, p, own.max, own.sum, own.o);
    } else if (mma_stores_partials<C>(p)) {
        mma_store_partials<C>(run, p, rows, own.row_warp, 0, own.max, own.sum, own.o);
    } else {
        float *gathered = (float *)(void *)queries; /* in place of queries and stages */
        mma_gather_results<C>(shared, gathered, rows, own.row_warp, 0, 0, own.max, own.sum, own.o);
        mma_store_tile<C>(run, &shared->sequence, shared, gathered, p, C::GROUPS, own.row_warp, C::WARPS);
    }
}

#endif
