/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Products of int8 by AVX-512 VNNI: see madd.h. An instruction multiplies codes without a sign with codes
 * that have one. Keys are taken 128 higher, and what this adds to a sum, 128 times the codes of the query, is
 * what sums begin without.
 */
#ifndef ATTN_CPU_SIMD_VNNI_H
#define ATTN_CPU_SIMD_VNNI_H

#define DOT_CODES 16u
#define DOT_KEYS  4u

typedef int8_t dot_code;
typedef __m512i dots, dot_operand;

INLINE dots dot_begin(int32_t query)
{
    return _mm512_maskz_set1_epi32(0x1111, -128 * query);
}

INLINE dot_operand dot_query(const dot_code *q)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)q));
}

INLINE __m128i dot_load(const char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

INLINE dot_operand dot_keys(const char *const *keys, size_t at)
{
    __m512i x = _mm512_castsi128_si512(dot_load(keys[0] + at));
    x = _mm512_inserti32x4(x, dot_load(keys[1] + at), 1);
    x = _mm512_inserti32x4(x, dot_load(keys[2] + at), 2);
    x = _mm512_inserti32x4(x, dot_load(keys[3] + at), 3);
    return _mm512_xor_si512(x, _mm512_set1_epi8(-128));
}

INLINE dots dot_add(dots sum, dot_operand keys, dot_operand query)
{
    return _mm512_dpbusd_epi32(sum, keys, query);
}

/* The sums of four keys in each of four vectors, those of a first. */
INLINE vec dot_sums(dots a, dots b, dots c, dots d)
{
    static const int32_t order[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    return _mm512_cvtepi32_ps(_mm512_permutexvar_epi32(_mm512_loadu_si512(order), all));
}

/* Sums of `rows` query rows and eight keys, rows `stride` floats apart. */
INLINE void dots_store(uint32_t rows, uint32_t keys, const dots *a, float *s, uint32_t stride)
{
    (void)keys;
    UNROLL
    for (uint32_t r = 0; r < rows; r += 2) {
        const dots *second = a + 2 * (r + 1 < rows ? r + 1 : r);
        const vec x = dot_sums(a[2 * r], a[2 * r + 1], second[0], second[1]);
        _mm256_storeu_ps(s + r * stride, _mm512_castps512_ps256(x));
        if (r + 1 < rows)
            _mm256_storeu_ps(s + (r + 1) * stride, _mm512_extractf32x8_ps(x, 1));
    }
}

#endif
