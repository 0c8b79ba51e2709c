/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Level avx512 on machines without it: the operations of simd/avx512.h on the vectors of SIMDe, which has
 * them as pairs of AVX2's, and here those that SIMDe does not have.
 */
#ifndef ATTN_TEST_CPU_AVX512_SIMDE_H
#define ATTN_TEST_CPU_AVX512_SIMDE_H

#pragma GCC system_header /* SIMDe is not free of warnings */

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

static inline simde__m512 floats_of_halves(__m256 low, __m256 high)
{
    simde__m512_private x;
    x.m256[0] = low;
    x.m256[1] = high;
    return simde__m512_from_private(x);
}

static inline simde__m512i ints_of_halves(__m256i low, __m256i high)
{
    simde__m512i_private x;
    x.m256i[0] = low;
    x.m256i[1] = high;
    return simde__m512i_from_private(x);
}

static inline __m256 floats_half(simde__m512 x, int half)
{
    return simde__m512_to_private(x).m256[half];
}

static inline __m256i ints_half(simde__m512i x, int half)
{
    return simde__m512i_to_private(x).m256i[half];
}

static inline uint16_t masks_of_halves(__m256i low, __m256i high)
{
    return (uint16_t)(_mm256_movemask_ps(_mm256_castsi256_ps(low)) |
                      _mm256_movemask_ps(_mm256_castsi256_ps(high)) << 8);
}

/* Quarter `which` of a vector. */
static inline __m128 floats_quarter(simde__m512 x, int which)
{
    return simde__m512_to_private(x).m128[which];
}

static inline simde__m512 shuffle_quarters(simde__m512 a, simde__m512 b, int which)
{
    simde__m512_private x;
    x.m128[0] = floats_quarter(a, which & 3);
    x.m128[1] = floats_quarter(a, which >> 2 & 3);
    x.m128[2] = floats_quarter(b, which >> 4 & 3);
    x.m128[3] = floats_quarter(b, which >> 6 & 3);
    return simde__m512_from_private(x);
}

static inline uint16_t less_mask(simde__m512i a, simde__m512i b)
{
    return masks_of_halves(_mm256_cmpgt_epi32(ints_half(b, 0), ints_half(a, 0)),
                           _mm256_cmpgt_epi32(ints_half(b, 1), ints_half(a, 1)));
}

static inline simde__m512 floats_of_f16(__m256i x)
{
    return floats_of_halves(_mm256_cvtph_ps(_mm256_castsi256_si128(x)),
                            _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1)));
}

static inline simde__m512i ints_of_u16(__m256i x)
{
    return ints_of_halves(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
                          _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)));
}

static inline simde__m512i ints_of_i8(__m128i x)
{
    return ints_of_halves(_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)));
}

/* x minus the integer next to it; 0 for infinity. */
static inline __m256 fractions(__m256 x)
{
    const __m256 f = _mm256_sub_ps(x, _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    const __m256 infinite =
        _mm256_cmp_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x), _mm256_set1_ps(INFINITY), _CMP_EQ_OQ);
    return _mm256_andnot_ps(infinite, f);
}

/* x * 2^n for an integer n, or minus infinity; 0 in place of what is subnormal, NaN where n is. */
static inline __m256 scaled(__m256 x, __m256 n)
{
    const __m256 normal = _mm256_max_ps(_mm256_set1_ps(-127), n);
    const __m256i power =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(normal), _mm256_set1_epi32(127)), 23);
    const __m256 y = _mm256_mul_ps(x, _mm256_castsi256_ps(power));
    return _mm256_blendv_ps(y, n, _mm256_cmp_ps(n, n, _CMP_UNORD_Q));
}

static inline __m256i f16_of_floats(simde__m512 x)
{
    return _mm256_set_m128i(_mm256_cvtps_ph(floats_half(x, 1), 0), _mm256_cvtps_ph(floats_half(x, 0), 0));
}

/* Numbers that 16 bits hold. */
static inline __m256i u16_of_ints(simde__m512i x)
{
    const __m256i packed = _mm256_packus_epi32(ints_half(x, 0), ints_half(x, 1));
    return _mm256_permute4x64_epi64(packed, 0xd8);
}

#define _mm512_reduce_ps(x, how) floats_of_halves(fractions(floats_half(x, 0)), fractions(floats_half(x, 1)))
#define _mm512_scalef_ps(x, n)                                                                               \
    floats_of_halves(scaled(floats_half(x, 0), floats_half(n, 0)),                                           \
                     scaled(floats_half(x, 1), floats_half(n, 1)))
#define _mm512_cvtps_ph(x, how)               f16_of_floats(x)
#define _mm512_cvtepi32_epi16(x)              u16_of_ints(x)
#define _mm512_shuffle_f32x4(a, b, which)     shuffle_quarters(a, b, which)
#define _mm512_cmplt_epi32_mask(a, b)         less_mask(a, b)
#define _mm512_mask_cmplt_epi32_mask(k, a, b) ((uint16_t)((k)&less_mask(a, b)))
#define _mm512_cvtepi32_ps(x)                                                                                \
    floats_of_halves(_mm256_cvtepi32_ps(ints_half(x, 0)), _mm256_cvtepi32_ps(ints_half(x, 1)))
#define _mm512_cvtps_epi32(x)                                                                                \
    ints_of_halves(_mm256_cvtps_epi32(floats_half(x, 0)), _mm256_cvtps_epi32(floats_half(x, 1)))
#define _mm512_cvtph_ps(x)              floats_of_f16(x)
#define _mm512_cvtepu16_epi32(x)        ints_of_u16(x)
#define _mm512_cvtepi8_epi32(x)         ints_of_i8(x)
#define _mm512_cvtss_f32(x)             _mm256_cvtss_f32(floats_half(x, 0))
#define _mm512_extractf32x8_ps(x, half) floats_half(x, half)

#include "simd/avx512.h"

#endif
