/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Partial results of splits in the split workspace, and how fragments of results become rows of numbers. */
#ifndef ATTN_GPU_MMA_PARTIAL_H
#define ATTN_GPU_MMA_PARTIAL_H

#include "config.h"

/* A row's partial result in the split workspace, and its maximum and sum. */
template <class C> GPU_INLINE float *mma_partial_out(const struct gpu_run *run, uint32_t split, uint32_t row)
{
    return (float *)run->partial_out + ((uint64_t)split * C::ROWS + row) * C::DV;
}

template <class C> GPU_INLINE float *mma_partial_lse(const struct gpu_run *run, uint32_t split, uint32_t row)
{
    return (float *)run->partial_lse + ((uint64_t)split * C::ROWS + row) * 2;
}

/* The sum of a row over the four lanes that have it. */
GPU_INLINE float mma_row_sum(float own)
{
    own += gpu_shuffle_xor_f32(own, 1);
    return own + gpu_shuffle_xor_f32(own, 2);
}

/* Writes what a lane has of a row, the upper or lower one of a fragment, to shared or global memory. */
template <class C>
GPU_INLINE void mma_write_row(float *row, uint32_t column_warp, const float o[C::WARP_DV / 8][4], uint32_t h)
{
    float *at = row + column_warp * C::WARP_DV + gpu_thread() % 4 * (C::KV32 ? 8 : C::CODES ? 4 : 2);

    GPU_UNROLL
    for (uint32_t n = 0; C::KV32 && n < C::DV / 4; n++)
        at[n / 8 * 32 + n % 8] = o[n / 8 * 4 + n % 4][2 * h + n / 4 % 2];
    GPU_UNROLL
    for (uint32_t n = 0; !C::KV32 && n < C::WARP_DV / 8; n += 2) {
        const float *even = &o[n][2 * h], *odd = &o[n + 1][2 * h];
        at[n * 8] = even[0];
        at[n * 8 + 1] = C::CODES ? odd[0] : even[1];
        at[n * 8 + (C::CODES ? 2 : 8)] = C::CODES ? even[1] : odd[0];
        at[n * 8 + (C::CODES ? 3 : 9)] = odd[1];
    }
}

/* The same of a row in the split workspace, 32 bytes of it by the lanes that have it. */
template <class C>
GPU_INLINE void mma_write_partial_row(float *row, uint32_t column_warp, const float o[C::WARP_DV / 8][4],
                                      uint32_t h)
{
    const uint64_t at = (uint64_t)(row + column_warp * C::WARP_DV + gpu_thread() % 4 * (C::CODES ? 4 : 2));

    GPU_UNROLL
    for (uint32_t n = 0; n < C::WARP_DV / 8; n += 2) {
        const float *even = &o[n][2 * h], *odd = &o[n + 1][2 * h];
        gpu_store_global_f32x2(at + n * 32, even[0], C::CODES ? odd[0] : even[1]);
        gpu_store_global_f32x2(at + n * 32 + (C::CODES ? 8 : 32), C::CODES ? even[1] : odd[0], odd[1]);
    }
}

/* Whether rows go straight from registers to the split workspace: warps have rows of their own. */
template <class C> GPU_INLINE bool mma_stores_partials(const struct gpu_work_tile *p)
{
    return C::GROUPS == 1 && p->splits > 1;
}

/* Stores all of a warp's rows that exist, `rows` in the tile, in the split workspace. */
template <class C>
GPU_INLINE void mma_store_partials(const struct gpu_run *run, const struct gpu_work_tile *p, uint32_t rows,
                                   uint32_t row_warp, uint32_t column_warp, mma_row_pairs<C> max,
                                   mma_row_pairs<C> sum, mma_out_fragments<C> o)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const uint32_t split = gpu_partial_index(p, p->split);

    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t row = (row_warp * C::M_FRAGMENTS + m) * 16 + h * 8 + lane / 4;
            const float row_sum = mma_row_sum(sum[m][h]);
            if (row >= rows)
                continue;
            if constexpr (C::KV32)
                mma_write_row<C>(mma_partial_out<C>(run, split, row), column_warp, o[m], h);
            else
                mma_write_partial_row<C>(mma_partial_out<C>(run, split, row), column_warp, o[m], h);
            if (lane % 4 == 0 && column_warp == 0) {
                float *lse = mma_partial_lse<C>(run, split, row);
                lse[0] = max[m][h];
                lse[1] = row_sum;
            }
        }
    }
}

#endif
