/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The arithmetic ceiling of AVX-512 BF16: sums of products of pairs, in registers. */
#include <immintrin.h>

#include "ceilings.h"

enum { SUMS = 12, FLOPS = SUMS * 16 * 2 * 2 };

#define ADD(sum) ((sum) = _mm512_dpbf16_ps(sum, x, y))

static float compute_pairs(uint64_t rounds)
{
    /* 2^-7 times itself and 1 times a half, both positive: no sum is a subnormal number. */
    const __m512bh x = (__m512bh)_mm512_set1_epi32(0x3c003f80), y = (__m512bh)_mm512_set1_epi32(0x3c003f00);
    __m512 a = _mm512_set1_ps(1), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a;
    float first[16];

    for (uint64_t round = 0; round < rounds; round++) {
        ADD(a);
        ADD(b);
        ADD(c);
        ADD(d);
        ADD(e);
        ADD(f);
        ADD(g);
        ADD(h);
        ADD(i);
        ADD(j);
        ADD(k);
        ADD(l);
        /* Sums that begin alike would be one. */
        __asm__ volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f));
        __asm__ volatile("" : "+v"(g), "+v"(h), "+v"(i), "+v"(j), "+v"(k), "+v"(l));
    }
    a = _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d));
    e = _mm512_add_ps(_mm512_add_ps(e, f), _mm512_add_ps(g, h));
    i = _mm512_add_ps(_mm512_add_ps(i, j), _mm512_add_ps(k, l));
    _mm512_storeu_ps(first, _mm512_add_ps(a, _mm512_add_ps(e, i)));
    return first[0];
}

const struct ceiling_functions ceiling_avx512bf16 = {.compute = compute_pairs, .flops = FLOPS};
