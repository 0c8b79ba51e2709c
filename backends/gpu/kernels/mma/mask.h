/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What happens to the products of a tile before softmax: scales, soft cap, ALiBi, masks, and keys that a row
 * does not see.
 */
#ifndef ATTN_GPU_MMA_MASK_H
#define ATTN_GPU_MMA_MASK_H

#include "elementwise.h"
#include "score-rules.h"

/* Whether a key exists; where warp groups multiply, there may be no addresses. */
template <class C> GPU_INLINE bool mma_key_exists(const mma_shared<C> *shared, uint32_t slot, uint32_t key)
{
    if constexpr (C::WGMMA)
        return (shared->present[slot][key / GPU_TILE] >> key % GPU_TILE & 1) != 0;
    return shared->k_at[slot][key] != MMA_NO_ADDRESS;
}

/* A score in base 2; minus infinity for a key that the row does not see. */
template <class C>
GPU_INLINE float mma_masked_score(const struct gpu_run *run, const mma_shared<C> *shared, uint32_t slot,
                                  uint32_t row, uint32_t tile, uint32_t key, float score)
{
    const struct gpu_row *r = &shared->row[row];
    const uint32_t at = tile * C::UNIT_KEYS + key;
    double bias;

    if (at < r->lo || at >= r->hi || !mma_key_exists<C>(shared, slot, key))
        return -GPU_INFINITY;
    const float cap = mma_softcap<C>(run);
    if (cap > 0)
        score = cap * gpu_tanh(score / cap);
    if (!mma_has_mask<C>(run) && !mma_has_slopes<C>(run))
        return score * GPU_LOG2E;
    if (!gpu_sees(run, mma_computed_sequence<C>(shared), r, at, &bias))
        return -GPU_INFINITY;
    return (float)(((double)score + bias) * (double)GPU_LOG2E);
}

/*
 * Applies soft cap, ALiBi and masks to each score of the warp. Four scores at a time move through the first
 * registers in a loop, so that this code exists only four times.
 */
template <class C>
GPU_INLINE void mma_mask_elementwise(const struct gpu_run *run, const mma_shared<C> *shared, uint32_t slot,
                                     uint32_t row_warp, uint32_t tile, uint32_t key0, float scale,
                                     mma_score_fragments<C> s)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, blocks = C::GROUP_KEYS / 8;

    GPU_LOOP
    for (uint32_t i = 0; i < C::M_FRAGMENTS * blocks; i++) {
        float x[4];
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            x[e] = mma_masked_score<C>(
                run, shared, slot, (row_warp * C::M_FRAGMENTS + i / blocks) * 16 + lane / 4 + e / 2 * 8, tile,
                key0 + i % blocks * 8 + lane % 4 * 2 + e % 2, s[0][0][e] * scale);
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++) {
            GPU_UNROLL
            for (uint32_t j = 0; j + 1 < C::M_FRAGMENTS * blocks; j++)
                s[j / blocks][j % blocks][e] = s[(j + 1) / blocks][(j + 1) % blocks][e];
            s[C::M_FRAGMENTS - 1][blocks - 1][e] = x[e];
        }
    }
}

/* Which of the group's keys exist, a bit for each. */
template <class C>
GPU_INLINE uint64_t mma_present_keys(const struct gpu_run *run, const mma_shared<C> *shared, uint32_t slot,
                                     uint32_t key0)
{
    if (C::GROUPS != 1 && run->batch.addressing == ATTN_DENSE)
        return C::ALL_PRESENT;
    const uint64_t *at = shared->k_at[slot] + key0;
    const uint32_t lane = gpu_thread() % GPU_WARP;

    if constexpr (C::GROUP_KEYS == 16)
        return gpu_ballot(at[lane % 16] != MMA_NO_ADDRESS) & 0xffff;
    return gpu_ballot(at[lane] != MMA_NO_ADDRESS) |
           (uint64_t)gpu_ballot(at[(lane + 32) % C::GROUP_KEYS] != MMA_NO_ADDRESS) << 32;
}

/* Undoes the scaling of queries. */
template <class C>
GPU_INLINE void mma_unscale_queries(const mma_shared<C> *shared, uint32_t row_warp, mma_score_fragments<C> s)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const float scale = shared->q_scale[(row_warp * C::M_FRAGMENTS + m) * 16 + lane / 4 + h * 8];
            GPU_UNROLL
            for (uint32_t n = 0; n < C::GROUP_KEYS / 8; n++) {
                s[m][n][2 * h] *= scale;
                s[m][n][2 * h + 1] *= scale;
            }
        }
    }
}

/* The factor of each row that a lane has. */
template <class C>
GPU_INLINE void mma_row_factors(const mma_shared<C> *shared, const struct mma_rules *rules, uint32_t row_warp,
                                mma_row_pairs<C> factor)
{
    const uint32_t row = row_warp * C::M_FRAGMENTS * 16 + gpu_thread() % GPU_WARP / 4;

    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++)
            factor[m][h] = mma_row_factor<C>(shared, rules, row + m * 16 + h * 8);
    }
}

/* Products, or P, times the scale of each key, or value. */
template <class C> GPU_INLINE void mma_scale_keys(const float *scales, mma_score_fragments<C> s)
{
    GPU_UNROLL
    for (uint32_t k = 0; k < C::GROUP_KEYS / 16; k++) {
        float scale[4];
        mma_load_scales(scales, k, scale);
        GPU_UNROLL
        for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
            GPU_UNROLL
            for (uint32_t i = 0; i < 8; i++)
                s[m][2 * k + i / 4][i % 4] *= scale[i / 4 * 2 + i % 2];
        }
    }
}

/* Whether every row sees all keys from `from` on, as far as ranges and lengths tell. */
template <class C>
GPU_INLINE bool mma_all_visible(const struct mma_rules *rules, uint32_t from, uint64_t present)
{
    return from >= rules->lo && from + C::GROUP_KEYS <= rules->hi && present == C::ALL_PRESENT;
}

/* Whether mma_apply_rules would leave the scores of a tile as they are. */
template <class C>
GPU_INLINE bool mma_keeps_scores(const struct gpu_run *run, const struct mma_rules *rules, uint32_t tile,
                                 uint64_t present)
{
    return (!C::RULES || rules->elementwise == 0) && !mma_has_mask<C>(run) &&
           !mma_scale_per_key<C>(run->problem.k_scale) && mma_all_visible<C>(rules, tile * GPU_TILE, present);
}

/*
 * What the rules make of the products of a tile, without the rows' factors. True if the tile is unmasked:
 * every row sees every key.
 */
template <class C>
GPU_INLINE bool mma_apply_rules(const struct gpu_run *run, const mma_shared<C> *shared,
                                const struct mma_rules *rules, uint32_t slot, uint32_t row_warp,
                                uint32_t tile, uint32_t key0, uint64_t present, mma_score_fragments<C> s)
{
    const uint32_t from = tile * GPU_TILE + key0;
    const bool whole = mma_all_visible<C>(rules, from, present);
    const bool unmasked = whole && !mma_has_mask<C>(run);

    if (C::Q_SCALED && rules->elementwise)
        mma_unscale_queries<C>(shared, row_warp, s);
    if (mma_scale_per_key<C>(run->problem.k_scale))
        mma_scale_keys<C>(shared->k_scale[slot] + key0, s);
    if (unmasked && (!C::RULES || rules->elementwise == 0))
        return true;
    if (C::RULES && (rules->elementwise & MMA_GENERAL) != 0) {
        mma_mask_elementwise<C>(run, shared, slot, row_warp, tile, key0, rules->scale, s);
        return unmasked;
    }
    if (C::RULES && rules->elementwise != 0)
        mma_apply_elementwise<C>(run, shared, rules, row_warp, from, s);
    if (!whole || (mma_has_mask<C>(run) && run->mask.dtype == 0))
        mma_hide_keys<C>(run, shared, row_warp, present, from, s);
    return unmasked;
}

#endif
