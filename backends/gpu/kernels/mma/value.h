/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The product of P with the values of a tile. */
#ifndef ATTN_GPU_MMA_VALUE_H
#define ATTN_GPU_MMA_VALUE_H

#include "load.h"
#include "mask.h"
#include "softmax.h"
#include "tf32.h"

/*
 * P of 16 keys is computed while the 16 before them are multiplied, and `copy` fills another stage. `bf16`: P
 * is bf16, and with 8-bit values multiplied by `scales`.
 */
template <class C>
GPU_INLINE void mma_value_pipelined(bool bf16, const unsigned char *values, const float *scales,
                                    mma_score_fragments<C> s, mma_row_pairs<C> max, mma_row_pairs<C> sum,
                                    mma_out_fragments<C> o, mma_row_pairs<C> factor, struct mma_copy *copy)
{
    const uint32_t bytes = C::STAGES % 2 == 0 ? C::K_BYTES : C::V_BYTES; /* of the vectors that are copied */
    const uint32_t interval = mma_step_interval<C>(C::GROUP_KEYS / 16, bytes);
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const uint32_t lane_offset = mma_swizzled<C>(lane % 16, lane / 16, C::V_ROW);
    const uint32_t words = C::M_FRAGMENTS * 4, steps = C::WARP_DV / 16;
    mma_row_pairs<C> base;
    uint32_t a[2][C::M_FRAGMENTS][4];
    float scale[4] = {1, 1, 1, 1}; /* of the next keys */

    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++)
            base[m][h] = mma_exponent_base(max[m][h]);
    }
    if (C::KV8 && bf16)
        mma_load_scales(scales, 0, scale);
    GPU_UNROLL
    for (uint32_t w = 0; w < words; w++)
        a[0][w / 4][w % 4] = mma_exponentiate_pair<C>(bf16, s, 0, w / 4, w % 4, base, sum, factor, scale);
    GPU_UNROLL
    for (uint32_t k = 0; k < C::GROUP_KEYS / 16; k++) {
        const uint32_t last = k + 1 < C::GROUP_KEYS / 16 ? words : 0; /* of the next keys' words */
        if (C::KV8 && bf16 && last != 0)
            mma_load_scales(scales, k + 1, scale);
        GPU_UNROLL
        for (uint32_t n = 0; n < steps; n++) {
            uint32_t r[4];
            if (k % interval == 0 && n == 0)
                mma_copy_read_addresses(copy, k / interval);
            if (k % interval == 0 && n == steps / 2)
                mma_copy_issue<C>(copy, bytes, k / interval);
            gpu_load_matrix4_trans(r, values + mma_fragment_at<C>(lane_offset, k * 16, n * 2, C::V_ROW));
            GPU_UNROLL
            for (uint32_t h = 0; h < 2; h++) {
                GPU_UNROLL
                for (uint32_t m = 0; m < C::M_FRAGMENTS; m++)
                    mma_multiply(o[m][2 * n + h], a[k % 2][m], r + 2 * h, bf16);
            }
            GPU_UNROLL
            for (uint32_t w = n * words / steps; w < last && w < (n + 1) * words / steps; w++)
                a[(k + 1) % 2][w / 4][w % 4] =
                    mma_exponentiate_pair<C>(bf16, s, k + 1, w / 4, w % 4, base, sum, factor, scale);
        }
    }
}

/*
 * P times V. `dtype`: of 8-bit values, `bf16`: P is bf16. 8-bit values come with the even columns of each 16
 * first.
 */
template <class C>
GPU_INLINE void mma_value_tile(uint32_t dtype, bool bf16, const unsigned char *values,
                               mma_score_fragments<C> p, mma_out_fragments<C> o, struct mma_copy *copy)
{
    const uint32_t bytes = C::STAGES % 2 == 0 ? C::K_BYTES : C::V_BYTES; /* of the vectors that are copied */
    const uint32_t interval = mma_step_interval<C>(C::GROUP_KEYS / 16, bytes);
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const uint32_t lane_offset = mma_swizzled<C>(lane % 16, lane / 16, C::V_ROW);

    GPU_UNROLL
    for (uint32_t k = 0; k < C::GROUP_KEYS / 16; k++) {
        uint32_t a[C::M_FRAGMENTS][4], r[4];
        if (C::GROUPS == 1 && k % interval == 0)
            mma_copy_read_addresses(copy, k / interval);
        GPU_UNROLL
        for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
            GPU_UNROLL
            for (uint32_t i = 0; i < 4; i++)
                a[m][i] = mma_pack(p[m][2 * k + i / 2][i % 2 * 2], p[m][2 * k + i / 2][i % 2 * 2 + 1], bf16);
        }
        GPU_UNROLL
        for (uint32_t n = 0; n < C::WARP_DV / 16; n++) {
            uint32_t b[2][2]; /* even and odd columns, or lower and upper ones; keys 0 to 7, 8 to 15 */
            if constexpr (!C::CODES)
                gpu_load_matrix4_trans(r, values + mma_fragment_at<C>(lane_offset, k * 16, n * 2, C::V_ROW));
            else if (n % 2 == 0)
                gpu_load_matrix4_trans(r, values + mma_fragment_at<C>(lane_offset, k * 16, n, C::V_ROW));
            GPU_UNROLL
            for (uint32_t i = 0; i < 2; i++) {
                uint32_t number[2] = {r[i], r[2 + i]};
                if (C::CODES && bf16)
                    gpu_quad8_wide(dtype, r[n % 2 * 2 + i], number);
                else if (C::CODES)
                    gpu_quad8_across(dtype, r[n % 2 * 2 + i], number);
                GPU_UNROLL
                for (uint32_t h = 0; h < 2; h++)
                    b[h][i] = number[h];
            }
            GPU_UNROLL
            for (uint32_t h = 0; h < 2; h++) {
                GPU_UNROLL
                for (uint32_t m = 0; m < C::M_FRAGMENTS; m++)
                    mma_multiply(o[m][2 * n + h], a[m], b[h], bf16);
            }
        }
        if (C::GROUPS == 1 && k % interval == 0)
            mma_copy_issue<C>(copy, bytes, k / interval);
    }
}

/* What rounding takes away from P, in place of it. */
template <class C> GPU_INLINE void mma_keep_remainder(bool bf16, mma_score_fragments<C> p)
{
    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t n = 0; n < C::GROUP_KEYS / 8; n++) {
            GPU_UNROLL
            for (uint32_t e = 0; e < 4; e++)
                p[m][n][e] = mma_remainder(p[m][n][e], bf16);
        }
    }
}

/* P times V, by code for each type of values. Scales of single values are applied to P. */
template <class C>
GPU_INLINE void mma_typed_values(const struct gpu_run *run, const unsigned char *values,
                                 mma_score_fragments<C> p, mma_out_fragments<C> o, struct mma_copy *copy)
{
    const uint32_t dtype = run->v.dtype;

    if (C::KV8 && mma_p_bf16<C>(run))
        mma_value_tile<C>(dtype, true, values, p, o, copy);
    else if (C::CODES && dtype == ATTN_E4M3)
        mma_value_tile<C>(ATTN_E4M3, false, values, p, o, copy);
    else
        mma_value_tile<C>(dtype, C::BF16_MMA, values, p, o, copy);
}

/* P from scores, and its product with V: once, or a second time with what rounding took away. */
template <class C>
GPU_INLINE void mma_values(const struct gpu_run *run, const mma_shared<C> *shared,
                           const unsigned char *values, uint32_t slot, uint32_t key0,
                           mma_score_fragments<C> p, mma_row_pairs<C> max, mma_row_pairs<C> sum,
                           mma_row_pairs<C> factor, mma_out_fragments<C> o, struct mma_copy *copy)
{
    if constexpr (C::KV32) {
        mma_exponentiate<C>(p, max, sum, factor);
        mma_values_f32<C>(values, p, o, copy);
        return;
    }
    if constexpr (C::GROUPS == 1 && !C::CODES) {
        if (!C::P_PARTS || run->p_parts == 1) {
            const float *scales = shared->v_scale[C::KV8 ? slot : 0];
            if (C::KV8 && mma_p_bf16<C>(run))
                mma_value_pipelined<C>(true, values, scales, p, max, sum, o, factor, copy);
            else
                mma_value_pipelined<C>(C::BF16_MMA, values, scales, p, max, sum, o, factor, copy);
            return;
        }
    }
    mma_exponentiate<C>(p, max, sum, factor);
    if (mma_scale_per_key<C>(run->problem.v_scale))
        mma_scale_keys<C>(shared->v_scale[slot] + key0, p);
    GPU_LOOP
    for (uint32_t part = 0;; part++) {
        mma_typed_values<C>(run, values, p, o, copy);
        if (!C::P_PARTS || part + 1 == run->p_parts)
            return;
        mma_keep_remainder<C>(mma_p_bf16<C>(run), p);
        copy->used = 0;
    }
}

#endif
