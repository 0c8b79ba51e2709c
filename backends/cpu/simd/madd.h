/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Products of int8 by AVX2, for levels whose processors need not have more.
 *
 * A level has sums of products of a query's codes with those of keys, DOT_CODES of each of DOT_KEYS keys at a
 * time: dot_begin, then dot_add of what dot_keys and dot_query load, then dots_store, or where DOT_KEYS is 1
 * dot_sum4. Sums are integers of 32 bits and exact. dot_code is what queries are staged as; dot_begin takes
 * the sum of a query's codes.
 */
#ifndef ATTN_CPU_SIMD_MADD_H
#define ATTN_CPU_SIMD_MADD_H

#define DOT_CODES 16u
#define DOT_KEYS  1u

typedef int16_t dot_code;
typedef __m256i dots, dot_operand;

INLINE dots dot_begin(int32_t query)
{
    (void)query;
    return _mm256_setzero_si256();
}

INLINE dot_operand dot_query(const dot_code *q)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)q);
}

INLINE dot_operand dot_keys(const char *const *keys, size_t at)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(keys[0] + at)));
}

INLINE dots dot_add(dots sum, dot_operand keys, dot_operand query)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(keys, query));
}

INLINE vec4 dot_sum4(dots a, dots b, dots c, dots d)
{
    const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm_cvtepi32_ps(_mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1)));
}

#endif
