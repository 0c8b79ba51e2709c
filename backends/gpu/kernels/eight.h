/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Four 8-bit codes into four f16, exactly: what a matrix instruction takes. */
#ifndef ATTN_GPU_EIGHT_H
#define ATTN_GPU_EIGHT_H

#include "number.h"

/* Flags (bit 7 of a byte) of the codes of a word that are infinite or no number. */
GPU_INLINE uint32_t gpu_odd8(uint32_t dtype, uint32_t word)
{
    const uint32_t least = dtype == ATTN_E4M3 ? 0x01010101u : dtype == ATTN_E5M2 ? 0x04040404u : 0;

    return ((word & 0x7f7f7f7fu) + least) & 0x80808080u;
}

/*
 * Codes of e4m3, e5m2 or int8: bytes 0 and 1, then 2 and 3, the first in the low half. A code of e5m2 is the
 * upper half of an f16. An integer is put behind 1024, which is a whole number's f16, and 1024 taken away.
 */
GPU_INLINE void gpu_quad8(uint32_t dtype, uint32_t word, uint32_t out[2])
{
    if (dtype == ATTN_E4M3) {
        gpu_e4m3_to_f16(word, out);
    } else if (dtype == ATTN_E5M2) {
        out[0] = gpu_permute(0, word, 0x5040);
        out[1] = gpu_permute(0, word, 0x7060);
    } else {
        const uint32_t from_128 = word ^ 0x80808080u, one = 0x3c003c00u, less_1152 = 0xe480e480u;
        out[0] = gpu_fma_f16(gpu_permute(from_128, 0x64646464u, 0x4140), one, less_1152);
        out[1] = gpu_fma_f16(gpu_permute(from_128, 0x64646464u, 0x4342), one, less_1152);
    }
}

/* Alike, but bytes 0 and 2, then 1 and 3. */
GPU_INLINE void gpu_quad8_across(uint32_t dtype, uint32_t word, uint32_t out[2])
{
    if (dtype == ATTN_E4M3) {
        gpu_e4m3_to_f16(gpu_permute(word, 0, 0x3120), out);
    } else if (dtype == ATTN_E5M2) {
        out[0] = gpu_permute(0, word, 0x6040);
        out[1] = gpu_permute(0, word, 0x7050);
    } else {
        const uint32_t from_128 = word ^ 0x80808080u, one = 0x3c003c00u, less_1152 = 0xe480e480u;
        out[0] = gpu_fma_f16(gpu_permute(from_128, 0x64646464u, 0x4240), one, less_1152);
        out[1] = gpu_fma_f16(gpu_permute(from_128, 0x64646464u, 0x4341), one, less_1152);
    }
}

/*
 * Alike, as bf16. An integer's lower seven bits are put behind 128, from which 128 is taken, or 256 if it is
 * negative: that number differs by one bit.
 */
GPU_INLINE void gpu_quad8_wide(uint32_t dtype, uint32_t word, uint32_t out[2])
{
    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        if (dtype == ATTN_INT8) {
            const uint32_t pair = gpu_permute(word, 0, i == 0 ? 0x4240 : 0x4341);
            out[i] = gpu_fma_bf16((pair & 0x007f007fu) | 0x43004300u, 0x3f803f80u,
                                  (pair & 0x00800080u) | 0xc300c300u);
        } else {
            uint32_t number[2];
            gpu_quad8_across(dtype, word, number);
            out[i] = gpu_pack_bf16(gpu_f16_to_f32((uint16_t)number[i]),
                                   gpu_f16_to_f32((uint16_t)(number[i] >> 16)));
        }
    }
}

#endif
