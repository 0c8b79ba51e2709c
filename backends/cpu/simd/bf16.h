/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pairs of bf16 in the lanes of vectors of AVX-512, by AVX-512 BF16. Behind avx512.h. */
#ifndef ATTN_CPU_SIMD_BF16_H
#define ATTN_CPU_SIMD_BF16_H

/* Sixteen pairs of bf16: each lane of `even` and `odd`, rounded to nearest even. */
INLINE vec_int bf16_pairs(vec even, vec odd)
{
    static const uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}

/* A number with the upper half of its bits: what a bf16 keeps of it without rounding. */
INLINE vec bf16_cut(vec x)
{
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int32_t)0xffff0000)));
}

/* The pairs of bf16_pairs, cut and not rounded. */
INLINE vec_int bf16_cut_pairs(vec even, vec odd)
{
    const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even), 16);
    return _mm512_or_si512(low, _mm512_castps_si512(bf16_cut(odd)));
}

INLINE vec bf16_even(vec_int pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

INLINE vec bf16_odd(vec_int pairs)
{
    return bf16_cut(_mm512_castsi512_ps(pairs));
}

INLINE void bf16_store_pairs(uint16_t *to, vec_int pairs)
{
    _mm512_storeu_si512(to, pairs);
}

/*
 * 2^(x + 1/2) as bf16 codes in the lower halves of lanes, to nearest with a relative error below 1.06 times
 * that of rounding; 2^0 is exactly 1, below 2^-126 the code is 0 or that of a subnormal. For x < 127; what is
 * made of NaN is not one. The last sum rounds to the seven bits behind the point that a bf16 from 1 to 2 has,
 * and a code is a number on a scale of 2^-7 of a power of two: the exponent is added to it.
 */
INLINE vec_int bf16_exp2(vec x)
{
    const vec magic = vec_set(0x1.8p23f);
    x = vec_max(vec_set(-127.5f), x);
    const vec t = vec_add(x, magic);
    const vec f = vec_sub(x, vec_sub(t, magic));
    vec p = vec_set(0x1.487afap-4f);
    p = vec_fma(p, f, vec_set(0x1.600dfep-2f));
    p = vec_fma(p, f, vec_set(0x1.f5d6acp-1f));
    p = vec_fma(p, f,
                vec_set(0x1.8p16f + 126 + 0x1.6ap0f)); /* 126: the exponent of a code counts from -126 */
    return _mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 7));
}

/* Codes, but of NaN where x is. */
INLINE vec_int bf16_nan(vec x, vec_int codes)
{
    return _mm512_mask_mov_epi32(codes, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc0));
}

/* Pairs of codes, of which lanes have one in the lower half. */
INLINE vec_int bf16_join(vec_int even, vec_int odd)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, even, _mm512_slli_epi32(odd, 16));
}

/* Adds both numbers of each pair to a lane of `sum`. */
INLINE vec bf16_add_pairs(vec sum, vec_int pairs)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)pairs, (__m512bh)_mm512_set1_epi16(0x3f80));
}

/* Adds the products of both numbers of each pair to a lane of `sum`. Subnormal numbers count as 0. */
INLINE vec bf16_product(vec x, vec y, vec sum)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(x), (__m512bh)_mm512_castps_si512(y));
}

#endif
