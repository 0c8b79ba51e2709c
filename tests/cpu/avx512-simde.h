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

#define _mm512_shuffle_f32x4(a, b, which)     shuffle_quarters(a, b, which)
#define _mm512_cmplt_epi32_mask(a, b)         less_mask(a, b)
#define _mm512_mask_cmplt_epi32_mask(k, a, b) ((uint16_t)((k)&less_mask(a, b)))
#define _mm512_cvtepi32_ps(x)                                                                                \
    floats_of_halves(_mm256_cvtepi32_ps(ints_half(x, 0)), _mm256_cvtepi32_ps(ints_half(x, 1)))
#define _mm512_cvtph_ps(x)              floats_of_f16(x)
#define _mm512_cvtepu16_epi32(x)        ints_of_u16(x)
#define _mm512_cvtepi8_epi32(x)         ints_of_i8(x)
#define _mm512_cvtss_f32(x)             _mm256_cvtss_f32(floats_half(x, 0))
#define _mm512_extractf32x8_ps(x, half) floats_half(x, half)

#include "simd/avx512.h"

#endif
