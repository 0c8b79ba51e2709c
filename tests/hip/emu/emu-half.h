/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* f16 and bf16 to and from f32 without branches, so that loops over lanes vectorise. */
#ifndef EMU_HALF_H
#define EMU_HALF_H

#include <math.h>

#include "emu-wave.h"

static inline float f32_of_f16(uint32_t h)
{
    uint32_t sign = (h & 0x8000) << 16;
    uint32_t most = (h & 0x7fff) << 13;
    uint32_t made = bits_of_f32(f32_of_bits(most) * 0x1p112f);
    made = most >= 0x0f800000 ? most | 0x7f800000 : made;
    return f32_of_bits(made | sign);
}

static inline uint32_t f16_of_f32(float f)
{
    uint32_t u = bits_of_f32(f);
    uint32_t sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    uint32_t normal = (u + 0xfff + (u >> 13 & 1) - (112u << 23)) >> 13;
    uint32_t small = bits_of_f32(f32_of_bits(u) + 0.5f) - 0x3f000000;
    uint32_t made = u < 0x38800000 ? small : normal;
    made = u >= 0x47800000 ? 0x7c00 : made;
    made = u > 0x7f800000 ? (0x7e00 | (u >> 13 & 0x3ff)) : made;
    return made | sign;
}

/* Towards zero. */
static inline uint32_t f16_of_f32_rtz(float f)
{
    uint32_t u = bits_of_f32(f);
    uint32_t sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    uint32_t normal = (u - (112u << 23)) >> 13;
    uint32_t small = (uint32_t)(int32_t)(f32_of_bits(u < 0x38800000 ? u : 0) * 0x1p24f);
    uint32_t made = u < 0x38800000 ? small : normal;
    made = u >= 0x47800000 ? 0x7bff : made;
    made = u == 0x7f800000 ? 0x7c00 : made;
    made = u > 0x7f800000 ? (0x7e00 | (u >> 13 & 0x3ff)) : made;
    return made | sign;
}

/* To f32 with the lost bits in the last one, so that a second rounding is right. */
static inline float f32_odd_of_f64(double d)
{
    float f = (float)d;
    uint32_t u = bits_of_f32(f);
    uint32_t odd = (u - (fabs((double)f) > fabs(d))) | 1;
    return f32_of_bits((double)f != d ? odd : u);
}

static inline uint32_t f16_of_f64(double d)
{
    return f16_of_f32(f32_odd_of_f64(d));
}

static inline float f32_of_bf16(uint32_t b)
{
    return f32_of_bits(b << 16);
}

static inline uint32_t bf16_of_f32(float f)
{
    uint32_t u = bits_of_f32(f);
    uint32_t made = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (u & 0x7fffffff) > 0x7f800000 ? (u >> 16 | 0x40) : made;
}

static inline float f32_flushed(float f)
{
    uint32_t u = bits_of_f32(f);
    return f32_of_bits((u & 0x7f800000) == 0 ? u & 0x80000000 : u);
}

#endif
