/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Products of a warp group, four warps that multiply matrices of shared memory together (Hopper). A lane has
 * the accumulators that it has of m16n8k16, so all else is the same for both: rules, softmax, results. Each
 * fragment of rows has a product of its own, which goes on while P of the other one is computed.
 */
#ifndef ATTN_GPU_MMA_WGMMA_H
#define ATTN_GPU_MMA_WGMMA_H

#include "load.h"
#include "softmax.h"

/* Begins the products of the CTA's rows with the keys of a tile. */
template <class C>
GPU_INLINE void mma_begin_products(const unsigned char *queries, const unsigned char *keys,
                                   mma_own_fragments<C> s)
{
    gpu_wgmma_begin();
    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t kk = 0; kk < C::DK / 16; kk++) {
            const uint32_t at = kk / 4 * MMA_BLOCK_BYTES + kk % 4 * 32;
            gpu_wgmma_rows<C::BF16_MMA>(s[m], queries + m * 64 * C::K_ROW + at, keys + at, kk != 0);
        }
        gpu_wgmma_commit();
    }
}

/* Waits for all products but the latest `n` groups; those of fragment m are done. */
template <class C, uint32_t n> GPU_INLINE void mma_wait_products(uint32_t m, mma_own_fragments<C> s)
{
    gpu_wgmma_wait<n>();
    gpu_wgmma_keep(s[m]);
}

/* P of a fragment from its scores. `bf16`: P is bf16, and with 8-bit values multiplied by `scales`. */
template <class C, bool bf16>
GPU_INLINE void mma_fragment_exponents(const float *scales, uint32_t m, mma_score_fragments<C> s,
                                       mma_row_pairs<C> max, mma_row_pairs<C> sum, mma_row_pairs<C> factor,
                                       uint32_t a[C::GROUP_KEYS / 16][4])
{
    mma_row_pairs<C> base;

    base[m][0] = mma_exponent_base(max[m][0]);
    base[m][1] = mma_exponent_base(max[m][1]);
    GPU_UNROLL
    for (uint32_t k = 0; k < C::GROUP_KEYS / 16; k++) {
        float scale[4] = {1, 1, 1, 1};
        if (C::KV8 && bf16)
            mma_load_scales(scales, k, scale);
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            a[k][i] = mma_exponentiate_pair<C>(bf16, s, k, m, i, base, sum, factor, scale);
    }
}

/* The same behind its new row maxima, by code for each type of P. */
template <class C>
GPU_INLINE void mma_fragment_softmax(bool bf16, const float *scales, uint32_t m, mma_score_fragments<C> s,
                                     mma_row_pairs<C> max, mma_row_pairs<C> sum, mma_row_pairs<C> factor,
                                     mma_out_fragments<C> o, uint32_t a[C::GROUP_KEYS / 16][4])
{
    float tile_max[2];

    mma_fragment_max(s[m], factor[m], tile_max);
    if (gpu_ballot(mma_has_grown(tile_max, max[m])) != 0)
        mma_raise_max(tile_max, max[m], sum[m], o[m]);
    if (C::KV8 && bf16)
        mma_fragment_exponents<C, true>(scales, m, s, max, sum, factor, a);
    else
        mma_fragment_exponents<C, C::BF16_MMA>(scales, m, s, max, sum, factor, a);
}

/* Begins the product of a fragment's P with the values of a tile, by code for each type of P. */
template <class C>
GPU_INLINE void mma_begin_results(bool bf16, const unsigned char *values,
                                  const uint32_t a[C::GROUP_KEYS / 16][4], float (&o)[C::WARP_DV / 8][4])
{
    gpu_wgmma_keep(o);
    gpu_wgmma_begin();
    if (C::KV8 && bf16) {
        GPU_UNROLL
        for (uint32_t k = 0; k < C::GROUP_KEYS / 16; k++)
            gpu_wgmma_columns<true>(o, a[k], values + k * 16 * 128);
    } else {
        GPU_UNROLL
        for (uint32_t k = 0; k < C::GROUP_KEYS / 16; k++)
            gpu_wgmma_columns<C::BF16_MMA>(o, a[k], values + k * 16 * 128);
    }
    gpu_wgmma_commit();
}

/* All that is left of a copy. */
template <class C> GPU_INLINE void mma_copy_rest(struct mma_copy *copy, uint32_t bytes)
{
    GPU_UNROLL
    for (uint32_t step = 0; step < mma_copy_steps<C>(bytes); step++) {
        mma_copy_read_addresses(copy, step);
        mma_copy_issue<C>(copy, bytes, step);
    }
    gpu_copy_commit();
}

#endif
