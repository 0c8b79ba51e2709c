/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Eight f32 lanes with AVX2, FMA and F16C: loads and conversions, 2^x, tanh, reductions. Included only by
 * files compiled for these instructions; everything is static inline, so nothing of it leaks elsewhere.
 */
#ifndef ATTN_CPU_VEC_AVX2_H
#define ATTN_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "attn/types.h"

#define INLINE static inline __attribute__((always_inline))

/* Before a loop with constant bounds over an array that is to live in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Element types as small constants, so that a kernel can be instantiated for each. */
enum vec_type { VEC_F32 = 0, VEC_F16 = 1, VEC_BF16 = 2, VEC_TYPES = 3 };

INLINE enum vec_type vec_type_of(uint32_t dtype)
{
    return dtype == ATTN_F32 ? VEC_F32 : dtype == ATTN_F16 ? VEC_F16 : VEC_BF16;
}

INLINE uint32_t vec_size(enum vec_type type)
{
    return type == VEC_F32 ? 4 : 2;
}

/* Eight elements at p, which needs no alignment, as f32. */
INLINE __m256 vec_load(enum vec_type type, const char *p)
{
    if (type == VEC_F32)
        return _mm256_loadu_ps((const float *)(const void *)p);
    const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    if (type == VEC_F16)
        return _mm256_cvtph_ps(x);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

/*
 * 2^x, relative error below 1.1e-7; 2^0 is exactly 1, below 2^-126 the result is 0, NaN stays NaN. For
 * x <= 127. The fraction lies in [-1/2, 1/2]; the polynomial is a minimax fit with its first coefficient 1.
 */
INLINE __m256 vec_exp2(__m256 x)
{
    const __m256 magic = _mm256_set1_ps(0x1.8p23f);
    x = _mm256_max_ps(_mm256_set1_ps(-127.0f), x); /* this order keeps a NaN */
    const __m256 t = _mm256_add_ps(x, magic);
    const __m256 f = _mm256_sub_ps(x, _mm256_sub_ps(t, magic));
    __m256 p = _mm256_set1_ps(0x1.470b4ap-13f);
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.5f7276p-10f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.3b270ep-7f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.c6ae72p-5f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.ebfbe2p-3f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.62e432p-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
    /* a product instead of an addition to the exponent: a NaN must survive it */
    const __m256i e =
        _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23), _mm256_set1_epi32(127 << 23));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(e));
}

INLINE float vec_exp2_scalar(float x)
{
    return _mm256_cvtss_f32(vec_exp2(_mm256_set1_ps(x)));
}

/* tanh, relative error below 3e-7 also for small arguments: an odd polynomial, or 1 - 2 / (1 + e^2x). */
INLINE __m256 vec_tanh(__m256 x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 one = _mm256_set1_ps(1.0f), two = _mm256_set1_ps(2.0f);
    const __m256 a = _mm256_andnot_ps(sign, x);
    const __m256 z = _mm256_mul_ps(x, x);
    __m256 p = _mm256_set1_ps(-0x1.722b06p-8f);
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(0x1.5157fep-6f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-0x1.b81dc2p-5f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(0x1.110646p-3f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-0x1.55552ep-2f));
    const __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(x, z), p, x);
    /* tanh is 1 in f32 from 9.02 on; this order of the minimum keeps a NaN */
    const __m256 b = _mm256_min_ps(_mm256_set1_ps(10.0f), a);
    const __m256 e = vec_exp2(_mm256_mul_ps(b, _mm256_set1_ps(0x1.715476p+1f)));
    const __m256 q = _mm256_sub_ps(one, _mm256_div_ps(two, _mm256_add_ps(one, e)));
    const __m256 large = _mm256_or_ps(q, _mm256_and_ps(sign, x));
    return _mm256_blendv_ps(large, small, _mm256_cmp_ps(a, _mm256_set1_ps(0.625f), _CMP_LT_OQ));
}

/* The sums of four vectors, each ((0+1)+(2+3)) + ((4+5)+(6+7)). */
INLINE __m128 vec_sum4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

INLINE float vec_sum(__m256 a)
{
    return _mm_cvtss_f32(vec_sum4(a, a, a, a));
}

/* The largest lane; lanes are not NaN. */
INLINE float vec_max(__m256 a)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
}

/* Lanes whose bit is set, as a mask of whole lanes. */
INLINE __m256 vec_mask(uint32_t bits)
{
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32((int)bits), lane);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane));
}

/*
 * A row of n >= 8 elements as vectors: vector i begins at element vec_offset(i, n). If n is no multiple of 8
 * the last one overlaps the one before it instead of reaching beyond the row.
 */
INLINE uint32_t vec_count(uint32_t n)
{
    return (n + 7) / 8;
}

INLINE uint32_t vec_offset(uint32_t i, uint32_t n)
{
    return 8 * i + 8 <= n ? 8 * i : n - 8;
}

/* A row of n elements to f32 at dst, times `factor`. Returns 0 in lanes that saw finite elements only. */
INLINE __m256 vec_convert(enum vec_type type, const char *src, uint32_t n, __m256 factor, float *dst)
{
    __m256 probe = _mm256_setzero_ps();
    if (n < 8) {
        char short_row[32] = {0};
        float eight[8];
        memcpy(short_row, src, (size_t)n * vec_size(type));
        const __m256 x = vec_load(type, short_row);
        _mm256_storeu_ps(eight, _mm256_mul_ps(x, factor));
        memcpy(dst, eight, n * sizeof *dst);
        return _mm256_mul_ps(x, probe);
    }
    for (uint32_t i = 0; i < vec_count(n); i++) {
        const uint32_t at = vec_offset(i, n);
        const __m256 x = vec_load(type, src + (size_t)at * vec_size(type));
        probe = _mm256_fmadd_ps(x, _mm256_setzero_ps(), probe);
        _mm256_storeu_ps(dst + at, _mm256_mul_ps(x, factor));
    }
    return probe;
}

/* True if a probe of vec_convert saw NaN or infinity. */
INLINE int vec_probe_hit(__m256 probe)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(probe, probe, _CMP_UNORD_Q)) != 0;
}

#endif
