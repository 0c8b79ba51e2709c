/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Level avx2: eight f32 lanes with AVX2, FMA and F16C. Included only by a file that is compiled for these
 * instructions; every function is static inline, so that no other file can end up with them.
 */
#ifndef ATTN_CPU_SIMD_AVX2_H
#define ATTN_CPU_SIMD_AVX2_H

#include <immintrin.h>

#include "base.h"

/* f32 lanes of a vector, and vectors that a kernel may hold. */
#define VEC_LANES     8u
#define VEC_REGISTERS 16u

typedef __m256 vec;
typedef __m256i vec_int;
typedef __m256 vec_bool; /* lanes of ones or zeros */
typedef __m128 vec4;     /* four lanes, whatever a vector has */

INLINE vec vec_zero(void)
{
    return _mm256_setzero_ps();
}

INLINE vec vec_set(float x)
{
    return _mm256_set1_ps(x);
}

INLINE vec vec_broadcast(const float *p)
{
    return _mm256_broadcast_ss(p);
}

/* Addresses need no alignment, here and below. */
INLINE vec vec_load_f32(const float *p)
{
    return _mm256_loadu_ps(p);
}

INLINE void vec_store(float *p, vec x)
{
    _mm256_storeu_ps(p, x);
}

/* Eight codes of e4m3 or e4m3fnuz as f16 with the same bits of exponent and fraction; NaN for NaN. */
INLINE __m128i vec_e4m3_as_f16(enum vec_type type, __m128i codes)
{
    const __m128i wide = _mm_cvtepi8_epi16(codes);
    const __m128i x = _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16((int16_t)0xbf80));
    if (type == VEC_E4M3FNUZ)
        return _mm_or_si128(x, _mm_cmpeq_epi16(wide, _mm_set1_epi16(-128)));
    if (type == VEC_E4M3_FINITE)
        return x;
    const __m128i largest = _mm_set1_epi16(0x3f80);
    return _mm_or_si128(x, _mm_cmpeq_epi16(_mm_and_si128(x, largest), largest));
}

/* Eight codes of e5m2fnuz, whose largest numbers f16 does not have. */
INLINE vec vec_from_e5m2fnuz(__m128i codes)
{
    const __m256i wide = _mm256_cvtepi8_epi32(codes);
    const __m256i size = _mm256_and_si256(wide, _mm256_set1_epi32(0x7f));
    const __m256i whole = _mm256_add_epi32(_mm256_slli_epi32(size, 21), _mm256_set1_epi32(111 << 23));
    const __m256 small = _mm256_mul_ps(_mm256_cvtepi32_ps(size), _mm256_set1_ps(0x1p-17f));
    const __m256 is_small = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(4), size));
    const __m256 x = _mm256_blendv_ps(_mm256_castsi256_ps(whole), small, is_small);
    const __m256i nan = _mm256_cmpeq_epi32(wide, _mm256_set1_epi32(-128));
    const __m256i sign = _mm256_and_si256(wide, _mm256_set1_epi32(INT32_MIN));
    return _mm256_or_ps(x, _mm256_castsi256_ps(_mm256_or_si256(sign, nan)));
}

INLINE vec vec_load8(enum vec_type type, const char *p)
{
    const __m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)p);
    if (type == VEC_INT8)
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
    if (type == VEC_E5M2)
        return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), codes));
    if (type == VEC_E5M2FNUZ)
        return vec_from_e5m2fnuz(codes);
    return _mm256_cvtph_ps(vec_e4m3_as_f16(type, codes));
}

/* VEC_LANES elements at p as f32, divided by the gain of the type. */
INLINE vec vec_load(enum vec_type type, const char *p)
{
    if (type == VEC_F32)
        return _mm256_loadu_ps((const float *)(const void *)p);
    if (vec_size(type) == 1)
        return vec_load8(type, p);
    const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    if (type == VEC_F16)
        return _mm256_cvtph_ps(x);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

/* Stores f16 or bf16, rounded to nearest even; a NaN is made quiet. */
INLINE void vec_store_half(enum vec_type type, void *p, vec x)
{
    const __m256i bits = _mm256_castps_si256(x), whole = _mm256_srli_epi32(bits, 16);
    const __m256i half =
        _mm256_add_epi32(_mm256_and_si256(whole, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    const __m256i quiet = _mm256_or_si256(whole, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i codes = _mm256_blendv_epi8(rounded, quiet, nan);
    if (type == VEC_F16)
        _mm_storeu_si128(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    else
        _mm_storeu_si128(p,
                         _mm_packus_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1)));
}

INLINE vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

INLINE vec vec_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}

INLINE vec vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}

INLINE vec vec_div(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}

/* a * b + c, rounded once. */
INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* a > b ? a : b; so b where either is NaN. */
INLINE vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

/* a < b ? a : b; so b where either is NaN. */
INLINE vec vec_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

INLINE vec vec_abs(vec a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

/* `a`, which is not negative, with the sign of b. */
INLINE vec vec_signed(vec a, vec b)
{
    return _mm256_or_ps(a, _mm256_and_ps(_mm256_set1_ps(-0.0f), b));
}

/* 2^n for n in [-127, 127] in the low bits of a float's mantissa; 0 for -127. */
INLINE vec vec_power(vec n)
{
    const __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(shifted, _mm256_set1_epi32(127 << 23)));
}

INLINE vec_bool vec_less(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}

INLINE vec_bool vec_equal(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}

INLINE vec vec_select(vec_bool which, vec yes, vec no)
{
    return _mm256_blendv_ps(no, yes, which);
}

INLINE int vec_any_nan(vec a)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0;
}

/* Lanes whose bit is set. */
INLINE vec_bool vec_lanes(uint32_t bits)
{
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32((int)bits), lane);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane));
}

/* A bit for each lane: the inverse. */
INLINE uint32_t vec_bits(vec_bool lanes)
{
    return (uint32_t)_mm256_movemask_ps(lanes);
}

INLINE vec_int vec_load_int(const int32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* Lanes in which bit i is set. */
INLINE vec_bool vec_bit(vec_int words, uint32_t i)
{
    const __m256i bit = _mm256_set1_epi32((int)(UINT32_C(1) << i));
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(words, bit), bit));
}

/* The sums of four vectors, each ((0+1)+(2+3)) + ((4+5)+(6+7)). */
INLINE vec4 vec_sum4(vec a, vec b, vec c, vec d)
{
    const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

INLINE void vec4_store(float *p, vec4 x)
{
    _mm_storeu_ps(p, x);
}

/* Lanes 0 and 1 to p, 2 and 3 to q. */
INLINE void vec4_store_pairs(float *p, float *q, vec4 x)
{
    _mm_storel_pi((__m64 *)(void *)p, x);
    _mm_storeh_pi((__m64 *)(void *)q, x);
}

INLINE float vec_first(vec a)
{
    return _mm256_cvtss_f32(a);
}

INLINE float vec_reduce_add(vec a)
{
    return _mm_cvtss_f32(vec_sum4(a, a, a, a));
}

/* The largest lane; no lane is NaN. */
INLINE float vec_reduce_max(vec a)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
}

/* VEC_LANES rows to as many columns. */
INLINE void vec_transpose(vec *a)
{
    __m256 b[8];
    UNROLL
    for (uint32_t i = 0; i < 4; i++) { /* pairs of rows, then of pairs, then of halves */
        b[2 * i] = _mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]);
    }
    __m256 c[8];
    UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        c[4 * i] = _mm256_shuffle_ps(b[4 * i], b[4 * i + 2], 0x44);
        c[4 * i + 1] = _mm256_shuffle_ps(b[4 * i], b[4 * i + 2], 0xee);
        c[4 * i + 2] = _mm256_shuffle_ps(b[4 * i + 1], b[4 * i + 3], 0x44);
        c[4 * i + 3] = _mm256_shuffle_ps(b[4 * i + 1], b[4 * i + 3], 0xee);
    }
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        a[i] = _mm256_permute2f128_ps(c[i], c[4 + i], 0x20);
        a[4 + i] = _mm256_permute2f128_ps(c[i], c[4 + i], 0x31);
    }
}

#include "madd.h"

#endif
