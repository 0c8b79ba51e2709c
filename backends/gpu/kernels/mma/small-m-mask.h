/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Small M: soft cap, ALiBi, masks, and keys that a row does not see. */
#ifndef ATTN_GPU_MMA_SMALL_M_MASK_H
#define ATTN_GPU_MMA_SMALL_M_MASK_H

#include "mask.h"

template <class C> using small_m_score_fragments = float[C::GROUP_KEYS / 16][4];

/* Undoes the scaling of a query row in its scores. */
template <class C> GPU_INLINE float small_m_unscale(const mma_shared<C> *shared, uint32_t row)
{
    return C::Q_SCALED ? mma_q_scale<C>(shared, row) : 1;
}

/* Minus infinity for keys that a row does not see or that do not exist. */
template <class C>
GPU_INLINE void small_m_mask_scores(const mma_shared<C> *shared, uint32_t present, uint32_t from,
                                    small_m_score_fragments<C> s)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    present >>= lane / 4;
    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        const struct gpu_row *r = &shared->row[lane % 4 * 2 + e];
        const uint32_t lo = r->lo, count = r->hi > lo ? r->hi - lo : 0, at = from + lane / 4 - lo;
        GPU_UNROLL
        for (uint32_t i = 0; i < C::GROUP_KEYS / 8; i++)
            if (at + i * 8 >= count || (present >> i * 8 & 1) == 0)
                s[i / 2][i % 2 * 2 + e] = -GPU_INFINITY;
    }
}

/*
 * Applies soft cap, ALiBi and masks to each score of the warp. Four scores at a time move through the first
 * registers in a loop, so that this code exists only four times.
 */
template <class C>
GPU_INLINE void small_m_mask_any(const struct gpu_run *run, const mma_shared<C> *shared, uint32_t slot,
                                 uint32_t tile, float scale, small_m_score_fragments<C> s)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, blocks = C::GROUP_KEYS / 16;

    GPU_LOOP
    for (uint32_t i = 0; i < blocks; i++) {
        float x[4];
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            x[e] = mma_masked_score<C>(run, shared, slot, lane % 4 * 2 + e % 2, tile,
                                       i * 16 + lane / 4 + e / 2 * 8,
                                       s[0][e] * small_m_unscale<C>(shared, lane % 4 * 2 + e % 2) * scale);
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++) {
            GPU_UNROLL
            for (uint32_t j = 0; j + 1 < blocks; j++)
                s[j][e] = s[j + 1][e];
            s[blocks - 1][e] = x[e];
        }
    }
}

/* Which of a lane's keys of an iteration a row sees, a bit for each; the first is `key`, eight lie between
 * two. */
template <class C>
GPU_INLINE uint32_t small_m_seen_keys(const struct gpu_run *run, const struct gpu_row *r, uint32_t present,
                                      uint32_t key)
{
    const uint64_t bit = C::RULES ? r->bit + key : 0;
    const unsigned char *bytes = C::RULES ? GPU_U8(r->mask + bit / 8) : NULL;
    const bool bits = mma_has_mask<C>(run) && r->mask != 0 && run->mask.dtype == 0;
    const uint32_t count = r->hi > r->lo ? r->hi - r->lo : 0;
    uint32_t seen = 0, byte[C::GROUP_KEYS / 8];

    GPU_UNROLL
    for (uint32_t i = 0; i < C::GROUP_KEYS / 8; i++) {
        const bool inside = key + i * 8 - r->lo < count && (present >> i * 8 & 1) != 0;
        seen |= (uint32_t)inside << i;
        byte[i] = 0xff;
        if (bits && inside)
            byte[i] = bytes[i];
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < C::GROUP_KEYS / 8; i++)
        if ((byte[i] >> bit % 8 & 1) == 0)
            seen &= ~(1u << i);
    return seen;
}

/* Values of an additive mask for these keys. Those that hide a key leave it no more seen. */
template <class C, uint32_t dtype>
GPU_INLINE void small_m_load_mask(const struct gpu_row *r, uint32_t key, uint32_t *seen,
                                  float values[C::GROUP_KEYS / 8])
{
    const unsigned char *at = GPU_U8(r->mask + key * (uint64_t)GPU_SIZE(dtype));
    const uint32_t exist = r->mask != 0 ? *seen : 0;

    GPU_UNROLL
    for (uint32_t i = 0; i < C::GROUP_KEYS / 8; i++)
        values[i] = (exist >> i & 1) != 0 ? gpu_load(dtype, at + i * 8 * GPU_SIZE(dtype)) : 0;
    GPU_UNROLL
    for (uint32_t i = 0; i < C::GROUP_KEYS / 8; i++)
        if (gpu_hides(dtype, values[i]))
            *seen &= ~(1u << i);
}

template <class C>
GPU_INLINE void small_m_mask_values(const struct gpu_run *run, const struct gpu_row *r, uint32_t key,
                                    uint32_t *seen, float values[C::GROUP_KEYS / 8])
{
    if (run->mask.dtype == ATTN_F16)
        small_m_load_mask<C, ATTN_F16>(r, key, seen, values);
    else if (run->mask.dtype == ATTN_BF16)
        small_m_load_mask<C, ATTN_BF16>(r, key, seen, values);
    else
        small_m_load_mask<C, ATTN_F32>(r, key, seen, values);
}

/*
 * Scores in base 2 of one of a lane's rows, where a key's number is its position and its column in the mask.
 * A multiplication and addition in one step rounds a large bias once, as it is rounded anyway.
 */
template <class C>
GPU_INLINE void small_m_mask_row(const struct gpu_run *run, const struct gpu_row *r, uint32_t present,
                                 uint32_t key, uint32_t e, float scale, small_m_score_fragments<C> s)
{
    const float cap = mma_softcap<C>(run), slope = C::RULES ? r->slope * GPU_LOG2E : 0;
    const bool mask_slope = run->problem.alibi == ATTN_ALIBI_MASK;
    const float away = C::RULES ? (float)((int64_t)key - r->position) : 0;
    uint32_t seen = small_m_seen_keys<C>(run, r, present, key);
    float values[C::GROUP_KEYS / 8];

    if (mma_has_mask<C>(run) && run->mask.dtype != 0)
        small_m_mask_values<C>(run, r, key, &seen, values);
    GPU_UNROLL
    for (uint32_t i = 0; i < C::GROUP_KEYS / 8; i++) {
        float *x = &s[i / 2][i % 2 * 2 + e];
        *x *= scale;
        if (cap > 0)
            *x = cap * gpu_tanh(*x / cap);
        *x *= GPU_LOG2E;
        if (mma_has_mask<C>(run) && run->mask.dtype != 0)
            *x = gpu_fma(values[i], mask_slope ? slope : GPU_LOG2E, *x);
        if (mma_has_slopes<C>(run) && !mask_slope) {
            const float key_away = away + (float)(i * 8);
            const bool back = run->problem.alibi == ATTN_ALIBI_DISTANCE && key_away > 0;
            *x = gpu_fma(slope, back ? -key_away : key_away, *x);
        }
        if ((seen >> i & 1) == 0)
            *x = -GPU_INFINITY;
    }
}

/* Applies soft cap, ALiBi and masks. True if every row sees all keys of the group. */
template <class C>
GPU_INLINE bool small_m_mask_elementwise(const struct gpu_run *run, const mma_shared<C> *shared,
                                         uint32_t present, uint32_t slot, uint32_t tile, float scale,
                                         small_m_score_fragments<C> s)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, rows = shared->sequence.q_len * run->group;
    bool hidden = false;

    if (!mma_has_plain_keys<C>(run)) {
        small_m_mask_any<C>(run, shared, slot, tile, scale, s);
        return false;
    }
    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        const uint32_t row = lane % 4 * 2 + e;
        small_m_mask_row<C>(run, &shared->row[row], present >> lane / 4, tile * C::UNIT_KEYS + lane / 4, e,
                            small_m_unscale<C>(shared, row) * scale, s);
        GPU_UNROLL
        for (uint32_t i = 0; i < C::GROUP_KEYS / 8; i++)
            hidden = hidden || (row < rows && s[i / 2][i % 2 * 2 + e] == -GPU_INFINITY);
    }
    return gpu_ballot(hidden) == 0;
}

#endif
