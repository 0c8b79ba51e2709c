/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What rules do to the scores of a KV iteration of a warp group, and which iterations they leave as they are.
 */
#ifndef ATTN_GPU_MMA_WGMMA_RULES_H
#define ATTN_GPU_MMA_WGMMA_RULES_H

#include "mask.h"
#include "nonfinite.h"
#include "wgmma-softmax.h"

/* The rules of a warp's rows, which it keeps in shared memory: it seldom needs them. */
template <class C>
GPU_INLINE const struct mma_rules *mma_rules_of(const mma_shared<C> *shared, const mma_consumer<C> *own)
{
    return &shared->handover.rules[own->row_warp];
}

/* Whether values of the work tile are not trusted. */
template <class C> GPU_INLINE bool mma_is_checked(const mma_shared<C> *shared, const mma_consumer<C> *own)
{
    return shared->handover.computed[own->row_warp].trust == MMA_CHECKED;
}

/* Where it is written which values of an iteration are NaN; 0: none is. e4m3 alone, whose values are zeros
 * there. One lane reads it. */
template <class C> GPU_INLINE uint64_t mma_nonfinite_at(const mma_shared<C> *shared, uint32_t slot)
{
    return gpu_shuffle_u64(gpu_thread() % GPU_WARP == 0 ? shared->handover.nonfinite_at[slot] : 0, 0);
}

/* Whether values of an iteration that are not finite have been put aside. */
template <class C>
GPU_INLINE bool mma_is_marked(const mma_shared<C> *shared, const mma_consumer<C> *own, uint32_t n)
{
    return C::E4M3 ? mma_nonfinite_at<C>(shared, n % C::ADDRESS_STAGES) != 0 : mma_is_checked<C>(shared, own);
}

/* Whether all keys of an iteration exist. One lane reads it, the one that releases stages. */
template <class C> GPU_INLINE bool mma_all_present(const mma_shared<C> *shared, uint32_t slot)
{
    uint64_t all = C::ALL_PRESENT;

    if (gpu_thread() % GPU_WARP == 0) {
        GPU_UNROLL
        for (uint32_t t = 0; t < C::TILES; t++)
            all &= shared->present[slot][t];
        if constexpr (C::E4M3) /* such an iteration is not plain either */
            all &= shared->handover.nonfinite_at[slot] == 0 ? all : 0;
    }
    return gpu_ballot(all != C::ALL_PRESENT) == 0;
}

/* Which keys of a tile of it exist, a bit for each. */
template <class C>
GPU_INLINE uint64_t mma_tile_present(const mma_shared<C> *shared, uint32_t slot, uint32_t t)
{
    return gpu_shuffle_u64(gpu_thread() % GPU_WARP == 0 ? shared->present[slot][t] : 0, 0);
}

/*
 * ALiBi of a tile of keys, and keys that rows do not see. Products get what it adds from the lane's first key
 * of the iteration on, and `offset`, in base 2, what all of a row get: a score takes one instruction.
 */
template <class C>
GPU_INLINE void mma_add_slopes(const struct gpu_run *run, const mma_shared<C> *shared,
                               const mma_consumer<C> *own, const struct mma_rules *rules, uint32_t tile,
                               uint32_t t, uint64_t present, mma_score_fragments<C> s, float offset[2])
{
    const uint32_t key = tile * GPU_TILE + gpu_thread() % 4 * 2, from = (tile + t) * GPU_TILE;

    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const struct gpu_row *row = mma_lane_row<C>(shared, own->row_warp, 0, h);
        const float slope = row->slope * rules->bias;
        offset[h] = slope * (float)(int32_t)(key - (uint32_t)row->position) * own->factor[0][h];
        GPU_UNROLL
        for (uint32_t n = 0; n < GPU_TILE / 8; n++) {
            GPU_UNROLL
            for (uint32_t e = 0; e < 2; e++)
                s[0][n][2 * h + e] = gpu_fma(slope, (float)(t * GPU_TILE + n * 8 + e), s[0][n][2 * h + e]);
        }
    }
    if (mma_has_mask<C>(run) || !mma_all_visible<C>(rules, from, present))
        mma_hide_keys<C>(run, shared, own->row_warp, present, from, s);
}

/* e4m3: the scale of one of a lane's rows. */
template <class C>
GPU_INLINE float mma_query_scale(const struct gpu_run *run, const mma_shared<C> *shared, uint32_t row_warp,
                                 uint32_t h)
{
    const struct mma_computed *own = &shared->handover.computed[row_warp];
    const uint32_t row = row_warp * 16 + gpu_thread() % GPU_WARP / 4 + h * 8;
    uint32_t token, head;

    (void)mma_row_of(run, &own->sequence, own->work.row0 + row, own->work.kv_head, &token, &head);
    return gpu_scale_at(&run->q_scale, own->sequence.index, 0, head / run->q_scale_group);
}

/* What scales that are not finite and positive make of products before they are compared. */
template <class C>
GPU_INLINE void mma_apply_query_signs(const struct gpu_run *run, const mma_shared<C> *shared,
                                      const mma_consumer<C> *own, mma_iteration_scores<C> s)
{
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float rest;
        const float sign = gpu_regular_scale(mma_query_scale<C>(run, shared, own->row_warp, h), &rest);
        GPU_UNROLL
        for (uint32_t n = 0; n < C::KEYS / 8; n++) {
            s[n / 8][0][n % 8][2 * h] *= sign;
            s[n / 8][0][n % 8][2 * h + 1] *= sign;
        }
    }
}

/* e4m3: the scales of rows become part of their factors. Where one is not finite and positive, which is rare,
 * the rules have it: no iteration stays as it is. */
template <class C>
GPU_INLINE void mma_apply_query_scales(const struct gpu_run *run, mma_shared<C> *shared, mma_consumer<C> *own)
{
    bool regular = true;

    if (run->problem.q_scale <= ATTN_SCALES_TENSOR)
        return;
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float rest;
        regular = gpu_regular_scale(mma_query_scale<C>(run, shared, own->row_warp, h), &rest) == 1 && regular;
        own->factor[0][h] = mma_finite_factor(own->factor[0][h] * rest);
    }
    if (gpu_ballot(!regular) == 0)
        return;
    if (gpu_thread() % GPU_WARP == 0)
        shared->handover.rules[own->row_warp].elementwise = MMA_GENERAL;
    gpu_warp_barrier();
    own->plain_end = own->begin;
}

/* What the rules make of an iteration's products; `offset` is added to the scores of a row in base 2. */
template <class C>
GPU_INLINE void mma_apply_iteration_rules(const struct gpu_run *run, const mma_shared<C> *shared,
                                          const mma_consumer<C> *own, uint32_t slot, uint32_t tile,
                                          mma_iteration_scores<C> s, float offset[2])
{
    const struct mma_rules rules = *mma_rules_of<C>(shared, own);
    const bool sloped =
        C::RULES && !C::KV8 && rules.elementwise == MMA_ALIBI && run->problem.alibi == ATTN_ALIBI_KEY;

    if constexpr (C::E4M3)
        if (rules.elementwise != 0)
            mma_apply_query_signs<C>(run, shared, own, s);
    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++) {
        const uint64_t present = mma_tile_present<C>(shared, slot, t);
        if (sloped)
            mma_add_slopes<C>(run, shared, own, &rules, tile, t, present, s[t], offset);
        else if (!mma_keeps_scores<C>(run, &rules, tile + t, present))
            mma_apply_rules<C>(run, shared, &rules, slot, own->row_warp, tile, t * GPU_TILE, present, s[t]);
    }
}

/* Whether the scores of an iteration stay as they are, in all rows of the warp. */
template <class C>
GPU_INLINE bool mma_is_plain(const mma_shared<C> *shared, const mma_consumer<C> *own, uint32_t n)
{
    const bool all = mma_all_present<C>(shared, n % C::ADDRESS_STAGES);

    return n >= own->plain_begin && n < own->plain_end && all;
}

/* Products of keys that have scales. */
template <class C>
GPU_INLINE void mma_scale_iteration(const mma_shared<C> *shared, uint32_t n, mma_iteration_scores<C> s)
{
    GPU_UNROLL
    for (uint32_t t = 0; C::SCALED && t < C::TILES; t++)
        mma_scale_keys<C>(shared->k_scale[n % C::KEY_SCALE_STAGES] + t * GPU_TILE, s[t]);
}

/* Whether the rules hide some keys of rows, and do nothing else with an iteration whose keys all exist. */
template <class C>
GPU_INLINE bool mma_only_hides(const struct gpu_run *run, const mma_shared<C> *shared,
                               const mma_consumer<C> *own, uint32_t n)
{
    return !mma_has_mask<C>(run) &&
           ((!C::RULES && !C::E4M3) || mma_rules_of<C>(shared, own)->elementwise == 0) &&
           mma_all_present<C>(shared, n % C::ADDRESS_STAGES);
}

/* Hides such keys: an instruction or two for a score. `from`: the first key of the iteration. */
template <class C>
GPU_INLINE void mma_hide_ranges(const mma_shared<C> *shared, const mma_consumer<C> *own, uint32_t from,
                                mma_iteration_scores<C> s)
{
    const int32_t key = (int32_t)(from + gpu_thread() % 4 * 2);
    int32_t lo[2], hi[2];

    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const struct gpu_row *row = mma_lane_row<C>(shared, own->row_warp, 0, h);
        lo[h] = (int32_t)row->lo - key;
        hi[h] = (int32_t)row->hi - key;
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < C::KEYS / 2; i++) {
        float *x = &s[i / 32][0][i / 4 % 8][i % 4];
        if ((int32_t)(i / 4 * 8 + i % 2) >= hi[i / 2 % 2])
            *x = -GPU_INFINITY;
    }
    if (gpu_ballot(lo[0] > 0 || lo[1] > 0) == 0)
        return;
    GPU_UNROLL
    for (uint32_t i = 0; i < C::KEYS / 2; i++) {
        float *x = &s[i / 32][0][i / 4 % 8][i % 4];
        if ((int32_t)(i / 4 * 8 + i % 2) < lo[i / 2 % 2])
            *x = -GPU_INFINITY;
    }
}

/* Finds which iterations the rules of the warp's rows leave as they are, and the rules themselves if they are
 * not known. */
template <class C>
GPU_INLINE void mma_begin_rules(const struct gpu_run *run, mma_shared<C> *shared,
                                const struct gpu_work_tile *p, bool known, mma_consumer<C> *own)
{
    if (!known) {
        const struct mma_rules found = mma_find_rules<C>(run, shared, p);
        if (gpu_thread() % GPU_WARP == 0)
            shared->handover.rules[own->row_warp] = found;
        gpu_warp_barrier();
    }
    const struct mma_rules rules = *mma_rules_of<C>(shared, own);
    const uint32_t iterations = own->end - own->begin, first = (rules.lo + GPU_TILE - 1) / GPU_TILE,
                   end = rules.hi / GPU_TILE; /* tiles that all rows see */
    const uint32_t before = first > p->first ? (first - p->first + C::TILES - 1) / C::TILES : 0,
                   within = end > p->first ? (end - p->first) / C::TILES : 0;

    own->plain_begin = own->begin + before;
    own->plain_end = own->begin + (within < iterations ? within : iterations);
    if ((C::RULES && rules.elementwise != 0) || mma_has_mask<C>(run) || mma_is_checked<C>(shared, own))
        own->plain_end = own->begin;
    mma_row_factors<C>(shared, &rules, own->row_warp, own->factor);
    if constexpr (C::E4M3)
        mma_apply_query_scales<C>(run, shared, own);
}

#endif
