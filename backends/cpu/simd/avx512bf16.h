/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Level avx512bf16: level avx512 with products of bf16, for prefill whose weights may be rounded to it alone.
 */
#ifndef ATTN_CPU_SIMD_AVX512BF16_H
#define ATTN_CPU_SIMD_AVX512BF16_H

#include <stdbool.h>

#define VEC_BF16_ALONE
#include "avx512.h"
#include "bf16.h"

/* Pairs of 16 numbers of two rows. */
INLINE vec_int bf16_interleave(const uint16_t *even, const uint16_t *odd)
{
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)even));
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)odd));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* The numbers of pairs that come second, or first, as f32. */
INLINE vec bf16_of_pairs(vec pairs, uint32_t second)
{
    const vec_int x = _mm512_castps_si512(pairs);
    return second != 0 ? bf16_odd(x) : bf16_even(x);
}

/* Whether a number of them is not finite. */
INLINE bool bf16_any_nonfinite(vec_int pairs)
{
    const __m512i size = _mm512_and_si512(pairs, _mm512_set1_epi16(0x7fff));
    return _mm512_cmplt_epu16_mask(size, _mm512_set1_epi16(0x7f80)) != UINT32_MAX;
}

#endif
