/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Level wide: sixteen f32 lanes in plain C. No plugin that is shipped has it; it holds the kernels to
 * VEC_LANES where all other levels have eight lanes, and shows what a level consists of.
 */
#ifndef ATTN_TEST_CPU_WIDE_H
#define ATTN_TEST_CPU_WIDE_H

#include "fp8-int8.h"
#include "half.h"
#include "simd/base.h"

#define VEC_LANES     16u
#define VEC_REGISTERS 16u

typedef float vec __attribute__((vector_size(64)));
typedef int32_t vec_int __attribute__((vector_size(64)));
typedef vec_int vec_bool; /* lanes of ones or zeros */
typedef float vec4 __attribute__((vector_size(16)));

INLINE vec vec_set(float x)
{
    return (vec){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

INLINE vec vec_zero(void)
{
    return vec_set(0);
}

INLINE vec vec_broadcast(const float *p)
{
    return vec_set(*p);
}

INLINE vec vec_load_f32(const float *p)
{
    vec x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE void vec_store(float *p, vec x)
{
    memcpy(p, &x, sizeof x);
}

INLINE vec vec_load8(enum vec_type type, const char *p)
{
    static const uint32_t dtypes[] = {ATTN_F32,  ATTN_F16,  ATTN_BF16,     ATTN_INT8,
                                      ATTN_E4M3, ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ};
    const uint32_t dtype = type == VEC_E4M3_FINITE ? ATTN_E4M3 : dtypes[type];
    vec x;
    for (uint32_t i = 0; i < VEC_LANES; i++)
        x[i] = attn__codec8_decode(dtype, (uint8_t)p[i]) / vec_gain(type);
    return x;
}

INLINE vec vec_load(enum vec_type type, const char *p)
{
    vec x;
    uint16_t half[VEC_LANES];
    if (vec_size(type) == 1)
        return vec_load8(type, p);
    if (type == VEC_F32) {
        memcpy(&x, p, sizeof x);
        return x;
    }
    memcpy(half, p, sizeof half);
    for (uint32_t i = 0; i < VEC_LANES; i++)
        x[i] = type == VEC_F16 ? attn__f16_to_f32(half[i]) : attn__bf16_to_f32(half[i]);
    return x;
}

INLINE void vec_store_half(enum vec_type type, void *p, vec x)
{
    uint16_t half[VEC_LANES];
    for (uint32_t i = 0; i < VEC_LANES; i++)
        half[i] = type == VEC_F16 ? attn__f32_to_f16(x[i]) : attn__f32_to_bf16(x[i]);
    memcpy(p, half, sizeof half);
}

INLINE vec vec_add(vec a, vec b)
{
    return a + b;
}

INLINE vec vec_sub(vec a, vec b)
{
    return a - b;
}

INLINE vec vec_mul(vec a, vec b)
{
    return a * b;
}

INLINE vec vec_div(vec a, vec b)
{
    return a / b;
}

/* Rounded twice, unlike every real level: fmaf() of sixteen lanes would take minutes. */
INLINE vec vec_fma(vec a, vec b, vec c)
{
    return a * b + c;
}

INLINE vec_bool vec_less(vec a, vec b)
{
    return a < b;
}

INLINE vec_bool vec_equal(vec a, vec b)
{
    return a == b;
}

INLINE vec vec_select(vec_bool which, vec yes, vec no)
{
    return (vec)((which & (vec_int)yes) | (~which & (vec_int)no));
}

INLINE vec vec_max(vec a, vec b)
{
    return vec_select(b < a, a, b);
}

INLINE vec vec_min(vec a, vec b)
{
    return vec_select(a < b, a, b);
}

INLINE vec vec_abs(vec a)
{
    return (vec)((vec_int)a & INT32_MAX);
}

INLINE vec vec_signed(vec a, vec b)
{
    return (vec)((vec_int)a | ((vec_int)b & INT32_MIN));
}

INLINE vec vec_power(vec n)
{
    return (vec)(((vec_int)n << 23) + (127 << 23));
}

INLINE int vec_any_nan(vec a)
{
    const vec_bool nan = a != a;
    int any = 0;
    for (uint32_t i = 0; i < VEC_LANES; i++)
        any |= nan[i];
    return any != 0;
}

INLINE vec_bool vec_lanes(uint32_t bits)
{
    vec_bool set;
    for (uint32_t i = 0; i < VEC_LANES; i++)
        set[i] = -(int32_t)(bits >> i & 1);
    return set;
}

INLINE uint32_t vec_bits(vec_bool lanes)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < VEC_LANES; i++)
        bits |= (uint32_t)(lanes[i] != 0) << i;
    return bits;
}

INLINE vec_int vec_load_int(const int32_t *p)
{
    vec_int x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE vec_bool vec_bit(vec_int words, uint32_t i)
{
    return (words & (int32_t)(UINT32_C(1) << i)) != 0;
}

INLINE float vec_reduce_add(vec a)
{
    float sum[VEC_LANES];
    vec_store(sum, a);
    for (uint32_t n = VEC_LANES / 2; n > 0; n /= 2)
        for (uint32_t i = 0; i < n; i++)
            sum[i] += sum[n + i];
    return sum[0];
}

INLINE vec4 vec_sum4(vec a, vec b, vec c, vec d)
{
    return (vec4){vec_reduce_add(a), vec_reduce_add(b), vec_reduce_add(c), vec_reduce_add(d)};
}

INLINE void vec4_store(float *p, vec4 x)
{
    memcpy(p, &x, sizeof x);
}

INLINE void vec4_store_pairs(float *p, float *q, vec4 x)
{
    memcpy(p, &x, sizeof x / 2);
    memcpy(q, (const float *)&x + 2, sizeof x / 2);
}

INLINE float vec_first(vec a)
{
    return a[0];
}

INLINE float vec_reduce_max(vec a)
{
    float max = a[0];
    for (uint32_t i = 1; i < VEC_LANES; i++)
        max = a[i] > max ? a[i] : max;
    return max;
}

INLINE void vec_transpose(vec *a)
{
    for (uint32_t i = 0; i < VEC_LANES; i++) {
        for (uint32_t j = 0; j < i; j++) {
            const float x = a[i][j];
            a[i][j] = a[j][i];
            a[j][i] = x;
        }
    }
}

#endif
