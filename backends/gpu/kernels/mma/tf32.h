/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Scores and results of f32 queries, keys and values. Matrix instructions take tf32, which has 11 significant
 * bits, so each number is a high and a low part, and of their four products the three largest are summed:
 * what is left out is below 2^-22 of a product, and of either sign.
 *
 * Matrix instructions round sums towards zero, which would add up. So they add up few products, from zero,
 * the low parts first; longer sums are f32 additions.
 */
#ifndef ATTN_GPU_MMA_TF32_H
#define ATTN_GPU_MMA_TF32_H

#include "load.h"
#include "softmax.h"

constexpr uint32_t MMA_TF32_BITS = 0xffffe000u;

/* f32 numbers in two parts, of which the matrix instruction drops what is beyond tf32. */
template <uint32_t n> struct mma_parts {
    uint32_t high[n], low[n];
};

/*
 * The high part is rounded by the bits that are dropped, so that the low part has either sign. Numbers from
 * 2^128 - 2^116 on become infinite. NaN has a low part that is NaN.
 */
template <uint32_t n> GPU_INLINE void mma_part_of(mma_parts<n> *parts, uint32_t i, uint32_t bits)
{
    parts->high[i] = bits + 0x1000;
    parts->low[i] = gpu_f32_bits(gpu_f32_of_bits(bits) - gpu_f32_of_bits(parts->high[i] & MMA_TF32_BITS));
}

/* All steps of a copy at once: products take much longer than the copy. */
template <class C> GPU_INLINE void mma_copy_at_once(struct mma_copy *copy, uint32_t bytes)
{
    GPU_UNROLL
    for (uint32_t step = 0; C::GROUPS == 1 && !C::ANY && step < mma_copy_steps<C>(bytes); step++) {
        mma_copy_read_addresses(copy, step);
        mma_copy_issue<C>(copy, bytes, step);
    }
}

/*
 * Adds the products of 16 columns of twice eight keys. The order of columns is free: lane i of four has
 * columns 4 i to 4 i + 3, two for each of two instructions.
 */
GPU_INLINE void mma_add_scores_f32(const mma_parts<4> a[2], const struct gpu_u128 keys[2], float s[2][4])
{
    float sum[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    mma_parts<4> b[2];

    GPU_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        mma_part_of(&b[i / 4], i % 4, keys[i / 4].x[i % 4]);
    GPU_UNROLL
    for (uint32_t i = 0; i < 6; i++) { /* low and high, high and low, both high */
        const uint32_t pair = i < 4 ? i / 2 : i - 4;
        GPU_UNROLL
        for (uint32_t n = 0; n < 2; n++)
            gpu_mma_tf32(sum[n], i == 0 || i == 2 ? a[pair].low : a[pair].high,
                         (i == 1 || i == 3 ? b[n].low : b[n].high) + 2 * pair);
    }
    GPU_UNROLL
    for (uint32_t e = 0; e < 8; e++)
        s[e / 4][e % 4] += sum[e / 4][e % 4];
}

/* Products of queries and keys. Rows eight apart swizzle alike. */
template <class C>
GPU_INLINE void mma_scores_f32(const unsigned char *queries, const unsigned char *keys, uint32_t row_warp,
                               mma_score_fragments<C> s, struct mma_copy *copy)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, row = lane / 4, swizzle = mma_swizzle<C>(row, C::K_BYTES);

    GPU_UNROLL
    for (uint32_t n = 0; n < C::GROUP_KEYS / 8; n++)
        s[0][n][0] = s[0][n][1] = s[0][n][2] = s[0][n][3] = 0;
    mma_copy_at_once<C>(copy, C::V_BYTES);
    queries += (row_warp * 16 + row) * C::K_BYTES;
    keys += row * C::K_BYTES;
    GPU_LOOP
    for (uint32_t kk = 0; kk < C::DK / 16; kk++) {
        const uint32_t column = ((kk * 4 + lane % 4) ^ swizzle) * 16;
        mma_parts<4> a[2];
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const struct gpu_u128 q = gpu_load_u128(queries + h * 8 * C::K_BYTES + column);
            GPU_UNROLL
            for (uint32_t i = 0; i < 4; i++)
                mma_part_of(&a[i / 2], i % 2 * 2 + h, q.x[i]);
        }
        GPU_UNROLL
        for (uint32_t n = 0; n < C::GROUP_KEYS / 8; n += 2) {
            const struct gpu_u128 two[2] = {gpu_load_u128(keys + n * 8 * C::K_BYTES + column),
                                            gpu_load_u128(keys + (n + 1) * 8 * C::K_BYTES + column)};
            mma_add_scores_f32(a, two, &s[0][n]);
        }
    }
}

/*
 * P times V. The order of keys is free: a lane has P of two consecutive ones. So is that of columns: a lane
 * loads four consecutive ones of a value, which go to four instructions.
 */
template <class C>
GPU_INLINE void mma_values_f32(const unsigned char *values, mma_score_fragments<C> p, mma_out_fragments<C> o,
                               struct mma_copy *copy)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, key = lane % 4 * 2, chunk = lane / 4;
    const unsigned char *at[2];

    mma_copy_at_once<C>(copy, C::K_BYTES);
    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++)
        at[i] = values + mma_swizzled<C>(key + i, chunk, C::V_BYTES);
    GPU_UNROLL
    for (uint32_t j = 0; j < C::DV / 32; j++) {
        float sum[4][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}};
        GPU_UNROLL
        for (uint32_t k = 0; k < C::GROUP_KEYS / 8; k++) {
            struct gpu_u128 v[2];
            mma_parts<4> a;
            mma_parts<2> b[4];
            GPU_UNROLL
            for (uint32_t i = 0; i < 2; i++)
                v[i] = gpu_load_u128(at[i] + k * 8 * C::V_BYTES + j * 128);
            GPU_UNROLL
            for (uint32_t i = 0; i < 4; i++)
                mma_part_of(&a, i, gpu_f32_bits(p[0][k][i % 2 * 2 + i / 2]));
            GPU_UNROLL
            for (uint32_t i = 0; i < 8; i++)
                mma_part_of(&b[i / 2], i % 2, v[i % 2].x[i / 2]);
            GPU_UNROLL
            for (uint32_t i = 0; i < 12; i++)
                gpu_mma_tf32(sum[i % 4], i < 4 ? a.low : a.high, i / 4 == 1 ? b[i % 4].low : b[i % 4].high);
        }
        GPU_UNROLL
        for (uint32_t n = 0; n < 16; n++)
            o[0][4 * j + n / 4][n % 4] += sum[n / 4][n % 4];
    }
}

/*
 * Partial results of the spans of keys that are done. They are volatile to lie in local memory, because they
 * are needed once for each span, and registers for each tile.
 */
template <class C> struct mma_total {
    volatile float o[C::DV / 8][4];
    float max[2], sum[2];
};

template <class C> GPU_INLINE void mma_clear_total(mma_total<C> *total)
{
    GPU_UNROLL
    for (uint32_t i = 0; i < C::DV / 2; i++)
        total->o[i / 4][i % 4] = 0;
    total->max[0] = total->max[1] = -GPU_INFINITY;
    total->sum[0] = total->sum[1] = 0;
}

/* Adds the total to the results of a span. */
template <class C>
GPU_INLINE void mma_add_total(const mma_total<C> *total, const mma_row_pairs<C> max, mma_row_pairs<C> sum,
                              mma_out_fragments<C> o)
{
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const float from = total->max[h], to = max[0][h];
        const float correction = from == to ? 1 : gpu_exp2_fast(from - to);
        sum[0][h] += total->sum[h] * correction;
        GPU_UNROLL
        for (uint32_t i = 0; i < C::DV / 4; i++)
            o[0][i / 2][2 * h + i % 2] += total->o[i / 2][2 * h + i % 2] * correction;
    }
}

/* Ends a span: the total has its results, and the next one begins. */
template <class C>
GPU_INLINE void mma_end_span(mma_total<C> *total, const mma_row_pairs<C> max, mma_row_pairs<C> sum,
                             mma_out_fragments<C> o)
{
    mma_add_total<C>(total, max, sum, o);
    GPU_UNROLL
    for (uint32_t i = 0; i < C::DV / 2; i++) {
        total->o[i / 4][i % 4] = o[0][i / 4][i % 4];
        o[0][i / 4][i % 4] = 0;
    }
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        total->max[h] = max[0][h];
        total->sum[h] = sum[0][h];
        sum[0][h] = 0;
    }
}

#endif
