/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Four 8-bit codes of any type into elements of a matrix instruction, exactly; and which codes are odd. */
#ifndef ATTN_HIP_TILE_EIGHT_H
#define ATTN_HIP_TILE_EIGHT_H

#include "eight.h"

/* Flags (bit 7 of a byte) of the codes of a word that are infinite or no number. */
GPU_INLINE uint32_t tile_odd8(uint32_t dtype, uint32_t word)
{
    if (!gpu_is_fnuz(dtype))
        return gpu_odd8(dtype, word);
    return word & ~((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) & 0x80808080u; /* the code 80 alone */
}

/*
 * Codes by their fields, which are those of an f32 with another bias; a bf16 holds all of them too. Elements
 * 0 and 1, then 2 and 3, the first in the low half.
 */
GPU_INLINE void tile_four8(uint32_t dtype, uint32_t word, bool wide, uint32_t out[2])
{
    const uint32_t odd = tile_odd8(dtype, word);
    float x[4];

    if (dtype == ATTN_INT8) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            x[i] = (float)((int32_t)(word << (24 - 8 * i)) >> 24);
    } else {
        const uint32_t shift = 1 + gpu_fraction(dtype), fields = 0x80000000u | 0x7fu << (24 - shift);
        const float scale = gpu_f32_of_bits((254 - gpu_bias(dtype)) << 23);
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t far = (uint32_t)((int32_t)(word << (24 - 8 * i)) >> shift);
            x[i] = gpu_f32_of_bits(far & fields) * scale;
        }
        if (odd != 0) {
            GPU_UNROLL
            for (uint32_t i = 0; i < 4; i++)
                x[i] = (odd >> 8 * i & 0x80) != 0 ? GPU_NAN : x[i];
        }
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++)
        out[i] = wide ? gpu_permute(gpu_f32_bits(x[2 * i]), gpu_f32_bits(x[2 * i + 1]), 0x7632)
                      : gpu_pack_f16(x[2 * i], x[2 * i + 1]);
}

#endif
