/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Scores of warps that have the same rows and a part each of the columns of values: each computes those of a
 * part of the keys and reads the others, in f32, so that all have the same P and row sums.
 */
#ifndef ATTN_GPU_MMA_EXCHANGE_H
#define ATTN_GPU_MMA_EXCHANGE_H

#include "config.h"

/* What lane `lane` of a warp has of fragment n of m: four numbers. */
template <class C>
GPU_INLINE unsigned char *mma_exchange_at(unsigned char *exchange, uint32_t warp, uint32_t m, uint32_t n)
{
    const uint32_t fragment = (warp * C::M_FRAGMENTS + m) * (C::WARP_KEYS / 8) + n;

    return exchange + (fragment * GPU_WARP + gpu_thread() % GPU_WARP) * 16;
}

/* Writes a warp's scores. A barrier follows. */
template <class C> GPU_INLINE void mma_send_scores(unsigned char *exchange, const mma_own_fragments<C> own)
{
    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t n = 0; n < C::WARP_KEYS / 8; n++) {
            const float *x = own[m][n];
            const struct gpu_u128 four = {
                {gpu_f32_bits(x[0]), gpu_f32_bits(x[1]), gpu_f32_bits(x[2]), gpu_f32_bits(x[3])}};
            gpu_store_u128(mma_exchange_at<C>(exchange, gpu_thread() / GPU_WARP, m, n), four);
        }
    }
}

/* The scores of all keys: the warp's own ones, and those that the others have written. */
template <class C>
GPU_INLINE void mma_receive_scores(unsigned char *exchange, uint32_t row_warp, uint32_t column_warp,
                                   const mma_own_fragments<C> own, mma_score_fragments<C> s)
{
    constexpr uint32_t blocks = C::WARP_KEYS / 8;

    GPU_UNROLL
    for (uint32_t i = 0; i < C::M_FRAGMENTS * (C::GROUP_KEYS / 8); i++) {
        const uint32_t m = i / (C::GROUP_KEYS / 8), n = i % (C::GROUP_KEYS / 8), from = n / blocks;
        struct gpu_u128 four;
        if (from != column_warp)
            four =
                gpu_load_u128(mma_exchange_at<C>(exchange, row_warp * C::COLUMN_WARPS + from, m, n % blocks));
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            s[m][n][e] = from == column_warp ? own[m][n % blocks][e] : gpu_f32_of_bits(four.x[e]);
    }
}

#endif
