/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Level avx512: sixteen f32 lanes and 32 registers, with AVX-512 F, BW, DQ and VL. Included only by a file
 * that is compiled for these instructions; every function is static inline, so that no other file can end up
 * with them.
 */
#ifndef ATTN_CPU_SIMD_AVX512_H
#define ATTN_CPU_SIMD_AVX512_H

#include <immintrin.h>

#include "base.h"

/* f32 lanes of a vector, and vectors that a kernel may hold. */
#define VEC_LANES     16u
#define VEC_REGISTERS 32u

typedef __m512 vec;
typedef __m512i vec_int;
typedef __mmask16 vec_bool; /* a bit for each lane */
typedef __m128 vec4;        /* four lanes, whatever a vector has */

INLINE vec vec_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE vec vec_set(float x)
{
    return _mm512_set1_ps(x);
}

INLINE vec vec_broadcast(const float *p)
{
    return _mm512_set1_ps(*p);
}

/* Addresses need no alignment, here and below. */
INLINE vec vec_load_f32(const float *p)
{
    return _mm512_loadu_ps(p);
}

INLINE void vec_store(float *p, vec x)
{
    _mm512_storeu_ps(p, x);
}

/* Codes of e4m3 or e4m3fnuz as f16 with the same bits of exponent and fraction; NaN for NaN. */
INLINE __m256i vec_e4m3_as_f16(enum vec_type type, __m128i codes)
{
    const __m256i wide = _mm256_cvtepi8_epi16(codes);
    const __m256i x = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((int16_t)0xbf80));
    if (type == VEC_E4M3FNUZ)
        return _mm256_or_si256(x, _mm256_cmpeq_epi16(wide, _mm256_set1_epi16(-128)));
    if (type == VEC_E4M3_FINITE)
        return x;
    const __m256i largest = _mm256_set1_epi16(0x3f80);
    return _mm256_or_si256(x, _mm256_cmpeq_epi16(_mm256_and_si256(x, largest), largest));
}

/* Codes of e5m2fnuz, whose largest numbers f16 does not have. */
INLINE vec vec_from_e5m2fnuz(__m128i codes)
{
    const __m512i wide = _mm512_cvtepi8_epi32(codes);
    const __m512i size = _mm512_and_si512(wide, _mm512_set1_epi32(0x7f));
    const __m512i whole = _mm512_add_epi32(_mm512_slli_epi32(size, 21), _mm512_set1_epi32(111 << 23));
    const __m512 small = _mm512_mul_ps(_mm512_cvtepi32_ps(size), _mm512_set1_ps(0x1p-17f));
    const __mmask16 is_small = _mm512_cmplt_epi32_mask(size, _mm512_set1_epi32(4));
    const __m512i x = _mm512_castps_si512(_mm512_mask_blend_ps(is_small, _mm512_castsi512_ps(whole), small));
    const __m512i signed_x = _mm512_or_si512(x, _mm512_and_si512(wide, _mm512_set1_epi32(INT32_MIN)));
    const __mmask16 nan = _mm512_cmpeq_epi32_mask(wide, _mm512_set1_epi32(-128));
    return _mm512_castsi512_ps(_mm512_mask_set1_epi32(signed_x, nan, -1));
}

INLINE vec vec_load8(enum vec_type type, const char *p)
{
    const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)p);
    if (type == VEC_INT8)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
    if (type == VEC_E5M2)
        return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8));
    if (type == VEC_E5M2FNUZ)
        return vec_from_e5m2fnuz(codes);
    return _mm512_cvtph_ps(vec_e4m3_as_f16(type, codes));
}

/* VEC_LANES elements at p as f32, divided by the gain of the type. */
INLINE vec vec_load(enum vec_type type, const char *p)
{
    if (type == VEC_F32)
        return _mm512_loadu_ps((const float *)(const void *)p);
    if (vec_size(type) == 1)
        return vec_load8(type, p);
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)p);
    if (type == VEC_F16)
        return _mm512_cvtph_ps(x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* Stores f16 or bf16, rounded to nearest even; a NaN is made quiet. */
INLINE void vec_store_half(enum vec_type type, void *p, vec x)
{
    const __m512i bits = _mm512_castps_si512(x), whole = _mm512_srli_epi32(bits, 16);
    const __m512i half =
        _mm512_add_epi32(_mm512_and_si512(whole, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_or_si512(whole, _mm512_set1_epi32(0x40));
    if (type == VEC_F16)
        _mm256_storeu_si256(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    else
        _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet)));
}

INLINE vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

INLINE vec vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}

INLINE vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

INLINE vec vec_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}

/* a * b + c, rounded once. */
INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* a > b ? a : b; so b where either is NaN. */
INLINE vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

/* a < b ? a : b; so b where either is NaN. */
INLINE vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

INLINE vec vec_abs(vec a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}

/* `a`, which is not negative, with the sign of b. */
INLINE vec vec_signed(vec a, vec b)
{
    return _mm512_or_ps(a, _mm512_and_ps(_mm512_set1_ps(-0.0f), b));
}

/* The level has vec_fraction and vec_scale in place of vec_power. */
#define VEC_FRACTIONS

/* a minus the integer next to it; 0 for minus infinity. */
INLINE vec vec_fraction(vec a)
{
    return _mm512_reduce_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* a * 2^n for an integer n, or minus infinity. */
INLINE vec vec_scale(vec a, vec n)
{
    return _mm512_scalef_ps(a, n);
}

INLINE vec_bool vec_less(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

INLINE vec_bool vec_equal(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

INLINE vec vec_select(vec_bool which, vec yes, vec no)
{
    return _mm512_mask_blend_ps(which, no, yes);
}

INLINE int vec_any_nan(vec a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0;
}

/* Lanes whose bit is set. */
INLINE vec_bool vec_lanes(uint32_t bits)
{
    return (vec_bool)bits;
}

/* A bit for each lane: the inverse. */
INLINE uint32_t vec_bits(vec_bool lanes)
{
    return lanes;
}

INLINE vec_int vec_load_int(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}

/* Lanes in which bit i is set. */
INLINE vec_bool vec_bit(vec_int words, uint32_t i)
{
    return _mm512_test_epi32_mask(words, _mm512_set1_epi32((int)(UINT32_C(1) << i)));
}

/* The sums of four vectors, each of its halves added, and ((0+1)+(2+3)) + ((4+5)+(6+7)) of that. */
INLINE vec4 vec_sum4(vec a, vec b, vec c, vec d)
{
    const __m256 e = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m256 f = _mm256_add_ps(_mm512_castps512_ps256(b), _mm512_extractf32x8_ps(b, 1));
    const __m256 g = _mm256_add_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(d), _mm512_extractf32x8_ps(d, 1));
    const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(e, f), _mm256_hadd_ps(g, h));
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
    return _mm512_cvtss_f32(a);
}

INLINE float vec_reduce_add(vec a)
{
    return _mm_cvtss_f32(vec_sum4(a, a, a, a));
}

/* The largest lane; no lane is NaN. */
INLINE float vec_reduce_max(vec a)
{
    const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
}

/* Four rows to columns in each quarter of a vector. */
INLINE void vec_transpose4(const vec *a, vec *b)
{
    const __m512 ab = _mm512_unpacklo_ps(a[0], a[1]), ab_high = _mm512_unpackhi_ps(a[0], a[1]);
    const __m512 cd = _mm512_unpacklo_ps(a[2], a[3]), cd_high = _mm512_unpackhi_ps(a[2], a[3]);
    b[0] = _mm512_shuffle_ps(ab, cd, 0x44);
    b[1] = _mm512_shuffle_ps(ab, cd, 0xee);
    b[2] = _mm512_shuffle_ps(ab_high, cd_high, 0x44);
    b[3] = _mm512_shuffle_ps(ab_high, cd_high, 0xee);
}

/* Quarters of four vectors to rows: quarter i of each, in their order, to to[i * step]. */
INLINE void vec_transpose_quarters(vec a, vec b, vec c, vec d, vec *to, uint32_t step)
{
    const __m512 low = _mm512_shuffle_f32x4(a, b, 0x44), high = _mm512_shuffle_f32x4(a, b, 0xee);
    const __m512 low2 = _mm512_shuffle_f32x4(c, d, 0x44), high2 = _mm512_shuffle_f32x4(c, d, 0xee);
    to[0] = _mm512_shuffle_f32x4(low, low2, 0x88);
    to[step] = _mm512_shuffle_f32x4(low, low2, 0xdd);
    to[2 * step] = _mm512_shuffle_f32x4(high, high2, 0x88);
    to[3 * step] = _mm512_shuffle_f32x4(high, high2, 0xdd);
}

/* VEC_LANES rows to as many columns: within quarters, then quarters among four vectors. */
INLINE void vec_transpose(vec *a)
{
    vec b[16];
    UNROLL
    for (uint32_t i = 0; i < 4; i++)
        vec_transpose4(a + 4 * i, b + 4 * i);
    UNROLL
    for (uint32_t i = 0; i < 4; i++) /* columns i, 4 + i, 8 + i, 12 + i of four rows each */
        vec_transpose_quarters(b[i], b[4 + i], b[8 + i], b[12 + i], a + i, 4);
}

#ifdef __AVX512VNNI__ /* other products of int8 are not faster than those of f32 */
#include "vnni.h"
#endif

#endif
