/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Online softmax: row maxima, rescaling, and P from scores. */
#ifndef ATTN_GPU_MMA_SOFTMAX_H
#define ATTN_GPU_MMA_SOFTMAX_H

#include "config.h"

/*
 * A lane's largest scores of its rows of a fragment, in base 2: as `factor` is positive, they are found
 * before it is applied.
 */
template <uint32_t columns>
GPU_INLINE void mma_fragment_max(const float (&s)[columns][4], const float factor[2], float tile_max[2])
{
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float other = s[0][2 * h + 1];
        tile_max[h] = s[0][2 * h];
        GPU_UNROLL
        for (uint32_t n = 1; n < columns; n++) {
            tile_max[h] = fmaxf(tile_max[h], s[n][2 * h]);
            other = fmaxf(other, s[n][2 * h + 1]);
        }
        tile_max[h] = fmaxf(tile_max[h], other) * factor[h];
    }
}

/* The same of all rows. */
template <class C>
GPU_INLINE void mma_row_max(mma_score_fragments<C> s, mma_row_pairs<C> factor, mma_row_pairs<C> tile_max)
{
    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++)
        mma_fragment_max(s[m], factor[m], tile_max[m]);
}

/* Whether a score is too far above the old maximum of a row. */
template <class C> GPU_INLINE bool mma_has_grown(const float tile_max[2], const float max[2])
{
    return tile_max[0] > max[0] + C::P_HEADROOM || tile_max[1] > max[1] + C::P_HEADROOM;
}

/* Raises the maxima of such rows of a fragment, and rescales their sums, by `correction`. */
template <class C>
GPU_INLINE void mma_raise_row_max(const float tile_max[2], float max[2], float sum[2], float correction[2])
{
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float new_max = fmaxf(tile_max[h], gpu_shuffle_xor_f32(tile_max[h], 1));
        new_max = fmaxf(new_max, gpu_shuffle_xor_f32(new_max, 2));
        const bool raised = new_max > max[h] + C::P_HEADROOM;
        correction[h] = raised ? gpu_exp2_fast(max[h] - new_max) : 1;
        sum[h] *= correction[h];
        max[h] = raised ? new_max : max[h];
    }
}

/* Rescales results. */
template <uint32_t columns>
GPU_INLINE void mma_rescale_rows(const float correction[2], float (&o)[columns][4])
{
    GPU_UNROLL
    for (uint32_t n = 0; n < columns; n++) {
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            o[n][e] *= correction[e / 2];
    }
}

/* Both. */
template <class C, uint32_t columns>
GPU_INLINE void mma_raise_max(const float tile_max[2], float max[2], float sum[2], float (&o)[columns][4])
{
    float correction[2];

    mma_raise_row_max<C>(tile_max, max, sum, correction);
    mma_rescale_rows(correction, o);
}

/*
 * Raises row maxima, and rescales sums and results so far. An exponent counts from its row's maximum, but an
 * old maximum serves as long as no score is more than P_HEADROOM above it: P is then at most 2^8,
 * which all types hold, whatever other rows do. Maxima seldom grow after the first tiles.
 */
template <class C>
GPU_INLINE void mma_rescale(mma_row_pairs<C> tile_max, mma_row_pairs<C> max, mma_row_pairs<C> sum,
                            mma_out_fragments<C> o)
{
    bool grown = false;

    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++)
        grown = grown || mma_has_grown<C>(tile_max[m], max[m]);
    if (gpu_ballot(grown) != 0) {
        GPU_UNROLL
        for (uint32_t m = 0; m < C::M_FRAGMENTS; m++)
            mma_raise_max<C>(tile_max[m], max[m], sum[m], o[m]);
    }
}

/* What exponents count from. */
GPU_INLINE float mma_exponent_base(float max)
{
    return max == -GPU_INFINITY ? 0 : max; /* NaN scores stay NaN */
}

/* P in place of the scores. */
template <class C>
GPU_INLINE void mma_exponentiate(mma_score_fragments<C> s, mma_row_pairs<C> max, mma_row_pairs<C> sum,
                                 mma_row_pairs<C> factor)
{
    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const float base = mma_exponent_base(max[m][h]);
            float total = C::KV32 ? 0 : sum[m][h], other = 0;
            GPU_UNROLL
            for (uint32_t n = 0; n < C::GROUP_KEYS / 8; n++) {
                GPU_UNROLL
                for (uint32_t e = 2 * h; e < 2 * h + 2; e++)
                    s[m][n][e] = gpu_exp2_fast(gpu_fma(s[m][n][e], factor[m][h], -base));
                total += s[m][n][2 * h];
                other += s[m][n][2 * h + 1];
            }
            sum[m][h] = C::KV32 ? sum[m][h] + (total + other) : total + other;
        }
    }
}

/*
 * Two numbers of P: word `i` of what a lane has of 16 keys, in fragment m. With 8-bit values P is `bf16`
 * where it is multiplied by the `scales` of single values.
 */
template <class C>
GPU_INLINE uint32_t mma_exponentiate_pair(bool bf16, mma_score_fragments<C> s, uint32_t k, uint32_t m,
                                          uint32_t i, mma_row_pairs<C> base, mma_row_pairs<C> sum,
                                          mma_row_pairs<C> factor, const float scales[4])
{
    const uint32_t n = 2 * k + i / 2, h = i % 2;
    float low = gpu_exp2_fast(gpu_fma(s[m][n][2 * h], factor[m][h], -base[m][h]));
    float high = gpu_exp2_fast(gpu_fma(s[m][n][2 * h + 1], factor[m][h], -base[m][h]));

    sum[m][h] += low + high;
    if (C::KV8 && bf16) {
        low *= scales[i / 2 * 2];
        high *= scales[i / 2 * 2 + 1];
    }
    return mma_pack(low, high, bf16);
}

#endif
