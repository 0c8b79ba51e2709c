/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scores of a tile: products of the queries of a wave with its keys. */
#ifndef ATTN_HIP_SCORE_H
#define ATTN_HIP_SCORE_H

#include "shared.h"

template <class Config, uint32_t blocks> GPU_INLINE void tile_clear_blocks(float (*s)[Config::acc_size])
{
    GPU_UNROLL
    for (uint32_t n = 0; n < blocks; n++) {
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::acc_size; i++)
            s[n][i] = 0;
    }
}

/* s + products with `blocks` blocks of 16 keys, over columns [16 * first, 16 * end). */
template <class Config, uint32_t blocks>
GPU_INLINE void tile_multiply_keys(const unsigned char *keys, const typename Config::fragment *q,
                                   uint32_t first, uint32_t end, float (*s)[Config::acc_size])
{
    using mma = typename Config::score_mma;

    GPU_UNROLL
    for (uint32_t k = first; k < end; k++) {
        typename mma::operand operand;
        tile_sched_barrier();
        mma::make_operand(&operand, &q[k]);
        GPU_UNROLL
        for (uint32_t n = 0; n < blocks; n++)
            mma::multiply_rows(s[n], keys + (n * 16 * Config::key_pitch + k * 32), Config::key_pitch,
                               &operand);
    }
}

/* Products with `blocks` blocks of 16 keys. Long sums lose more than a score may, so that more than 128
 * columns are summed in two. */
template <class Config, uint32_t blocks>
GPU_INLINE void tile_score_blocks(const unsigned char *keys, const typename Config::fragment *q,
                                  float (*s)[Config::acc_size])
{
    constexpr uint32_t all = Config::dk / 16, first = Config::dk > 128 ? all / 2 : all;

    tile_clear_blocks<Config, blocks>(s);
    tile_multiply_keys<Config, blocks>(keys, q, 0, first, s);
    if constexpr (first < all) {
        float rest[blocks][Config::acc_size];
        tile_clear_blocks<Config, blocks>(rest);
        tile_multiply_keys<Config, blocks>(keys, q, first, all, rest);
        GPU_UNROLL
        for (uint32_t n = 0; n < blocks; n++) {
            GPU_UNROLL
            for (uint32_t i = 0; i < Config::acc_size; i++)
                s[n][i] += rest[n][i];
        }
    }
}

/* Scores of the wave's rows with all of its keys, without scales. */
template <class Config>
GPU_INLINE void tile_score(const unsigned char *keys, const typename Config::fragment *q,
                           float (*s)[Config::acc_size])
{
    constexpr uint32_t blocks = Config::key_blocks;

    if constexpr (!Config::loop_products) {
        tile_score_blocks<Config, blocks>(keys, q, s);
    } else {
        /* Results are shifted in, so that no register is indexed. */
        tile_clear_blocks<Config, blocks>(s);
        GPU_LOOP
        for (uint32_t n = 0; n < blocks; n++) {
            float own[1][Config::acc_size];
            tile_score_blocks<Config, 1>(keys + n * 16 * Config::key_pitch, q, own);
            GPU_UNROLL
            for (uint32_t i = 0; i < Config::acc_size; i++) {
                GPU_UNROLL
                for (uint32_t j = 0; j + 1 < blocks; j++)
                    s[j][i] = s[j + 1][i];
                s[blocks - 1][i] = own[0][i];
            }
        }
    }
}

#endif
