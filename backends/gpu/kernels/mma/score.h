/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Products of queries and keys by matrix instructions. */
#ifndef ATTN_GPU_MMA_SCORE_H
#define ATTN_GPU_MMA_SCORE_H

#include "load.h"
#include "tf32.h"

/* 16 rows of queries, columns kk * 16 and on. */
template <class C>
GPU_INLINE void mma_load_query_fragment(const unsigned char *queries, uint32_t first_row, uint32_t kk,
                                        uint32_t a[4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const uint32_t lane_offset = mma_swizzled<C>(lane % 16, lane / 16, C::DK * 2);

    gpu_load_matrix4(a, queries + mma_fragment_at<C>(lane_offset, first_row, kk * 2, C::DK * 2));
}

/* All queries into registers. */
template <class C> GPU_INLINE void mma_hold_queries(const unsigned char *queries, mma_query_fragments<C> q)
{
    GPU_UNROLL
    for (uint32_t kk = 0; kk < C::DK / 16; kk++)
        mma_load_query_fragment<C>(queries, 0, kk, q[kk][0]);
}

template <class C> GPU_INLINE void mma_clear_scores(mma_own_fragments<C> s)
{
    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t n = 0; n < C::WARP_KEYS / 8; n++)
            s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
    }
}

/* Queries of columns kk * 16 and on, from registers or shared memory. */
template <class C>
GPU_INLINE void mma_query_fragments_at(const unsigned char *queries, const mma_query_fragments<C> q,
                                       uint32_t row_warp, uint32_t kk, uint32_t a[C::M_FRAGMENTS][4])
{
    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        if constexpr (!C::Q_IN_REGISTERS)
            mma_load_query_fragment<C>(queries, (row_warp * C::M_FRAGMENTS + m) * 16, kk, a[m]);
        GPU_UNROLL
        for (uint32_t i = 0; C::Q_IN_REGISTERS && i < 4; i++)
            a[m][i] = q[kk][m][i];
    }
}

/*
 * Adds the products of columns kk * 16 and on. A load has 16 columns of 16 keys, of 8-bit codes 32 columns,
 * which `r` keeps for the next call. `dtype`: of 8-bit keys.
 */
template <class C>
GPU_INLINE void mma_add_products(uint32_t dtype, const unsigned char *keys, uint32_t lane_offset, uint32_t kk,
                                 uint32_t a[C::M_FRAGMENTS][4], uint32_t r[C::WARP_KEYS / 16][4],
                                 mma_own_fragments<C> s)
{
    GPU_UNROLL
    for (uint32_t n = 0; n < C::WARP_KEYS / 16; n++) {
        uint32_t b[2];
        if constexpr (!C::CODES)
            gpu_load_matrix4(r[n], keys + mma_fragment_at<C>(lane_offset, n * 16, kk * 2, C::K_ROW));
        else if (kk % 2 == 0)
            gpu_load_matrix4(r[n], keys + mma_fragment_at<C>(lane_offset, n * 16, kk, C::K_ROW));
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            if constexpr (C::CODES) {
                gpu_quad8(dtype, r[n][kk % 2 * 2 + h], b);
            } else {
                b[0] = r[n][2 * h];
                b[1] = r[n][2 * h + 1];
            }
            GPU_UNROLL
            for (uint32_t m = 0; m < C::M_FRAGMENTS; m++)
                mma_multiply(s[m][2 * n + h], a[m], b, C::BF16_MMA);
        }
    }
}

template <class C> GPU_INLINE void mma_add_scores(mma_own_fragments<C> s, mma_own_fragments<C> other)
{
    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t n = 0; n < C::WARP_KEYS / 8; n++) {
            GPU_UNROLL
            for (uint32_t e = 0; e < 4; e++)
                s[m][n][e] += other[m][n][e];
        }
    }
}

/* Adds sums to those before them, and starts again at 0. */
template <class C> GPU_INLINE void mma_move_scores(mma_own_fragments<C> to, mma_own_fragments<C> s)
{
    mma_add_scores<C>(to, s);
    mma_clear_scores<C>(s);
}

/*
 * Matrix units truncate sums: more than 128 columns are summed in two halves, or 128 at a time. Steps of 16
 * columns that make a sum.
 */
template <class C> constexpr uint32_t MMA_SUM_STEPS = C::DK > 256 ? 8 : C::DK > 128 ? C::DK / 32 : C::DK / 16;

/* Products of the warp's rows with its keys, while `copy` fills another stage. */
template <class C>
GPU_INLINE void mma_score_tile(uint32_t dtype, const unsigned char *queries, const unsigned char *keys,
                               uint32_t row_warp, mma_query_fragments<C> q, mma_own_fragments<C> s,
                               struct mma_copy *copy)
{
    constexpr uint32_t bytes = C::STAGES % 2 == 0 ? C::V_BYTES : C::K_BYTES;
    const uint32_t lane = gpu_thread() % GPU_WARP;
    /* With two stages, the values that are waited for next are copied. */
    const uint32_t interval = C::STAGES == 2 ? 2 : mma_step_interval<C>(C::DK / 16, bytes);
    const uint32_t lane_offset = C::CODES ? mma_swizzled<C>(lane % 16, lane / 16, C::K_ROW)
                                          : mma_swizzled<C>(lane / 16 * 8 + lane % 8, lane / 8 % 2, C::K_ROW);
    float low[C::M_FRAGMENTS][C::WARP_KEYS / 8][4];

    mma_clear_scores<C>(s);
    mma_clear_scores<C>(low);
    GPU_UNROLL
    for (uint32_t kk = 0; kk < C::DK / 16; kk++) {
        uint32_t a[C::M_FRAGMENTS][4], r[C::WARP_KEYS / 16][4];
        if (C::GROUPS == 1 && kk % interval == interval / 2 - 1 && kk / interval < mma_copy_steps<C>(bytes))
            mma_copy_read_addresses(copy, kk / interval);
        if (kk > 0 && kk % MMA_SUM_STEPS<C> == 0)
            mma_move_scores<C>(low, s);
        mma_query_fragments_at<C>(queries, q, row_warp, kk, a);
        mma_add_products<C>(dtype, keys, lane_offset, kk, a, r, s);
        if (C::GROUPS == 1 && kk % interval == interval / 2 && kk / interval < mma_copy_steps<C>(bytes))
            mma_copy_issue<C>(copy, bytes, kk / interval);
    }
    if constexpr (MMA_SUM_STEPS<C> < C::DK / 16)
        mma_add_scores<C>(s, low);
}

/* The same for 16-bit keys: the next matrices are loaded before the last ones are multiplied. */
template <class C>
GPU_INLINE void mma_score_pipelined(const unsigned char *queries, const unsigned char *keys,
                                    uint32_t row_warp, mma_own_fragments<C> s, struct mma_copy *copy)
{
    const uint32_t bytes = C::STAGES % 2 == 0 ? C::V_BYTES : C::K_BYTES;
    const uint32_t lane = gpu_thread() % GPU_WARP, blocks = C::WARP_KEYS / 16, steps = C::DK / 16 * blocks;
    const uint32_t interval = C::STAGES == 2 ? 2 : mma_step_interval<C>(C::DK / 16, bytes);
    const uint32_t lane_offset = mma_swizzled<C>(lane / 16 * 8 + lane % 8, lane / 8 % 2, C::K_ROW);
    uint32_t a[2][C::M_FRAGMENTS][4], r[2][4];
    float low[C::M_FRAGMENTS][C::WARP_KEYS / 8][4];

    mma_clear_scores<C>(s);
    mma_clear_scores<C>(low);
    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++)
        mma_load_query_fragment<C>(queries, (row_warp * C::M_FRAGMENTS + m) * 16, 0, a[0][m]);
    gpu_load_matrix4(r[0], keys + mma_fragment_at<C>(lane_offset, 0, 0, C::K_ROW));
    GPU_UNROLL
    for (uint32_t i = 0; i < steps; i++) {
        const uint32_t kk = i / blocks, n = i % blocks, next = i + 1;
        if (i > 0 && i % (MMA_SUM_STEPS<C> * blocks) == 0)
            mma_move_scores<C>(low, s);
        if (n == 0 && kk % interval == interval / 2 - 1 && kk / interval < mma_copy_steps<C>(bytes))
            mma_copy_read_addresses(copy, kk / interval);
        if (next < steps)
            gpu_load_matrix4(r[next % 2], keys + mma_fragment_at<C>(lane_offset, next % blocks * 16,
                                                                    next / blocks * 2, C::K_ROW));
        if (n + C::M_FRAGMENTS >= blocks && kk + 1 < C::DK / 16)
            mma_load_query_fragment<C>(queries,
                                       (row_warp * C::M_FRAGMENTS + n - (blocks - C::M_FRAGMENTS)) * 16,
                                       kk + 1, a[(kk + 1) % 2][n - (blocks - C::M_FRAGMENTS)]);
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            GPU_UNROLL
            for (uint32_t m = 0; m < C::M_FRAGMENTS; m++)
                mma_multiply(s[m][2 * n + h], a[kk % 2][m], r[i % 2] + 2 * h, C::BF16_MMA);
        }
        if (n + 1 == blocks && kk % interval == interval / 2 && kk / interval < mma_copy_steps<C>(bytes))
            mma_copy_issue<C>(copy, bytes, kk / interval);
    }
    if constexpr (MMA_SUM_STEPS<C> < C::DK / 16)
        mma_add_scores<C>(s, low);
}

/* Products of a tile, by code for each type of keys. */
template <class C>
GPU_INLINE void mma_scores(const struct gpu_run *run, const unsigned char *queries, const unsigned char *keys,
                           uint32_t row_warp, mma_query_fragments<C> q, mma_own_fragments<C> s,
                           struct mma_copy *copy)
{
    if constexpr (C::KV32)
        mma_scores_f32<C>(queries, keys, row_warp, s, copy);
    else if constexpr (C::GROUPS == 1 && !C::CODES && (C::DK <= 128 || C::WARP_KEYS == 32))
        mma_score_pipelined<C>(queries, keys, row_warp, s, copy);
    else if (!C::CODES || run->k.dtype == ATTN_E4M3)
        mma_score_tile<C>(ATTN_E4M3, queries, keys, row_warp, q, s, copy);
    else if (run->k.dtype == ATTN_E5M2)
        mma_score_tile<C>(ATTN_E5M2, queries, keys, row_warp, q, s, copy);
    else if (gpu_is_fnuz(run->k.dtype))
        mma_score_tile<C>(run->k.dtype, queries, keys, row_warp, q, s, copy);
    else
        mma_score_tile<C>(ATTN_INT8, queries, keys, row_warp, q, s, copy);
}

#endif
