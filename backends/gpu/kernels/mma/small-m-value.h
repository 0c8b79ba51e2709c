/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Small M: the product of values with P, and non-finite values. */
#ifndef ATTN_GPU_MMA_SMALL_M_VALUE_H
#define ATTN_GPU_MMA_SMALL_M_VALUE_H

#include "small-m-score.h"

/* Columns of values within 16 that a lane has: 8-bit values come with the even ones first. */
template <class C> GPU_INLINE uint32_t small_m_column(uint32_t h)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    return C::KV8 ? lane / 4 * 2 + h : lane / 4 + h * 8;
}

/* Two rows' numbers of P for eight keys, in the layout of the other operand. */
GPU_INLINE uint32_t small_m_pack_transposed(float low, float high, bool bf16)
{
    return gpu_transpose_matrix(mma_pack(low, high, bf16));
}

/*
 * Values times P; `dtype`: of 8-bit values, `bf16`: P is bf16. A load has 16 columns of 16 keys, of 8-bit
 * codes 32 columns.
 */
template <class C>
GPU_INLINE void small_m_value_tile(uint32_t dtype, bool bf16, const unsigned char *values,
                                   small_m_score_fragments<C> p, small_m_out_fragments<C> o)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const uint32_t lane_offset = C::KV8 ? mma_swizzled<C>(lane % 16, lane / 16, C::V_BYTES)
                                        : mma_swizzled<C>(lane / 16 * 8 + lane % 8, lane / 8 % 2, C::V_BYTES);

    GPU_UNROLL
    for (uint32_t k = 0; k < C::GROUP_KEYS / 16; k++) {
        uint32_t b[2], r[4];
        b[0] = small_m_pack_transposed(p[k][0], p[k][1], bf16);
        b[1] = small_m_pack_transposed(p[k][2], p[k][3], bf16);
        GPU_UNROLL
        for (uint32_t n = 0; n < C::DV / 16; n++) {
            uint32_t a[4];
            if constexpr (!C::KV8)
                gpu_load_matrix4_trans(a,
                                       values + mma_fragment_at<C>(lane_offset, k * 16, n * 2, C::V_BYTES));
            else if (n % 2 == 0)
                gpu_load_matrix4_trans(r, values + mma_fragment_at<C>(lane_offset, k * 16, n, C::V_BYTES));
            GPU_UNROLL
            for (uint32_t i = 0; C::KV8 && i < 2; i++)
                if (bf16)
                    gpu_quad8_wide(dtype, r[n % 2 * 2 + i], a + 2 * i);
                else
                    gpu_quad8_across(dtype, r[n % 2 * 2 + i], a + 2 * i);
            mma_multiply(o[n], a, b, bf16);
        }
    }
}

/* Values times P, by code for each type of values. */
template <class C>
GPU_INLINE void small_m_typed_values(uint32_t dtype, bool bf16, const unsigned char *values,
                                     small_m_score_fragments<C> p, small_m_out_fragments<C> o)
{
    if (!C::KV8 || dtype == ATTN_E4M3)
        small_m_value_tile<C>(ATTN_E4M3, bf16, values, p, o);
    else if (dtype == ATTN_E5M2)
        small_m_value_tile<C>(ATTN_E5M2, bf16, values, p, o);
    else if (bf16 && gpu_is_fnuz(dtype))
        small_m_value_tile<C>(dtype, true, values, p, o);
    else
        small_m_value_tile<C>(ATTN_INT8, bf16, values, p, o);
}

/*
 * Values times P, once or a second time with what rounding took away. Scales of single values are applied to
 * P.
 */
template <class C>
GPU_INLINE void small_m_values(const struct gpu_run *run, const mma_shared<C> *shared,
                               const unsigned char *values, uint32_t slot, bool unmasked,
                               small_m_score_fragments<C> p, small_m_out_fragments<C> o)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    if (mma_scale_per_key<C>(run->problem.v_scale)) {
        GPU_UNROLL
        for (uint32_t i = 0; i < C::GROUP_KEYS / 8; i++) {
            const float scale = shared->v_scale[slot][i * 8 + lane / 4];
            GPU_UNROLL
            for (uint32_t e = 0; e < 2; e++)
                if (unmasked || p[i / 2][i % 2 * 2 + e] != 0)
                    p[i / 2][i % 2 * 2 + e] *= scale;
        }
    }
    const uint32_t parts = C::P_PARTS ? run->p_parts : 1;
    GPU_LOOP
    for (uint32_t part = 0;; part++) {
        if (!C::KV8 || !mma_p_bf16<C>(run))
            small_m_typed_values<C>(mma_kv_dtype<C>(run), C::BF16_MMA, values, p, o);
        else
            small_m_typed_values<C>(mma_kv_dtype<C>(run), true, values, p, o);
        if (part + 1 == parts)
            return;
        GPU_UNROLL
        for (uint32_t i = 0; i < C::GROUP_KEYS / 4; i++)
            p[i / 4][i % 4] = mma_remainder(p[i / 4][i % 4], mma_p_bf16<C>(run));
    }
}

/* Whether a group has only finite values, so that mma_clear_nonfinite has nothing to do: it mostly has. */
template <class C>
GPU_INLINE bool small_m_all_finite(const struct gpu_run *run, const mma_shared<C> *shared,
                                   const unsigned char *values, uint32_t slot)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, chunks = C::GROUP_KEYS * (C::V_BYTES / 16) / GPU_WARP;
    const uint32_t least = C::BF16 ? 0x00800080u : 0x04000400u; /* carries out of a full exponent */
    uint32_t found = 0;

    GPU_UNROLL
    for (uint32_t i = 0; i < chunks; i++) {
        const struct gpu_u128 part = gpu_load_u128(values + (i * GPU_WARP + lane) * 16);
        GPU_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            found |= C::KV8 ? gpu_nonfinite8(mma_kv_dtype<C>(run), part.x[j])
                            : ((part.x[j] & 0x7fff7fffu) + least) & 0x80008000u;
    }
    if (mma_scale_per_key<C>(run->problem.v_scale))
        found |= (gpu_f32_bits(shared->v_scale[slot][lane % C::GROUP_KEYS]) & 0x7fffffffu) > 0x7f800000u;
    return gpu_ballot(found != 0) == 0;
}

/* NaN for the results of rows that see a non-finite value. */
template <class C>
GPU_INLINE void small_m_spread_nonfinite(const mma_shared<C> *shared, small_m_score_fragments<C> s,
                                         small_m_out_fragments<C> o)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, one = C::BF16_MMA ? 0x3f80 : 0x3c00;
    uint32_t seen[C::GROUP_KEYS / 16][2];

    GPU_UNROLL
    for (uint32_t i = 0; i < C::GROUP_KEYS / 8; i++)
        seen[i / 2][i % 2] =
            gpu_transpose_matrix((s[i / 2][i % 2 * 2] != -GPU_INFINITY ? one : 0u) |
                                 (s[i / 2][i % 2 * 2 + 1] != -GPU_INFINITY ? one << 16 : 0u));
    GPU_LOOP
    for (uint32_t n = 0; n < C::DV / 16; n++) {
        float found[4] = {0, 0, 0, 0};
        GPU_UNROLL
        for (uint32_t k = 0; k < C::GROUP_KEYS / 16; k++) {
            uint32_t a[4];
            GPU_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t key = k * 16 + i / 2 * 8 + lane % 4 * 2;
                const uint32_t d = n * 16 + small_m_column<C>(i % 2);
                a[i] = mma_is_nonfinite<C>(shared, key, d) * one |
                       mma_is_nonfinite<C>(shared, key + 1, d) * one << 16;
            }
            mma_multiply(found, a, seen[k], C::BF16_MMA);
        }
        GPU_UNROLL
        for (uint32_t j = 0; j < C::DV / 16; j++) {
            GPU_UNROLL
            for (uint32_t e = 0; e < 4; e++)
                if (j == n && found[e] > 0)
                    o[j][e] = GPU_NAN;
        }
    }
}

#endif
