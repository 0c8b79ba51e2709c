/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests the conversions of all 65,536 codes, and the rounding around and between each two neighbours. */
#include <criterion/criterion.h>
#include <math.h>

#include "half.h"

/* A 16-bit format by its fields. */
struct format {
    uint32_t exponent_bits;
    uint32_t fraction_bits;
    float (*load)(uint16_t half);
    uint16_t (*store)(float value);
};

static const struct format f16 = {5, 10, attn__f16_to_f32, attn__f32_to_f16};
static const struct format bf16 = {8, 7, attn__bf16_to_f32, attn__f32_to_bf16};

/* Value of a code by the definition of the format; infinite or NaN where the exponent is all ones. */
static double decode(const struct format *format, uint32_t code)
{
    uint32_t top = (1u << format->exponent_bits) - 1u, one = 1u << format->fraction_bits;
    int bias = (int)(top >> 1), least = 1 - bias - (int)format->fraction_bits;
    uint32_t exponent = code >> format->fraction_bits & top, fraction = code & (one - 1u);
    double magnitude;

    if (exponent == top)
        magnitude = fraction == 0 ? (double)INFINITY : (double)NAN;
    else if (exponent == 0)
        magnitude = ldexp(fraction, least);
    else
        magnitude = ldexp(one + fraction, least + (int)exponent - 1);
    return (code & 0x8000u) != 0 ? -magnitude : magnitude;
}

static void check_codes(const struct format *format)
{
    uint16_t quiet = (uint16_t)(1u << (format->fraction_bits - 1u));

    for (uint32_t code = 0; code < 65536; code++) {
        double wanted = decode(format, code);
        float got = format->load((uint16_t)code);
        if (isnan(wanted)) {
            cr_assert(isnan(got), "%04x", code);
            cr_assert((attn__f32_bits(got) & 0x400000u) != 0, "%04x stays signalling", code);
            cr_assert_eq(format->store(got), code | quiet, "%04x", code);
            cr_assert_eq(format->store(attn__f32_of_bits((attn__f32_bits(got) & ~0x400000u) | 1u)),
                         code | quiet, "%04x signalling", code);
            continue;
        }
        cr_assert((double)got == wanted && !signbit(got) == !signbit(wanted), "%04x", code);
        cr_assert_eq(format->store(got), code, "%04x", code);
    }
}

/* Between each two neighbours: the middle goes to the even one, one f32 step beside it to the nearer one. */
static void check_rounding(const struct format *format)
{
    uint32_t infinity = ((1u << format->exponent_bits) - 1u) << format->fraction_bits;

    for (uint32_t code = 0; code < infinity; code++) {
        double below = decode(format, code);
        /* What the next code would be worth if the format had no infinity. */
        double above = code + 1 < infinity ? decode(format, code + 1) : 2 * below - decode(format, code - 1);
        float middle = (float)((below + above) / 2);
        uint32_t even = (code & 1u) == 0 ? code : code + 1;
        cr_assert((double)middle == (below + above) / 2);
        cr_assert_eq(format->store(middle), even, "%04x", code);
        cr_assert_eq(format->store(-middle), even | 0x8000u, "-%04x", code);
        cr_assert_eq(format->store(nextafterf(middle, 0)), code, "%04x", code);
        cr_assert_eq(format->store(nextafterf(middle, INFINITY)), code + 1, "%04x", code);
    }
    cr_assert_eq(format->store(INFINITY), infinity);
    cr_assert_eq(format->store(0x1.fffffep127f), infinity);
    cr_assert_eq(format->store(-0x1p-149f), 0x8000u);
}

Test(half, f16_codes)
{
    check_codes(&f16);
}

Test(half, f16_rounding)
{
    check_rounding(&f16);
}

Test(half, bf16_codes)
{
    check_codes(&bf16);
}

Test(half, bf16_rounding)
{
    check_rounding(&bf16);
}
