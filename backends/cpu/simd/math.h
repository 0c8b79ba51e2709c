/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What follows from a level's operations: vectors of a row, 2^x, tanh, and rows converted to f32. Included
 * behind the level's header; the operations and their order are the same for all levels.
 */
#ifndef ATTN_CPU_SIMD_MATH_H
#define ATTN_CPU_SIMD_MATH_H

#include "blocks.h"
#include "kernels.h"

/* Tiles of keys and blocks of query rows are read in whole vectors, and lanes are counted in 32 bits. */
_Static_assert(VEC_LANES <= 16 && CPU_TILE_KEYS % VEC_LANES == 0 && CPU_PREFILL_ROWS % VEC_LANES == 0,
               "a vector divides the tiles");

/*
 * A row of n >= VEC_LANES elements as vectors: vector i begins at element vec_offset(i, n). If n is no
 * multiple of VEC_LANES the last one overlaps the one before it instead of reaching beyond the row.
 */
INLINE uint32_t vec_count(uint32_t n)
{
    return (n + VEC_LANES - 1) / VEC_LANES;
}

INLINE uint32_t vec_offset(uint32_t i, uint32_t n)
{
    return VEC_LANES * (i + 1) <= n ? VEC_LANES * i : n - VEC_LANES;
}

/* The number of each lane, and of the keys of a tile. */
static const float key_numbers[CPU_TILE_KEYS] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
    22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
    44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};

/* n elements rounded up to whole vectors. */
INLINE uint32_t vec_padded(uint32_t n)
{
    return VEC_LANES * vec_count(n);
}

/* A bit for each lane, as vec_lanes takes them. */
INLINE uint32_t vec_all_lanes(void)
{
    return (UINT32_C(1) << VEC_LANES) - 1;
}

/*
 * 2^x, relative error below 1.1e-7; 2^0 is exactly 1, below 2^-126 the result may be 0, NaN stays NaN. For
 * x <= 127. The fraction lies in [-1/2, 1/2]; the polynomial is a minimax fit with its first coefficient 1.
 */
INLINE vec vec_exp2(vec x)
{
#ifdef VEC_FRACTIONS
    const vec f = vec_fraction(x);
#else
    const vec magic = vec_set(0x1.8p23f);
    x = vec_max(vec_set(-127.0f), x); /* this order keeps a NaN */
    const vec t = vec_add(x, magic);
    const vec f = vec_sub(x, vec_sub(t, magic));
#endif
    vec p = vec_set(0x1.470b4ap-13f);
    p = vec_fma(p, f, vec_set(0x1.5f7276p-10f));
    p = vec_fma(p, f, vec_set(0x1.3b270ep-7f));
    p = vec_fma(p, f, vec_set(0x1.c6ae72p-5f));
    p = vec_fma(p, f, vec_set(0x1.ebfbe2p-3f));
    p = vec_fma(p, f, vec_set(0x1.62e432p-1f));
    p = vec_fma(p, f, vec_set(1.0f));
#ifdef VEC_FRACTIONS
    return vec_scale(p, vec_sub(x, f));
#else
    /* a product instead of an addition to the exponent: a NaN must survive it */
    return vec_mul(p, vec_power(t));
#endif
}

INLINE float vec_exp2_scalar(float x)
{
    return vec_first(vec_exp2(vec_set(x)));
}

/* tanh, relative error below 3e-7 also for small arguments: an odd polynomial, or 1 - 2 / (1 + e^2x). */
INLINE vec vec_tanh(vec x)
{
    const vec one = vec_set(1.0f), two = vec_set(2.0f);
    const vec a = vec_abs(x);
    const vec z = vec_mul(x, x);
    vec p = vec_set(-0x1.722b06p-8f);
    p = vec_fma(p, z, vec_set(0x1.5157fep-6f));
    p = vec_fma(p, z, vec_set(-0x1.b81dc2p-5f));
    p = vec_fma(p, z, vec_set(0x1.110646p-3f));
    p = vec_fma(p, z, vec_set(-0x1.55552ep-2f));
    const vec small = vec_fma(vec_mul(x, z), p, x);
    const vec_bool is_small = vec_less(a, vec_set(0.625f));
    if (vec_bits(is_small) == vec_all_lanes())
        return small;
    /* tanh is 1 in f32 from 9.02 on; this order of the minimum keeps a NaN */
    const vec b = vec_min(vec_set(10.0f), a);
    const vec e = vec_exp2(vec_mul(b, vec_set(0x1.715476p+1f)));
    const vec q = vec_sub(one, vec_div(two, vec_add(one, e)));
    return vec_select(is_small, small, vec_signed(q, x));
}

/* A row of n elements, divided by the type's gain and times `factor`, to f32 at dst. Returns 0 in lanes where
 * all results are finite. */
INLINE vec vec_convert(enum vec_type type, const char *src, uint32_t n, vec factor, float *dst)
{
    vec probe = vec_zero();
    if (n < VEC_LANES) {
        char padded[VEC_LANES * sizeof(float)] = {0};
        float converted[VEC_LANES];
        memcpy(padded, src, (size_t)n * vec_size(type));
        const vec x = vec_mul(vec_load(type, padded), factor);
        vec_store(converted, x);
        memcpy(dst, converted, n * sizeof *dst);
        return vec_mul(x, probe);
    }
    for (uint32_t i = 0; i < vec_count(n); i++) {
        const uint32_t at = vec_offset(i, n);
        const vec x = vec_mul(vec_load_at(type, src, at), factor);
        probe = vec_fma(x, vec_zero(), probe);
        vec_store(dst + at, x);
    }
    return probe;
}

#endif
