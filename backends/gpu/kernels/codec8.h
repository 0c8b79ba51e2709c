/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Decodes four 8-bit codes at once into f16 or bf16, exactly, for matrix instructions. */
#ifndef ATTN_GPU_CODEC8_H
#define ATTN_GPU_CODEC8_H

#include "number.h"

/* Bit 7 of each byte of a word whose code is infinite or NaN. */
GPU_INLINE uint32_t gpu_nonfinite8(uint32_t dtype, uint32_t word)
{
    if (gpu_is_fnuz(dtype))
        return word & ~((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) & 0x80808080u; /* the code 80 alone */
    const uint32_t least = dtype == ATTN_E4M3 ? 0x01010101u : dtype == ATTN_E5M2 ? 0x04040404u : 0;

    return ((word & 0x7f7f7f7fu) + least) & 0x80808080u;
}

/* Four codes of any type as f32, infinite ones as NaN. The fields of a code are those of an f32 with another
 * bias. */
GPU_INLINE void gpu_quad8_f32(uint32_t dtype, uint32_t word, float x[4])
{
    if (dtype == ATTN_INT8) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            x[i] = (float)((int32_t)(word << (24 - 8 * i)) >> 24);
        return;
    }
    const uint32_t non_finite = gpu_nonfinite8(dtype, word);
    const uint32_t shift = 1 + gpu_fraction(dtype), fields = 0x80000000u | 0x7fu << (24 - shift);
    const float scale = gpu_f32_of_bits((254 - gpu_bias(dtype)) << 23);
    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t far = (uint32_t)((int32_t)(word << (24 - 8 * i)) >> shift);
        x[i] = gpu_f32_of_bits(far & fields) * scale;
    }
    if (non_finite != 0) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            x[i] = (non_finite >> 8 * i & 0x80) != 0 ? GPU_NAN : x[i];
    }
}

/*
 * Four FNUZ codes as f16 or bf16, in the order of gpu_quad8, but NaN as -0, which is no code of theirs. Their
 * fields are those of a number with another bias, which a product corrects. e5m2fnuz becomes bf16 first: f16
 * has not all of its exponents.
 */
GPU_INLINE void gpu_quad8_fnuz(uint32_t dtype, bool bf16, uint32_t word, uint32_t out[2])
{
    const bool as_bf16 = bf16 || dtype == ATTN_E5M2FNUZ;
    const uint32_t move = (as_bf16 ? 1u << 7 : 1u << 10) >> gpu_fraction(dtype);
    const uint32_t scale = as_bf16 ? (254 - gpu_bias(dtype)) << 7 : (30 - gpu_bias(dtype)) << 10;

    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t number = gpu_permute(word & 0x7f7f7f7fu, 0, i == 0 ? 0x4140 : 0x4342) * move +
                                gpu_permute(word & 0x80808080u, 0, i == 0 ? 0x1404 : 0x3424);
        out[i] = as_bf16 ? gpu_fma_bf16(number, scale << 16 | scale, 0x80008000u)
                         : gpu_fma_f16(number, scale << 16 | scale, 0x80008000u);
        if (as_bf16 && !bf16)
            out[i] =
                gpu_pack_f16(gpu_bf16_to_f32((uint16_t)out[i]), gpu_bf16_to_f32((uint16_t)(out[i] >> 16)));
    }
}

/*
 * Four codes as f16: out[0] has bytes 0 and 1, the first in the low half, out[1] bytes
 * 2 and 3. A code of e5m2 is the upper byte of an f16. An int8, made unsigned by adding 128, becomes the low
 * mantissa bits of 1024, and 1152 is subtracted. The FNUZ types, which few have on such devices, come from
 * f32.
 */
GPU_INLINE void gpu_quad8(uint32_t dtype, uint32_t word, uint32_t out[2])
{
    if (dtype == ATTN_E4M3) {
        gpu_e4m3_to_f16(word, out);
    } else if (dtype == ATTN_E5M2) {
        out[0] = gpu_permute(0, word, 0x5040);
        out[1] = gpu_permute(0, word, 0x7060);
    } else if (gpu_is_fnuz(dtype)) {
        float x[4];
        gpu_quad8_f32(dtype, word, x);
        out[0] = gpu_pack_f16(x[0], x[1]);
        out[1] = gpu_pack_f16(x[2], x[3]);
    } else {
        const uint32_t from_128 = word ^ 0x80808080u, one = 0x3c003c00u, less_1152 = 0xe480e480u;
        out[0] = gpu_fma_f16(gpu_permute(from_128, 0x64646464u, 0x4140), one, less_1152);
        out[1] = gpu_fma_f16(gpu_permute(from_128, 0x64646464u, 0x4342), one, less_1152);
    }
}

/* The same, but out[0] has bytes 0 and 2, out[1] bytes 1 and 3. */
GPU_INLINE void gpu_quad8_across(uint32_t dtype, uint32_t word, uint32_t out[2])
{
    if (dtype == ATTN_E4M3) {
        gpu_e4m3_to_f16(gpu_permute(word, 0, 0x3120), out);
    } else if (dtype == ATTN_E5M2) {
        out[0] = gpu_permute(0, word, 0x6040);
        out[1] = gpu_permute(0, word, 0x7050);
    } else if (gpu_is_fnuz(dtype)) {
        gpu_quad8(dtype, gpu_permute(word, 0, 0x3120), out);
    } else {
        const uint32_t from_128 = word ^ 0x80808080u, one = 0x3c003c00u, less_1152 = 0xe480e480u;
        out[0] = gpu_fma_f16(gpu_permute(from_128, 0x64646464u, 0x4240), one, less_1152);
        out[1] = gpu_fma_f16(gpu_permute(from_128, 0x64646464u, 0x4341), one, less_1152);
    }
}

/*
 * Two int8 codes, those of the bytes that `selector` moves to bytes 0 and 2, as bf16. Their lower seven bits
 * become the mantissa of 128, and 128 is subtracted, or 256 from a negative one: the two differ in one bit,
 * which is the sign's. `high`, 0x43 in each byte, is the upper half of both.
 */
GPU_INLINE uint32_t gpu_pair8_bf16(uint32_t word, uint32_t high, uint32_t selector)
{
    return gpu_fma_bf16(gpu_permute(word & 0x80808080u, high, selector), 0xbf80bf80u,
                        gpu_permute(word & 0x7f7f7f7fu, high, selector));
}

/* The same as gpu_quad8_across, as bf16. */
GPU_INLINE void gpu_quad8_wide(uint32_t dtype, uint32_t word, uint32_t out[2])
{
    if (gpu_is_fnuz(dtype)) {
        float x[4];
        gpu_quad8_f32(dtype, word, x);
        out[0] = gpu_permute(gpu_f32_bits(x[0]), gpu_f32_bits(x[2]), 0x7632);
        out[1] = gpu_permute(gpu_f32_bits(x[1]), gpu_f32_bits(x[3]), 0x7632);
        return;
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        if (dtype == ATTN_INT8) {
            out[i] = gpu_pair8_bf16(word, 0x43434343u, i == 0 ? 0x4240 : 0x4341);
        } else {
            uint32_t number[2];
            gpu_quad8_across(dtype, word, number);
            out[i] = gpu_pack_bf16(gpu_f16_to_f32((uint16_t)number[i]),
                                   gpu_f16_to_f32((uint16_t)(number[i] >> 16)));
        }
    }
}

/* The same as gpu_quad8, as f16 or bf16. */
GPU_INLINE void gpu_quad8_as(uint32_t dtype, bool bf16, uint32_t word, uint32_t out[2])
{
    if (bf16 && dtype == ATTN_INT8) {
        out[0] = gpu_pair8_bf16(word, 0x43434343u, 0x4140);
        out[1] = gpu_pair8_bf16(word, 0x43434343u, 0x4342);
        return;
    }
    gpu_quad8(dtype, word, out);
    GPU_UNROLL
    for (uint32_t i = 0; bf16 && i < 2; i++)
        out[i] = gpu_pack_bf16(gpu_f16_to_f32((uint16_t)out[i]), gpu_f16_to_f32((uint16_t)(out[i] >> 16)));
}

#endif
