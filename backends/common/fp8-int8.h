/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The 8-bit types: exact decoding, and encoding to nearest even with saturation (docs/definition.md, section
 * 2). Independent of the caller's rounding mode.
 */
#ifndef ATTN_COMMON_FP8_INT8_H
#define ATTN_COMMON_FP8_INT8_H

#include <math.h>
#include <stdbool.h>

#include "attn/types.h"

/* The layout of an 8-bit float type. */
struct attn__float8 {
    int mantissa; /* bits */
    int bias;
    uint8_t largest;
    bool fnuz; /* one NaN, 80, and neither infinity nor -0 */
};

static inline struct attn__float8 attn__float8_of(uint32_t dtype)
{
    switch (dtype) {
    case ATTN_E4M3:
        return (struct attn__float8){3, 7, 0x7e, false};
    case ATTN_E5M2:
        return (struct attn__float8){2, 15, 0x7b, false};
    case ATTN_E4M3FNUZ:
        return (struct attn__float8){3, 8, 0x7f, true};
    default:
        return (struct attn__float8){2, 16, 0x7f, true};
    }
}

static inline float attn__codec8_decode(uint32_t dtype, uint8_t code)
{
    const struct attn__float8 type = attn__float8_of(dtype);
    const int rest = code & 0x7f;
    const int exponent = rest >> type.mantissa, fraction = rest & ((1 << type.mantissa) - 1);

    if (dtype == ATTN_INT8)
        return (float)(int8_t)code;
    if (type.fnuz ? code == 0x80 : rest > type.largest + (type.mantissa == 2))
        return NAN;
    if (!type.fnuz && type.mantissa == 2 && rest == 0x7c)
        return code == 0x7c ? INFINITY : -INFINITY;
    const int whole = exponent > 0 ? fraction + (1 << type.mantissa) : fraction;
    const float size = ldexpf((float)whole, (exponent > 0 ? exponent : 1) - type.bias - type.mantissa);
    return code >= 0x80 ? -size : size;
}

/* Nearest whole number of a finite value >= 0, ties to even. */
static inline int attn__round_even(double value)
{
    const int below = (int)value;
    const double rest = value - below;

    return below + (rest > 0.5 || (rest == 0.5 && (below & 1) != 0));
}

static inline uint8_t attn__codec8_encode(uint32_t dtype, float value)
{
    const struct attn__float8 type = attn__float8_of(dtype);
    const bool negative = signbit(value) != 0;
    const double size = fabs((double)value);

    if (dtype == ATTN_INT8) {
        const int whole = isnan(value) ? 0 : size >= 127 ? 127 : attn__round_even(size);
        return (uint8_t)(negative ? -whole : whole);
    }
    if (isnan(value))
        return type.fnuz ? 0x80 : 0x7f;
    int code = type.largest;
    if (size < 65536) { /* beyond the largest of all types */
        int exponent = size > 0 ? ilogb(size) : 1 - type.bias;
        exponent = exponent < 1 - type.bias ? 1 - type.bias : exponent;
        /* A carry out of the fraction is the next exponent's first code. */
        code = ((exponent + type.bias - 1) << type.mantissa) +
               attn__round_even(ldexp(size, type.mantissa - exponent));
        code = code > type.largest ? type.largest : code;
    }
    return (uint8_t)(negative && (code != 0 || !type.fnuz) ? code | 0x80 : code);
}

/* Q of a token-head scale: the largest that a row is scaled to. */
static inline float attn__codec8_largest(uint32_t dtype)
{
    return dtype == ATTN_INT8 ? 127.0f : attn__codec8_decode(dtype, attn__float8_of(dtype).largest);
}

#endif
