/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Conversions between f32, f16 and bf16: correctly rounded to nearest even, NaN kept and made quiet. Integer
 * arithmetic alone, so that they hold in every rounding and flush-to-zero mode of the caller's threads.
 */
#ifndef ATTN_COMMON_HALF_H
#define ATTN_COMMON_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t attn__f32_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float attn__f32_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float attn__f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t rest = half & 0x7fffu;

    if (rest >= 0x7c00u) /* infinity, NaN */
        return attn__f32_of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13 |
                                 (rest > 0x7c00u ? 0x400000u : 0u));
    if (rest >= 0x400u)
        return attn__f32_of_bits(sign | (rest + (112u << 10)) << 13);
    if (rest == 0)
        return attn__f32_of_bits(sign);
    /* Subnormal: its highest bit becomes the hidden one. */
    uint32_t shift = (uint32_t)__builtin_clz(rest) - 21u;
    return attn__f32_of_bits(sign | (113u - shift) << 23 | ((rest << shift) & 0x3ffu) << 13);
}

static inline uint16_t attn__f32_to_f16(float value)
{
    uint32_t bits = attn__f32_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t rest = bits & 0x7fffffffu;

    if (rest > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (rest >> 13 & 0x1ffu));
    if (rest >= 0x477ff000u) /* 65,520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (rest >= 0x38800000u) {
        rest += 0xfffu + (rest >> 13 & 1u);
        return (uint16_t)(sign | (rest - (112u << 23)) >> 13);
    }
    uint32_t shift = 126u - (rest >> 23); /* to units of 2^-24 */
    if (shift > 24u)
        return (uint16_t)sign;
    uint32_t whole = (rest & 0x7fffffu) | 0x800000u;
    uint32_t cut = whole & ((1u << shift) - 1u);
    uint32_t middle = 1u << (shift - 1u);
    uint32_t kept = whole >> shift;
    kept += cut > middle || (cut == middle && (kept & 1u) != 0);
    return (uint16_t)(sign | kept);
}

static inline float attn__bf16_to_f32(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        bits |= 0x400000u;
    return attn__f32_of_bits(bits);
}

static inline uint16_t attn__f32_to_bf16(float value)
{
    uint32_t bits = attn__f32_bits(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#endif
