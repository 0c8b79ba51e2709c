/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Soft cap, ALiBi and masks of the scores of a tile, where a key's number is its position and its column in
 * the mask. Other tiles take the general rules (mma_mask_elementwise).
 */
#ifndef ATTN_GPU_MMA_ELEMENTWISE_H
#define ATTN_GPU_MMA_ELEMENTWISE_H

#include "config.h"

/* Keys of other ranks have other positions, and a square mask covers only the last ones. */
GPU_INLINE bool mma_has_plain_keys(const struct gpu_run *run)
{
    return run->batch.cp_world == 0 && (run->mask.base == 0 || run->problem.span != ATTN_SPAN_SQUARE);
}

/* The row of a lane's scores [m][..][2 * h] and [2 * h + 1]. */
template <class C>
GPU_INLINE const struct gpu_row *mma_lane_row(const mma_shared<C> *shared, uint32_t row_warp, uint32_t m,
                                              uint32_t h)
{
    return &shared->row[(row_warp * C::M_FRAGMENTS + m) * 16 + gpu_thread() % GPU_WARP / 4 + h * 8];
}

/* Products in base 2, scaled and soft-capped. */
template <class C> GPU_INLINE void mma_scale_and_cap(float cap, float scale, mma_score_fragments<C> s)
{
    const float before = cap > 0 ? gpu_divide(scale, cap) : 1;
    const float after = (cap > 0 ? cap : scale) * GPU_LOG2E;

    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t n = 0; n < C::GROUP_KEYS / 8; n++) {
            GPU_UNROLL
            for (uint32_t e = 0; e < 4; e++)
                s[m][n][e] = (cap > 0 ? gpu_tanh_fast(s[m][n][e] * before) : s[m][n][e]) * after;
        }
    }
}

/*
 * Adds ALiBi. `from` is the first key. A multiplication and addition in one step rounds a large bias once, as
 * it is rounded anyway.
 */
template <class C>
GPU_INLINE void mma_add_alibi(const struct gpu_run *run, const mma_shared<C> *shared, uint32_t row_warp,
                              uint32_t from, mma_score_fragments<C> s)
{
    const bool distance = run->problem.alibi == ATTN_ALIBI_DISTANCE;
    const uint32_t key = from + gpu_thread() % 4 * 2;

    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const struct gpu_row *r = mma_lane_row<C>(shared, row_warp, m, h);
            const float slope = (float)r->slope * GPU_LOG2E, away = (float)((int64_t)key - r->position);
            GPU_UNROLL
            for (uint32_t n = 0; n < C::GROUP_KEYS / 8; n++) {
                GPU_UNROLL
                for (uint32_t e = 0; e < 2; e++) {
                    const float d = away + (float)(n * 8 + e);
                    s[m][n][2 * h + e] = gpu_fma(slope, distance && d > 0 ? -d : d, s[m][n][2 * h + e]);
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

/*
 * Adds the mask's values, times the row's slope with ALiBi of that kind; those that hide a key are -infinity.
 */
template <class C, uint32_t dtype>
GPU_INLINE void mma_add_mask_of(const struct gpu_run *run, const mma_shared<C> *shared, uint32_t row_warp,
                                uint32_t from, mma_score_fragments<C> s)
{
    constexpr uint32_t blocks = C::GROUP_KEYS / 8, ahead = blocks < 4 ? blocks : 4;
    const uint32_t key = from + gpu_thread() % 4 * 2;

    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const struct gpu_row *r = mma_lane_row<C>(shared, row_warp, m, h);
            const uint64_t at = r->mask + key * (uint64_t)GPU_SIZE(dtype);
            const bool aligned = ((uint32_t)at & (2 * GPU_SIZE(dtype) - 1)) == 0;
            const uint32_t columns = r->hi > r->lo && r->mask != 0 ? (uint32_t)r->columns : 0;
            const uint32_t left = columns > key ? columns - key : 0;
            const float factor =
                run->problem.alibi == ATTN_ALIBI_MASK ? (float)r->slope * GPU_LOG2E : GPU_LOG2E;
            GPU_UNROLL
            for (uint32_t first = 0; first < blocks; first += ahead) {
                uint64_t pair[ahead];
                GPU_UNROLL
                for (uint32_t i = 0; i < ahead; i++) /* loads are issued before the first is used */
                    pair[i] = mma_load_mask_pair<dtype>(at + (first + i) * (uint64_t)8 * GPU_SIZE(dtype),
                                                        left > (first + i) * 8 ? left - (first + i) * 8 : 0,
                                                        aligned);
                GPU_UNROLL
                for (uint32_t i = 0; i < ahead * 2; i++) {
                    float *x = &s[m][first + i / 2][2 * h + i % 2];
                    const float value = mma_mask_value<dtype>(pair[i / 2], i % 2);
                    *x = gpu_hides(dtype, value) ? -GPU_INFINITY : gpu_fma(value, factor, *x);
                }
            }
        }
    }
}

template <class C>
GPU_INLINE void mma_add_mask(const struct gpu_run *run, const mma_shared<C> *shared, uint32_t row_warp,
                             uint32_t from, mma_score_fragments<C> s)
{
    if (run->mask.dtype == ATTN_F16)
        mma_add_mask_of<C, ATTN_F16>(run, shared, row_warp, from, s);
    else if (run->mask.dtype == ATTN_BF16)
        mma_add_mask_of<C, ATTN_BF16>(run, shared, row_warp, from, s);
    else
        mma_add_mask_of<C, ATTN_F32>(run, shared, row_warp, from, s);
}

/* The mask's bits for the keys from `from` on, those of columns that exist. */
template <class C> GPU_INLINE uint64_t mma_mask_bits(const struct gpu_row *r, uint32_t from)
{
    const uint64_t bit = r->bit + from;
    const unsigned char *at = GPU_U8(r->mask + bit / 8);
    const int64_t end = r->columns - from + (int64_t)(bit % 8); /* counted from the first byte */
    uint32_t bytes[C::GROUP_KEYS / 8 + 1];
    uint64_t bits = 0;

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
    if (run->mask.base != 0 && run->mask.dtype == 0 && r->mask != 0)
        seen &= mma_mask_bits<C>(r, from);
    return seen;
}

/* Minus infinity for keys that rows do not see. */
template <class C>
GPU_INLINE void mma_hide_keys(const struct gpu_run *run, const mma_shared<C> *shared, uint32_t row_warp,
                              uint64_t present, uint32_t from, mma_score_fragments<C> s)
{
    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint64_t seen =
                mma_seen_keys<C>(run, mma_lane_row<C>(shared, row_warp, m, h), present, from) >>
                gpu_thread() % 4 * 2;
            GPU_UNROLL
            for (uint32_t n = 0; n < C::GROUP_KEYS / 8; n++) {
                GPU_UNROLL
                for (uint32_t e = 0; e < 2; e++)
                    if ((seen >> (n * 8 + e) & 1) == 0)
                        s[m][n][2 * h + e] = -GPU_INFINITY;
            }
        }
    }
}

/* Scores in base 2 from products. `unmasked`: every row sees every key, as far as no mask says otherwise. */
template <class C>
GPU_INLINE void mma_apply_elementwise(const struct gpu_run *run, const mma_shared<C> *shared,
                                      uint32_t row_warp, uint64_t present, uint32_t from, float scale,
                                      bool unmasked, mma_score_fragments<C> s)
{
    mma_scale_and_cap<C>(run->problem.softcap, scale, s);
    if (run->slopes != 0 && run->problem.alibi != ATTN_ALIBI_MASK)
        mma_add_alibi<C>(run, shared, row_warp, from, s);
    if (run->mask.base != 0 && run->mask.dtype != 0)
        mma_add_mask<C>(run, shared, row_warp, from, s);
    if (!unmasked)
        mma_hide_keys<C>(run, shared, row_warp, present, from, s);
}

#endif
