/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Functions of device.h that AMD's instructions lack, without any library of device code. The same source is
 * host code for its test, which finds them within 3 units in the last place (f64) and 4 (f32).
 */
#ifndef ATTN_GPU_DEVICE_HIP_MATH_H
#define ATTN_GPU_DEVICE_HIP_MATH_H

#include <stdint.h>

#if defined(__AMDGCN__)
#define GPU_MATH           static __attribute__((device, always_inline)) inline
#define GPU_MATH_NEAR_1(x) __builtin_amdgcn_rcpf(x)
#else
#define GPU_MATH           static inline
#define GPU_MATH_NEAR_1(x) (1.0f / (x))
#endif

#define GPU_MATH_LN2_HIGH 0x1.62e42fefa39efp-1
#define GPU_MATH_LN2_LOW  0x1.abc9e3b39803fp-56
#define GPU_MATH_LOG2_E   0x1.71547652b82fep+0

/* exp(r) - 1 for |r| <= ln(2) / 2: what follows r is a sum of r^n / n!. */
GPU_MATH double gpu_math_less_1(double r)
{
    double sum = 1.0 / 6227020800;

    sum = __builtin_fma(sum, r, 1.0 / 479001600);
    sum = __builtin_fma(sum, r, 1.0 / 39916800);
    sum = __builtin_fma(sum, r, 1.0 / 3628800);
    sum = __builtin_fma(sum, r, 1.0 / 362880);
    sum = __builtin_fma(sum, r, 1.0 / 40320);
    sum = __builtin_fma(sum, r, 1.0 / 5040);
    sum = __builtin_fma(sum, r, 1.0 / 720);
    sum = __builtin_fma(sum, r, 1.0 / 120);
    sum = __builtin_fma(sum, r, 1.0 / 24);
    sum = __builtin_fma(sum, r, 1.0 / 6);
    sum = __builtin_fma(sum, r, 0.5);
    return __builtin_fma(r * r, sum, r);
}

/* x = n * ln(2) + the result. */
GPU_MATH double gpu_math_reduce(double x, double *n)
{
    *n = __builtin_rint(x * GPU_MATH_LOG2_E);
    return __builtin_fma(-*n, GPU_MATH_LN2_LOW, __builtin_fma(-*n, GPU_MATH_LN2_HIGH, x));
}

GPU_MATH double gpu_math_exp_f64(double x)
{
    double n, near = x > 720 ? 720 : x;

    near = near < -760 ? -760 : near;
    if (near != near)
        return x;
    const double r = gpu_math_reduce(near, &n);
    return __builtin_ldexp(1 + gpu_math_less_1(r), (int)n);
}

/* 2^e * m with m from sqrt(1/2) to sqrt(2), and ln(m) = 2 * artanh((m - 1) / (m + 1)). */
GPU_MATH double gpu_math_log_f64(double x)
{
    const double infinity = __builtin_inf();
    uint64_t bits;
    int32_t e = 0;

    if (!(x > 0))
        return x == 0 ? -infinity : __builtin_nan("");
    if (x == infinity)
        return x;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        e = -54;
    }
    __builtin_memcpy(&bits, &x, sizeof bits);
    bits += UINT64_C(0x3ff0000000000000) - UINT64_C(0x3fe6a09e667f3bcd);
    e += (int32_t)(bits >> 52) - 1023;
    bits = (bits & UINT64_C(0x000fffffffffffff)) + UINT64_C(0x3fe6a09e667f3bcd);
    double m;
    __builtin_memcpy(&m, &bits, sizeof m);
    const double f = m - 1, s = f / (2 + f), square = s * s;
    double sum = 1.0 / 23;
    sum = __builtin_fma(sum, square, 1.0 / 21);
    sum = __builtin_fma(sum, square, 1.0 / 19);
    sum = __builtin_fma(sum, square, 1.0 / 17);
    sum = __builtin_fma(sum, square, 1.0 / 15);
    sum = __builtin_fma(sum, square, 1.0 / 13);
    sum = __builtin_fma(sum, square, 1.0 / 11);
    sum = __builtin_fma(sum, square, 1.0 / 9);
    sum = __builtin_fma(sum, square, 1.0 / 7);
    sum = __builtin_fma(sum, square, 1.0 / 5);
    sum = __builtin_fma(sum, square, 1.0 / 3);
    const double log_m = __builtin_fma(2 * s * square, sum, 2 * s);
    return __builtin_fma((double)e, GPU_MATH_LN2_HIGH, __builtin_fma((double)e, GPU_MATH_LN2_LOW, log_m));
}

/* -y / (2 + y) with y = exp(-2 |x|) - 1. */
GPU_MATH double gpu_math_tanh_f64(double x)
{
    const double size = __builtin_fabs(x);
    double n;

    if (!(size < 22))
        return x != x ? x : __builtin_copysign(1.0, x);
    const double r = gpu_math_reduce(-2 * size, &n), power = __builtin_ldexp(1.0, (int)n);
    const double y = __builtin_fma(power, gpu_math_less_1(r), power - 1);
    return __builtin_copysign(y / (2 + y), x);
}

GPU_MATH float gpu_math_tanh(float x)
{
    const float size = __builtin_fabsf(x), t = -2 * (size < 10 ? size : 10);
    const float n = __builtin_rintf(t * 0x1.715476p+0f);
    const float r = __builtin_fmaf(-n, -0x1.05c61p-29f, __builtin_fmaf(-n, 0x1.62e43p-1f, t));
    const float power = __builtin_ldexpf(1.0f, (int)n);
    float sum = 1.0f / 5040;

    sum = __builtin_fmaf(sum, r, 1.0f / 720);
    sum = __builtin_fmaf(sum, r, 1.0f / 120);
    sum = __builtin_fmaf(sum, r, 1.0f / 24);
    sum = __builtin_fmaf(sum, r, 1.0f / 6);
    sum = __builtin_fmaf(sum, r, 0.5f);
    const float y = __builtin_fmaf(power, __builtin_fmaf(r * r, sum, r), power - 1);
    return x != x ? x : __builtin_copysignf(y * GPU_MATH_NEAR_1(2 + y), x);
}

#endif
