/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* 8-bit keys and values of any type to elements of a matrix instruction, exactly. */
#ifndef ATTN_HIP_CONVERT8_H
#define ATTN_HIP_CONVERT8_H

#include "codec8.h"

/* Bit 7 of each byte whose code is NaN or infinite. */
GPU_INLINE uint32_t tile_non_finite8(uint32_t dtype, uint32_t word)
{
    if (!gpu_is_fnuz(dtype))
        return gpu_nonfinite8(dtype, word);
    return word & ~((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) & 0x80808080u; /* the code 80 alone */
}

/* Four codes as f32. The fields of a code are those of an f32 with another bias. */
GPU_INLINE void tile_decode8(uint32_t dtype, uint32_t word, float x[4])
{
    const uint32_t non_finite = tile_non_finite8(dtype, word);

    if (dtype == ATTN_INT8) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            x[i] = (float)((int32_t)(word << (24 - 8 * i)) >> 24);
        return;
    }
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

/* Four codes as bf16, which holds all of them too, or f16: 0 and 1, then 2 and 3, the first in the low half.
 */
template <bool Bf16> GPU_INLINE void tile_convert8(uint32_t dtype, uint32_t word, uint32_t out[2])
{
    float x[4];

    tile_decode8(dtype, word, x);
    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++)
        if constexpr (Bf16)
            out[i] = gpu_permute(gpu_f32_bits(x[2 * i]), gpu_f32_bits(x[2 * i + 1]), 0x7632);
        else
            out[i] = gpu_pack_f16(x[2 * i], x[2 * i + 1]);
}

#endif
