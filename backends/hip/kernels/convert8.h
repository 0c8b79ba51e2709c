/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* 8-bit keys and values of any type to elements of a matrix instruction, exactly. */
#ifndef ATTN_HIP_CONVERT8_H
#define ATTN_HIP_CONVERT8_H

#include "codec8.h"

/* Four codes as bf16, which holds all of them too, or f16: 0 and 1, then 2 and 3, the first in the low half.
 */
template <bool Bf16> GPU_INLINE void tile_convert8(uint32_t dtype, uint32_t word, uint32_t out[2])
{
    float x[4];

    gpu_quad8_f32(dtype, word, x);
    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++)
        if constexpr (Bf16)
            out[i] = gpu_permute(gpu_f32_bits(x[2 * i]), gpu_f32_bits(x[2 * i + 1]), 0x7632);
        else
            out[i] = gpu_pack_f16(x[2 * i], x[2 * i + 1]);
}

#endif
