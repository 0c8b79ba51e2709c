/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Elements of keys and values of the types that have blocks of 32 elements (docs/definition.md, section 2).
 * Blocks begin at even addresses. */
#ifndef ATTN_GPU_BLOCKS_H
#define ATTN_GPU_BLOCKS_H

#include "number.h"

GPU_INLINE bool gpu_has_blocks(uint32_t dtype)
{
    return GPU_READS_BLOCKS && dtype >> 16 == ATTN_BLOCK_ELEMENTS;
}

/* Whether a block has a number that is added to all elements. */
GPU_INLINE bool gpu_block_adds(uint32_t dtype)
{
    return dtype == ATTN_Q4_1 || dtype == ATTN_Q5_1;
}

/* Bits of a code. */
GPU_INLINE uint32_t gpu_block_bits(uint32_t dtype)
{
    return dtype >> 8 & 0xff;
}

GPU_INLINE uint32_t gpu_block_bytes(uint32_t dtype)
{
    return gpu_block_bits(dtype) * (ATTN_BLOCK_ELEMENTS / 8) + (gpu_block_adds(dtype) ? 4 : 2);
}

GPU_INLINE float gpu_block_half(const unsigned char *at)
{
    return gpu_f16_to_f32(*(const uint16_t *)(const void *)at);
}

/* What the scale is multiplied with, of a code of iq4_nl. */
GPU_INLINE int32_t gpu_iq4_nl(uint32_t nibble)
{
    const uint32_t low = gpu_permute(0xbfad9881u, 0xf6eaddcfu, nibble & 7),
                   high = gpu_permute(0x26190d01u, 0x71594535u, nibble & 7);

    return (int8_t)(nibble < 8 ? low : high);
}

/* Of the other types of nibbles, with the bit above it of those of five bits. */
GPU_INLINE int32_t gpu_block_code(uint32_t dtype, uint32_t nibble, uint32_t bit)
{
    const int32_t zero = dtype == ATTN_Q4_0 ? 8 : dtype == ATTN_Q5_0 ? 16 : 0;

    return (int32_t)(nibble | bit << 4) - zero;
}

/* Element i of a block. */
GPU_INLINE float gpu_block_load(uint32_t dtype, const unsigned char *block, uint32_t i)
{
    const uint32_t half = ATTN_BLOCK_ELEMENTS / 2;
    const float scale = gpu_block_half(block), least = gpu_block_adds(dtype) ? gpu_block_half(block + 2) : 0;

    if (dtype == ATTN_Q8_0)
        return scale * (float)(int8_t)block[2 + i];
    const unsigned char *codes = block + gpu_block_bytes(dtype) - half;
    const uint32_t nibble = codes[i % half] >> i / half * 4 & 15;
    const uint32_t bit = gpu_block_bits(dtype) == 5 ? *(codes + i / 8 - 4) >> i % 8 & 1 : 0u;
    const int32_t code = dtype == ATTN_IQ4_NL ? gpu_iq4_nl(nibble) : gpu_block_code(dtype, nibble, bit);
    return gpu_fma(scale, (float)code, least);
}

#endif
