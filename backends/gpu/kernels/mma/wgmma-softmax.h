/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a warp that multiplies keeps from one KV iteration to the next, and softmax of an iteration: P from
 * its scores, as an operand, and the sums that go with it. */
#ifndef ATTN_GPU_MMA_WGMMA_SOFTMAX_H
#define ATTN_GPU_MMA_WGMMA_SOFTMAX_H

#include "wgmma.h"

/* What a warp keeps in registers from one KV iteration to the next. */
template <class C> struct mma_consumer {
    mma_out_fragments<C> o;
    mma_row_pairs<C> max, sum, factor;
    mma_iteration_p<C> p;         /* of the iteration whose results are next */
    float aside_max[2];           /* e4m3: maxima when results were set aside */
    const unsigned char *queries; /* of the warp group */
    uint32_t row_warp;
    uint32_t begin, end;             /* uses of the buffers by the work tile */
    uint32_t plain_begin, plain_end; /* of these, the ones whose products no rule changes */
};

template <class C> GPU_INLINE void mma_clear_consumer(mma_consumer<C> *own)
{
    own->max[0][0] = own->max[0][1] = -GPU_INFINITY;
    own->sum[0][0] = own->sum[0][1] = 0;
    own->aside_max[0] = own->aside_max[1] = -GPU_INFINITY;
    GPU_UNROLL
    for (uint32_t n = 0; n < C::OUT_FRAGMENTS; n++)
        own->o[0][n][0] = own->o[0][n][1] = own->o[0][n][2] = own->o[0][n][3] = 0;
}

/* The exponents of a row that a lane has in each fragment, the upper or the lower one. */
template <class C>
GPU_INLINE void mma_exponentiate_row(mma_consumer<C> *own, uint32_t h, float offset,
                                     mma_iteration_scores<C> s)
{
    const float base = mma_exponent_base(own->max[0][h]) - offset, factor = own->factor[0][h];

    GPU_UNROLL
    for (uint32_t n = 0; n < C::KEYS / 8; n++) {
        GPU_UNROLL
        for (uint32_t e = 2 * h; e < 2 * h + 2; e++)
            s[n / 8][0][n % 8][e] = gpu_exp2_fast(gpu_fma(s[n / 8][0][n % 8][e], factor, -base));
    }
}

/* The sum of them in a row, when all have been computed: a warp waits for each. */
template <class C> GPU_INLINE float mma_sum_row(uint32_t h, mma_iteration_scores<C> s)
{
    float sum[4] = {0, 0, 0, 0};

    GPU_UNROLL
    for (uint32_t n = 0; n < C::KEYS / 8; n++) {
        sum[n % 2 * 2] += s[n / 8][0][n % 8][2 * h];
        sum[n % 2 * 2 + 1] += s[n / 8][0][n % 8][2 * h + 1];
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* P in place of scores. True if row maxima have risen: results so far are to be multiplied by `correction`,
 * but only when those before are done, for which all warps of a group wait at one place. */
template <class C>
GPU_INLINE bool mma_softmax_iteration(mma_consumer<C> *own, mma_iteration_scores<C> s, const float offset[2],
                                      float correction[2])
{
    float tile_max[2] = {-GPU_INFINITY, -GPU_INFINITY};

    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++) {
        float one[2];
        mma_fragment_max(s[t][0], own->factor[0], one);
        tile_max[0] = fmaxf(tile_max[0], one[0]);
        tile_max[1] = fmaxf(tile_max[1], one[1]);
    }
    tile_max[0] += offset[0] - C::P_EXPONENT;
    tile_max[1] += offset[1] - C::P_EXPONENT;
    const bool grown = gpu_ballot(mma_has_grown<C>(tile_max, own->max[0])) != 0;
    if (grown)
        mma_raise_row_max<C>(tile_max, own->max[0], own->sum[0], correction);
    mma_exponentiate_row<C>(own, 0, offset[0], s);
    mma_exponentiate_row<C>(own, 1, offset[1], s);
    if constexpr (!C::E4M3) { /* there a column of values does it */
        own->sum[0][0] += mma_sum_row<C>(0, s);
        own->sum[0][1] += mma_sum_row<C>(1, s);
    }
    return grown;
}

/* Whether each row of the warp has a maximum, from which exponents can count. */
template <class C> GPU_INLINE bool mma_knows_maxima(const mma_consumer<C> *own)
{
    return gpu_ballot(own->max[0][0] == -GPU_INFINITY || own->max[0][1] == -GPU_INFINITY) == 0;
}

/* The largest of them. */
template <class C> GPU_INLINE float mma_largest_p(uint32_t h, mma_iteration_scores<C> s)
{
    float most[2] = {0, 0};

    GPU_UNROLL
    for (uint32_t n = 0; n < C::KEYS / 8; n++)
        most[n % 2] =
            gpu_max3_positive(most[n % 2], s[n / 8][0][n % 8][2 * h], s[n / 8][0][n % 8][2 * h + 1]);
    return fmaxf(most[0], most[1]);
}

/* Where nobody has looked for the largest score: what a lane's P of a row and an iteration may add up to, and
 * of e4m3 where the largest ends, from which on it would become the last code, 448. */
constexpr float MMA_P_SUM_LIMIT = 4096, MMA_P_LIMIT_E4M3 = 432;

/* Raises the maximum of a row whose P are too large, by a power of two: P, its sums, and by `correction`
 * results so far are exact. What has become infinite cannot be mended. */
template <class C>
GPU_INLINE bool mma_lower_p(mma_consumer<C> *own, uint32_t h, mma_iteration_scores<C> s, float *sum,
                            float *correction)
{
    float most = 1;

    GPU_UNROLL
    for (uint32_t n = 0; n < C::KEYS / 8; n++)
        most = fmaxf(most, fmaxf(s[n / 8][0][n % 8][2 * h], s[n / 8][0][n % 8][2 * h + 1]));
    most = fmaxf(most, gpu_shuffle_xor_f32(most, 1));
    most = fmaxf(most, gpu_shuffle_xor_f32(most, 2));
    const bool infinite = most == GPU_INFINITY, lost = infinite || *sum == GPU_INFINITY;
    const uint32_t most_exponent = (gpu_f32_bits(most) >> 23) - 127;
    /* 2^-127 would be 0 where subnormal numbers are. */
    uint32_t exponent = infinite ? 0 : most_exponent < 126 ? most_exponent : 126;
    if constexpr (C::E4M3) /* only what has no code, to what the largest is at first */
        exponent = most < MMA_P_LIMIT_E4M3 || infinite ? 0 : exponent - (uint32_t)C::P_EXPONENT;
    const float scale = gpu_f32_of_bits((127 - exponent) << 23);
    own->max[0][h] += (float)exponent;
    own->sum[0][h] *= scale;
    *sum *= scale;
    *correction = scale;
    GPU_UNROLL
    for (uint32_t n = 0; n < C::KEYS / 8; n++) {
        s[n / 8][0][n % 8][2 * h] *= scale;
        s[n / 8][0][n % 8][2 * h + 1] *= scale;
    }
    return lost;
}

/*
 * The same where maxima are known: exponents count from what they are, and P tells by its sum, or of e4m3 by
 * its largest, whether a score is too far above. The largest scores are not looked for, which all exponents
 * would wait for. A score 2^128 times as large makes an infinite P, or several of them a sum: the work tile
 * is computed once more then.
 */
template <class C>
GPU_INLINE bool mma_softmax_known(mma_shared<C> *shared, mma_consumer<C> *own, mma_iteration_scores<C> s,
                                  float correction[2])
{
    float sum[2] = {0, 0};
    bool fits;

    mma_exponentiate_row<C>(own, 0, 0, s);
    mma_exponentiate_row<C>(own, 1, 0, s);
    if constexpr (C::E4M3) { /* a column of values has sums */
        fits = mma_largest_p<C>(0, s) < MMA_P_LIMIT_E4M3 && mma_largest_p<C>(1, s) < MMA_P_LIMIT_E4M3;
    } else {
        sum[0] = mma_sum_row<C>(0, s);
        sum[1] = mma_sum_row<C>(1, s);
        fits = sum[0] <= MMA_P_SUM_LIMIT && sum[1] <= MMA_P_SUM_LIMIT;
    }
    const bool grown = gpu_ballot(!fits) != 0;
    if (grown) {
        bool infinite = false;
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++)
            infinite |= mma_lower_p<C>(own, h, s, &sum[h], &correction[h]);
        if (infinite)
            shared->handover.overflow[own->row_warp] = 1;
    }
    own->sum[0][0] += sum[0];
    own->sum[0][1] += sum[1];
    return grown;
}

/* P as an operand in e4m3. Of 32 keys a lane has two of each eight; the order in which it has them is that of
 * values in the workspace (convert-e4m3-kernel.h). */
template <class C> GPU_INLINE void mma_pack_iteration_e4m3(mma_iteration_scores<C> s, mma_iteration_p<C> p)
{
    GPU_UNROLL
    for (uint32_t k = 0; k < C::KEYS / 32; k++) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t n = k % 2 * 4 + i / 2 * 2, h = i % 2;
            const float(*pair)[4] = &s[k / 2][0][n];
            p[k][i] = gpu_pack_e4m3(pair[0][2 * h], pair[0][2 * h + 1], pair[1][2 * h], pair[1][2 * h + 1]);
        }
    }
}

/* P as an operand. With 8-bit values it is `bf16` where it is multiplied by the `scales` of single values. */
template <class C>
GPU_INLINE void mma_pack_iteration(bool bf16, const float *scales, mma_iteration_scores<C> s,
                                   mma_iteration_p<C> p)
{
    GPU_UNROLL
    for (uint32_t k = 0; k < C::KEYS / 16; k++) {
        float scale[4] = {1, 1, 1, 1};
        if (C::KV8 && bf16)
            mma_load_scales(scales, k, scale);
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const float *pair = &s[k / 4][0][k % 4 * 2 + i / 2][i % 2 * 2];
            p[k][i] = mma_pack(pair[0] * scale[i / 2 * 2], pair[1] * scale[i / 2 * 2 + 1], bf16);
        }
    }
}

/* Where a lane sets its results aside. */
template <class C> GPU_INLINE unsigned char *mma_aside_of(const struct gpu_run *run, uint32_t row_warp)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, own = (row_warp * C::OUT_FRAGMENTS * GPU_WARP + lane) * 16;

    if constexpr (C::ASIDE_IN_SCRATCH)
        return GPU_GLOBAL(unsigned char, run->aside + (uint64_t)gpu_cta() * C::ASIDE_BYTES) + own;
    else
        return gpu_shared() + C::FIXED_BYTES + C::ASIDE + own;
}

/*
 * e4m3: adds what was set aside to the results so far, n iterations behind the first of the work tile, and
 * sets the sum aside unless it is the `last`. They begin at zeros again then.
 */
template <class C>
GPU_INLINE void mma_set_aside(const struct gpu_run *run, uint32_t n, bool last, mma_consumer<C> *own)
{
    unsigned char *at = mma_aside_of<C>(run, own->row_warp);
    const bool first = n <= C::ASIDE_ITERATIONS;
    /* What is not there yet is read, too: behind branches each of the loads would be waited for. */
    const uint32_t keep = first ? 0 : UINT32_MAX;
    float factor[2];

    if (first && last)
        return;
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        factor[h] =
            own->aside_max[h] == -GPU_INFINITY ? 0 : gpu_exp2_fast(own->aside_max[h] - own->max[0][h]);
        own->aside_max[h] = own->max[0][h];
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < C::OUT_FRAGMENTS; i++) {
        struct gpu_u128 part = gpu_load_u128(at + i * GPU_WARP * 16);
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++) {
            own->o[0][i][e] = gpu_fma(gpu_f32_of_bits(part.x[e] & keep), factor[e / 2], own->o[0][i][e]);
            part.x[e] = gpu_f32_bits(own->o[0][i][e]);
            own->o[0][i][e] = last ? own->o[0][i][e] : 0;
        }
        if (!last)
            gpu_store_u128(at + i * GPU_WARP * 16, part);
    }
}

#endif
