/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Soft cap, ALiBi and masks of the scores of a tile, where a key's number is its position and its column in
 * the mask. Other tiles take the general rules (mma_mask_elementwise).
 */
#ifndef ATTN_GPU_MMA_ELEMENTWISE_H
#define ATTN_GPU_MMA_ELEMENTWISE_H

#include "score-rules.h"

/* The row of a lane's scores [m][..][2 * h] and [2 * h + 1]. */
template <class C>
GPU_INLINE const struct gpu_row *mma_lane_row(const mma_shared<C> *shared, uint32_t row_warp, uint32_t m,
                                              uint32_t h)
{
    return &shared->row[(row_warp * C::M_FRAGMENTS + m) * 16 + gpu_thread() % GPU_WARP / 4 + h * 8];
}

/* Scores of a lane, and one of them. */
template <class C> constexpr uint32_t MMA_LANE_SCORES = C::GROUP_KEYS / 2 * C::M_FRAGMENTS;
template <class C> GPU_INLINE float *mma_score_at(mma_score_fragments<C> s, uint32_t i)
{
    return &s[i / (C::GROUP_KEYS / 2)][i / 4 % (C::GROUP_KEYS / 8)][i % 4];
}

/* tanh(MMA_CAP_STEP * y) for y below 2, whose bit 30 is 0: four terms of a series, to 2^-21.9 relative. The
 * multiprocessor computes few exponentials and inverses at a time, and softmax takes them all. */
GPU_INLINE float mma_small_tanh(float y)
{
    constexpr float step = MMA_CAP_STEP, square = step * step;
    const float z = y * y;
    float sum = -0.04602819381f * step * square * square * square;

    sum = gpu_fma(sum, z, 0.1323636905f * step * square * square);
    sum = gpu_fma(sum, z, -0.3332946719f * step * square);
    return y * gpu_fma(sum, z, 0.9999997567f * step);
}

/*
 * The same of any y. Eight scores at a time move through the first registers in a loop: all at once would
 * take registers from tiles of small ones.
 */
template <class C> GPU_INLINE void mma_cap_large(mma_score_fragments<C> s)
{
    constexpr uint32_t scores = MMA_LANE_SCORES<C>;

    GPU_LOOP
    for (uint32_t i = 0; i < scores; i += 8) {
        float x[8];
        GPU_UNROLL
        for (uint32_t e = 0; e < 8; e++) {
            const float y = *mma_score_at<C>(s, e);
            x[e] = fabsf(y) < 2 ? mma_small_tanh(y) : gpu_tanh_large(y * MMA_CAP_STEP);
        }
        GPU_UNROLL
        for (uint32_t j = 0; j + 8 < scores; j++)
            *mma_score_at<C>(s, j) = *mma_score_at<C>(s, j + 8);
        GPU_UNROLL
        for (uint32_t e = 0; e < 8; e++)
            *mma_score_at<C>(s, scores - 8 + e) = x[e];
    }
}

/* Soft-caps products, in the unit of the cap. Those of most tiles are small. */
template <class C> GPU_INLINE void mma_soft_cap(float factor, mma_score_fragments<C> s)
{
    uint32_t large = 0;

    GPU_UNROLL
    for (uint32_t i = 0; i < MMA_LANE_SCORES<C>; i++) {
        *mma_score_at<C>(s, i) *= factor;
        large |= gpu_f32_bits(*mma_score_at<C>(s, i));
    }
    if (gpu_ballot((large >> 30 & 1) != 0) == 0) {
        GPU_UNROLL
        for (uint32_t i = 0; i < MMA_LANE_SCORES<C>; i++)
            *mma_score_at<C>(s, i) = mma_small_tanh(*mma_score_at<C>(s, i));
        return;
    }
    mma_cap_large<C>(s);
}

/*
 * Adds ALiBi in the unit `bias`. `from` is the first key. A multiplication and addition in one step rounds a
 * large bias once, as it is rounded anyway.
 */
template <class C, bool distance>
GPU_INLINE void mma_add_alibi(const mma_shared<C> *shared, uint32_t row_warp, uint32_t from, float bias,
                              mma_score_fragments<C> s)
{
    const uint32_t key = from + gpu_thread() % 4 * 2;

    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const struct gpu_row *r = mma_lane_row<C>(shared, row_warp, m, h);
            const float slope = r->slope * bias;
            const float away = (float)(int32_t)(key - (uint32_t)r->position); /* it is not far */
            GPU_UNROLL
            for (uint32_t n = 0; n < C::GROUP_KEYS / 8; n++) {
                GPU_UNROLL
                for (uint32_t e = 0; e < 2; e++) {
                    const float d = away + (float)(n * 8 + e);
                    s[m][n][2 * h + e] = gpu_fma(slope, distance ? -fabsf(d) : d, s[m][n][2 * h + e]);
                }
            }
        }
    }
}

/* Two neighbouring values of an additive mask as they lie in memory, of which `count` exist: in one load
 * where pairs are `aligned`. What does not exist is 0. */
template <uint32_t dtype> GPU_INLINE uint64_t mma_load_mask_pair(uint64_t at, uint32_t count, bool aligned)
{
    constexpr uint32_t size = GPU_SIZE(dtype);
    uint32_t low = 0, high = 0;

    if (aligned && count > 1)
        return size == 2 ? *GPU_GLOBAL(const uint32_t, at) : *GPU_GLOBAL(const uint64_t, at);
    if (count > 0)
        low = size == 2 ? *GPU_GLOBAL(const uint16_t, at) : *GPU_GLOBAL(const uint32_t, at);
    if (count > 1)
        high = size == 2 ? *GPU_GLOBAL(const uint16_t, at + size) : *GPU_GLOBAL(const uint32_t, at + size);
    return size == 2 ? low | high << 16 : low | (uint64_t)high << 32;
}

/* One value of such a pair. */
template <uint32_t dtype> GPU_INLINE float mma_mask_value(uint64_t pair, uint32_t e)
{
    if (dtype == ATTN_F32)
        return gpu_f32_of_bits((uint32_t)(pair >> 32 * e));
    const uint16_t bits = (uint16_t)(pair >> 16 * e);
    return dtype == ATTN_F16 ? gpu_f16_to_f32(bits) : gpu_bf16_to_f32(bits);
}

/* A lane's values of a row of an additive mask. */
struct mma_mask_row {
    uint64_t at;
    uint32_t left; /* columns from there on */
    float factor;
};

template <class C, uint32_t dtype>
GPU_INLINE struct mma_mask_row mma_mask_row_of(const struct gpu_run *run, const struct gpu_row *r,
                                               uint32_t key, float bias)
{
    const uint32_t columns = r->mask != 0 ? (uint32_t)r->columns : 0;
    struct mma_mask_row row;

    row.at = r->mask + key * (uint64_t)GPU_SIZE(dtype);
    row.left = columns > key ? columns - key : 0;
    row.factor = run->problem.alibi == ATTN_ALIBI_MASK ? r->slope * bias : bias;
    return row;
}

/*
 * Adds the mask's values in the unit `bias`, times the row's slope with ALiBi of that kind; those that hide a
 * key are -infinity. Loads of all keys of two rows, or of f32 one, are issued before the first is used.
 */
template <class C, uint32_t dtype>
GPU_INLINE void mma_add_mask_of(const struct gpu_run *run, const mma_shared<C> *shared, uint32_t row_warp,
                                uint32_t from, float bias, mma_score_fragments<C> s)
{
    constexpr uint32_t blocks = C::GROUP_KEYS / 8, size = GPU_SIZE(dtype), rows = 4 / size;
    const uint32_t key = from + gpu_thread() % 4 * 2;

    GPU_UNROLL
    for (uint32_t first = 0; first < C::M_FRAGMENTS * 2; first += rows) {
        struct mma_mask_row row[rows];
        uint64_t pair[rows][blocks];
        bool whole = true;
        GPU_UNROLL
        for (uint32_t i = 0; i < rows; i++) {
            row[i] = mma_mask_row_of<C, dtype>(
                run, mma_lane_row<C>(shared, row_warp, (first + i) / 2, (first + i) % 2), key, bias);
            whole = whole && row[i].left >= C::GROUP_KEYS - 6 && ((uint32_t)row[i].at & (2 * size - 1)) == 0;
        }
        if (gpu_ballot(!whole) == 0) {
            GPU_UNROLL
            for (uint32_t i = 0; i < rows * blocks; i++)
                pair[i / blocks][i % blocks] = mma_load_mask_pair<dtype>(
                    row[i / blocks].at + i % blocks * (uint64_t)(8 * size), 2, true);
        } else {
            GPU_UNROLL
            for (uint32_t i = 0; i < rows * blocks; i++) {
                const uint32_t left = row[i / blocks].left, column = i % blocks * 8;
                pair[i / blocks][i % blocks] = mma_load_mask_pair<dtype>(
                    row[i / blocks].at + column * (uint64_t)size, left > column ? left - column : 0, false);
            }
        }
        GPU_UNROLL
        for (uint32_t i = 0; i < rows * blocks * 2; i++) {
            const uint32_t at = first + i / (blocks * 2), n = i / 2 % blocks;
            float *x = &s[at / 2][n][at % 2 * 2 + i % 2];
            const float value = mma_mask_value<dtype>(pair[at - first][n], i % 2);
            *x = gpu_hides(dtype, value) ? -GPU_INFINITY : gpu_fma(value, row[at - first].factor, *x);
        }
    }
}

template <class C>
GPU_INLINE void mma_add_mask(const struct gpu_run *run, const mma_shared<C> *shared, uint32_t row_warp,
                             uint32_t from, float bias, mma_score_fragments<C> s)
{
    if (run->mask.dtype == ATTN_F16)
        mma_add_mask_of<C, ATTN_F16>(run, shared, row_warp, from, bias, s);
    else if (run->mask.dtype == ATTN_BF16)
        mma_add_mask_of<C, ATTN_BF16>(run, shared, row_warp, from, bias, s);
    else
        mma_add_mask_of<C, ATTN_F32>(run, shared, row_warp, from, bias, s);
}

/* The mask's bits for the keys from `from` on, those of columns that exist. */
template <class C> GPU_INLINE uint64_t mma_mask_bits(const struct gpu_row *r, uint32_t from)
{
    const uint64_t bit = r->bit + from;
    const unsigned char *at = GPU_U8(r->mask + bit / 8);
    const int64_t end = r->columns - from + (int64_t)(bit % 8); /* counted from the first byte */
    uint32_t bytes[C::GROUP_KEYS / 8 + 1];
    uint64_t bits = 0;

    if (C::GROUP_KEYS == 64 && bit % 8 == 0 && ((uint32_t)(uint64_t)at & 3) == 0 && end >= 64)
        return *GPU_GLOBAL(const uint32_t, at) | (uint64_t)*GPU_GLOBAL(const uint32_t, at + 4) << 32;
    GPU_UNROLL
    for (uint32_t i = 0; i <= C::GROUP_KEYS / 8; i++) {
        bytes[i] = 0;
        if ((int64_t)i * 8 < end && (i < C::GROUP_KEYS / 8 || bit % 8 != 0))
            bytes[i] = at[i];
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < C::GROUP_KEYS / 8; i++)
        bits |= (uint64_t)((bytes[i] | bytes[i + 1] << 8) >> bit % 8 & 0xff) << 8 * i;
    return bits;
}

/* Which of the group's keys, from `from` on, a row sees: a bit for each. `present`: those that exist. */
template <class C>
GPU_INLINE uint64_t mma_seen_keys(const struct gpu_run *run, const struct gpu_row *r, uint64_t present,
                                  uint32_t from)
{
    const uint32_t lo = r->lo > from ? r->lo - from : 0, hi = r->hi > from ? r->hi - from : 0;
    uint64_t seen = present;

    if (lo >= hi || lo >= C::GROUP_KEYS)
        return 0;
    seen &= ~UINT64_C(0) << lo;
    if (hi < 64)
        seen &= (UINT64_C(1) << hi) - 1;
    if (mma_has_mask<C>(run) && run->mask.dtype == 0 && r->mask != 0)
        seen &= mma_mask_bits<C>(r, from);
    return seen;
}

/*
 * Minus infinity for keys that rows do not see. Each lane finds the keys of one row, in `seen`, and those of
 * its scores ask it.
 */
template <class C>
GPU_INLINE void mma_hide_keys(const struct gpu_run *run, const mma_shared<C> *shared, uint32_t row_warp,
                              uint64_t present, uint32_t from, mma_score_fragments<C> s)
{
    constexpr uint32_t rows = C::M_FRAGMENTS * 16;
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const uint64_t seen = mma_seen_keys<C>(run, &shared->row[row_warp * rows + lane % rows], present, from);

    if (gpu_ballot(seen != C::ALL_PRESENT) == 0)
        return;
    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint64_t own = gpu_shuffle_u64(seen, m * 16 + h * 8 + lane / 4) >> lane % 4 * 2;
            const uint32_t half[2] = {(uint32_t)own, (uint32_t)(own >> 32)};
            GPU_UNROLL
            for (uint32_t n = 0; n < C::GROUP_KEYS / 8; n++) {
                GPU_UNROLL
                for (uint32_t e = 0; e < 2; e++)
                    if ((half[n / 4] >> (n % 4 * 8 + e) & 1) == 0)
                        s[m][n][2 * h + e] = -GPU_INFINITY;
            }
        }
    }
}

/* Soft cap, ALiBi and masks of values. One rule alone, which is what most have, passes few branches. */
template <class C>
GPU_INLINE void mma_apply_elementwise(const struct gpu_run *run, const mma_shared<C> *shared,
                                      const struct mma_rules *rules, uint32_t row_warp, uint32_t from,
                                      mma_score_fragments<C> s)
{
    const uint32_t kinds = rules->elementwise;

    if ((kinds & MMA_SOFT_CAP) != 0)
        mma_soft_cap<C>(rules->cap_factor, s);
    if ((kinds & ~MMA_SOFT_CAP) == 0)
        return;
    if ((kinds & MMA_UNIT_FIRST) != 0) {
        const float unit = (kinds & MMA_SOFT_CAP) != 0 ? run->problem.softcap : rules->scale;
        GPU_UNROLL
        for (uint32_t i = 0; i < MMA_LANE_SCORES<C>; i++)
            *mma_score_at<C>(s, i) *= unit * GPU_LOG2E;
    }
    if ((kinds & MMA_MASK) != 0)
        mma_add_mask<C>(run, shared, row_warp, from, rules->bias, s);
    if ((kinds & MMA_ALIBI) == 0)
        return;
    if (run->problem.alibi == ATTN_ALIBI_DISTANCE)
        mma_add_alibi<C, true>(shared, row_warp, from, rules->bias, s);
    else
        mma_add_alibi<C, false>(shared, row_warp, from, rules->bias, s);
}

#endif
