/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Elements of every type to and from f32 on the device (docs/definition.md, section 2): exact decoding,
 * rounding to nearest even, saturating 8-bit stores.
 *
 * A dtype that is a constant where these are inlined costs nothing at run time.
 */
#ifndef ATTN_GPU_NUMBER_H
#define ATTN_GPU_NUMBER_H

#include "attn/types.h"
#include "device.h"

#define GPU_SIZE(dtype) (((dtype) >> 8 & 0xff) / 8)

#define GPU_INFINITY gpu_f32_of_bits(0x7f800000u)
#define GPU_NAN      gpu_f32_of_bits(0x7fc00000u)

GPU_INLINE bool gpu_is_fnuz(uint32_t dtype)
{
    return dtype == ATTN_E4M3FNUZ || dtype == ATTN_E5M2FNUZ;
}

/* Bits of the fraction. */
GPU_INLINE uint32_t gpu_fraction(uint32_t dtype)
{
    return dtype == ATTN_E4M3 || dtype == ATTN_E4M3FNUZ ? 3 : 2;
}

GPU_INLINE uint32_t gpu_bias(uint32_t dtype)
{
    return (gpu_fraction(dtype) == 3 ? 7u : 15u) + gpu_is_fnuz(dtype);
}

/* Code of the largest number; NaN and infinity lie above it in the OCP types. */
GPU_INLINE uint32_t gpu_largest(uint32_t dtype)
{
    return gpu_is_fnuz(dtype) ? 0x7f : dtype == ATTN_E4M3 ? 0x7e : 0x7b;
}

/* The code's fields as an f32, multiplied by 2 to the difference of the exponent biases; so are subnormals.
 */
GPU_INLINE float gpu_decode8(uint32_t dtype, uint32_t code)
{
    const uint32_t rest = code & 0x7f, sign = (code & 0x80) << 24;

    if (dtype == ATTN_INT8)
        return (float)(int32_t)(int8_t)code;
    if (gpu_is_fnuz(dtype) && code == 0x80)
        return GPU_NAN;
    if (rest > gpu_largest(dtype)) {
        const bool infinite = dtype == ATTN_E5M2 && rest == 0x7c;
        return gpu_f32_of_bits(sign | (infinite ? 0x7f800000u : 0x7fc00000u));
    }
    const float size = gpu_f32_of_bits(rest << (23 - gpu_fraction(dtype)));
    const float scale = gpu_f32_of_bits((254 - gpu_bias(dtype)) << 23);
    return gpu_f32_of_bits(sign | gpu_f32_bits(size * scale));
}

/* Nearest whole number of a value from 0 to 2^22, ties to even. */
GPU_INLINE uint32_t gpu_round(float value)
{
    return gpu_f32_bits(value + 8388608.0f) & 0x7fffff;
}

GPU_INLINE uint32_t gpu_encode8(uint32_t dtype, float value)
{
    const uint32_t bits = gpu_f32_bits(value), rest = bits & 0x7fffffff, sign = bits >> 31 << 7;
    const float size = gpu_f32_of_bits(rest);
    const bool nan = rest > 0x7f800000u;

    if (dtype == ATTN_INT8) {
        const uint32_t whole = nan ? 0 : size >= 127 ? 127 : gpu_round(size);
        return (sign != 0 ? 0 - whole : whole) & 0xff;
    }
    if (nan)
        return gpu_is_fnuz(dtype) ? 0x80 : 0x7f;
    const uint32_t bias = gpu_bias(dtype), fraction = gpu_fraction(dtype), largest = gpu_largest(dtype);
    uint32_t code = largest;
    if (size < 65536) { /* beyond the largest of all types */
        /* Exponent, counted from that of the subnormals. A carry out of the fraction raises the exponent.
         */
        const uint32_t field = rest >> 23, least = 128 - bias;
        const uint32_t step = field > least ? field - least : 0;
        code = (step << fraction) + gpu_round(size * gpu_f32_of_bits((126 + bias + fraction - step) << 23));
        code = code > largest ? largest : code;
    }
    return sign != 0 && (code != 0 || !gpu_is_fnuz(dtype)) ? code | 0x80 : code;
}

/* Element of type `dtype` at an address. */
GPU_INLINE float gpu_load(uint32_t dtype, const unsigned char *at)
{
    switch (dtype) {
    case ATTN_F32:
        return *(const float *)(const void *)at;
    case ATTN_F16:
        return gpu_f16_to_f32(*(const uint16_t *)(const void *)at);
    case ATTN_BF16:
        return gpu_bf16_to_f32(*(const uint16_t *)(const void *)at);
    default:
        return gpu_decode8(dtype, *at);
    }
}

GPU_INLINE void gpu_store(uint32_t dtype, unsigned char *at, float value)
{
    switch (dtype) {
    case ATTN_F32:
        *(float *)(void *)at = value;
        break;
    case ATTN_F16:
        *(uint16_t *)(void *)at = gpu_f32_to_f16(value);
        break;
    case ATTN_BF16:
        *(uint16_t *)(void *)at = gpu_f32_to_bf16(value);
        break;
    default:
        *at = (unsigned char)gpu_encode8(dtype, value);
    }
}

#endif
