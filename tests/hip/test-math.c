/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Functions that the port for AMD has by itself, as host code, against those of C. */
#include <criterion/criterion.h>
#include <math.h>

#include "device-hip-math.h"

/* Numbers between two doubles. */
static double apart(double a, double b)
{
    int64_t x, y, more;

    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b) ? 0 : INFINITY;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    x = x < 0 ? INT64_MIN - x : x;
    y = y < 0 ? INT64_MIN - y : y;
    return __builtin_sub_overflow(x, y, &more) ? INFINITY : fabs((double)more);
}

static uint64_t state = 1;

static uint64_t random_bits(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state ^ state >> 31;
}

/* From -1 to 1. */
static double random_number(void)
{
    return (double)(int64_t)random_bits() * 0x1p-63;
}

static double random_of_all(void)
{
    const uint64_t bits = random_bits();
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

typedef double function_fn(double);

static double own_exp(double x)
{
    return gpu_math_exp_f64(x);
}
static double own_log(double x)
{
    return gpu_math_log_f64(x);
}
static double own_tanh(double x)
{
    return gpu_math_tanh_f64(x);
}

static void compare(function_fn *own, function_fn *theirs, double x)
{
    const double got = own(x), wanted = theirs(x);

    cr_assert_leq(apart(got, wanted), 3, "of %a: %a, not %a", x, got, wanted);
}

static void compare_all(function_fn *own, function_fn *theirs, double size)
{
    static const double edges[] = {0.0,
                                   1.0,
                                   0x1p-1022,
                                   0x1p-1074,
                                   0x1.fffffffffffffp1023,
                                   INFINITY,
                                   0x1p-30,
                                   0x1p-60,
                                   0x1.6a09e667f3bcdp-1,
                                   0x1.6a09e667f3bccp0,
                                   22,
                                   21.99999,
                                   709.78271,
                                   0x1.62e42fefa39efp9,
                                   0x1.62e42fefa39f0p9,
                                   744.44,
                                   745.1332,
                                   746,
                                   1e9};

    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        compare(own, theirs, edges[i]);
        compare(own, theirs, -edges[i]);
        compare(own, theirs, nextafter(edges[i], INFINITY));
        compare(own, theirs, nextafter(edges[i], -INFINITY));
    }
    compare(own, theirs, NAN);
    for (uint32_t i = 0; i < 300000; i++) {
        compare(own, theirs, size * random_number());
        compare(own, theirs, random_number());
        compare(own, theirs, 1 + 1e-6 * random_number());
        compare(own, theirs, random_of_all());
    }
}

Test(math, exp_f64)
{
    compare_all(own_exp, exp, 750);
}

Test(math, log_f64)
{
    compare_all(own_log, log, 1e300);
}

Test(math, tanh_f64)
{
    compare_all(own_tanh, tanh, 25);
    cr_assert(signbit(gpu_math_tanh_f64(-0.0)));
}

Test(math, tanh)
{
    for (uint32_t i = 0; i < 1000000; i++) {
        const float x = (float)(i % 2 == 0 ? 12 * random_number() : pow(2, 60 * random_number() - 60));
        const double wanted = tanh((double)x), got = (double)gpu_math_tanh(x);
        cr_assert_leq(fabs(got - wanted), 0x1p-22 * fabs(wanted), "of %a: %a, not %a", (double)x, got,
                      wanted);
    }
    cr_assert_eq(gpu_math_tanh(INFINITY), 1);
    cr_assert_eq(gpu_math_tanh(-INFINITY), -1);
    cr_assert_eq(gpu_math_tanh(0), 0);
    cr_assert(isnan(gpu_math_tanh(NAN)));
}
