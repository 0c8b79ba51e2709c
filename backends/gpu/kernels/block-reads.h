/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Four elements at a time of keys and values in blocks: the loads, and what makes f32 of them, apart, so that
 * many loads are in flight. */
#ifndef ATTN_GPU_BLOCK_READS_H
#define ATTN_GPU_BLOCK_READS_H

#include "blocks.h"
#include "lengths.h"

/* How a vector is read, by code of its own for each: a branch between loads would wait for them. The last two
 * are of types without blocks. */
enum gpu_read_kind { GPU_READ_Q8_0, GPU_READ_NIBBLES, GPU_READ_IQ4_NL, GPU_READ_HALVES, GPU_READ_ELEMENTS };

/* Four elements as they lie in memory. */
struct gpu_block_read {
    uint32_t word[5];
};

/* Elements d to d + 3 of a vector in blocks, d a multiple of four: codes, scale, least, bits above them. */
template <gpu_read_kind kind>
GPU_INLINE struct gpu_block_read gpu_block_read_four(uint32_t dtype, uint64_t vector, uint32_t d)
{
    const uint32_t type = kind == GPU_READ_Q8_0     ? (uint32_t)ATTN_Q8_0
                          : kind == GPU_READ_IQ4_NL ? (uint32_t)ATTN_IQ4_NL
                                                    : dtype;
    const uint32_t half = ATTN_BLOCK_ELEMENTS / 2, i = d % ATTN_BLOCK_ELEMENTS, bytes = gpu_block_bytes(type);
    const uint64_t block = vector + d / ATTN_BLOCK_ELEMENTS * bytes;
    const uint64_t codes = kind == GPU_READ_Q8_0 ? block + 2 + i : block + bytes - half + i % half;
    struct gpu_block_read out;

    out.word[0] = GPU_GLOBAL(const uint16_t, codes)[0];
    out.word[1] = GPU_GLOBAL(const uint16_t, codes)[1];
    out.word[2] = *GPU_GLOBAL(const uint16_t, block);
    out.word[3] = out.word[4] = 0;
    if (kind == GPU_READ_NIBBLES) { /* of types that have neither, what is there */
        out.word[3] = GPU_GLOBAL(const uint16_t, block)[1];
        out.word[4] = *GPU_U8(block + bytes - half - (gpu_block_bits(type) == 5 ? 4 - i / 8 : 0));
    }
    return out;
}

/* What was read of them, as f32. */
template <gpu_read_kind kind>
GPU_INLINE struct gpu_u128 gpu_block_convert_four(uint32_t dtype, const struct gpu_block_read *read,
                                                  uint32_t d)
{
    const uint32_t codes = read->word[0] | read->word[1] << 16, nibbles = codes >> d / 16 % 2 * 4;
    const uint32_t fifths = gpu_block_bits(dtype) == 5 ? read->word[4] >> d % 8 : 0;
    const float scale = gpu_f16_to_f32((uint16_t)read->word[2]),
                least = gpu_block_adds(dtype) ? gpu_f16_to_f32((uint16_t)read->word[3]) : 0;
    struct gpu_u128 out;

    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t nibble = nibbles >> 8 * i & 15;
        const int32_t code = kind == GPU_READ_Q8_0     ? (int8_t)(codes >> 8 * i)
                             : kind == GPU_READ_IQ4_NL ? gpu_iq4_nl(nibble)
                                                       : gpu_block_code(dtype, nibble, fifths >> i & 1);
        out.x[i] =
            gpu_f32_bits(kind == GPU_READ_NIBBLES ? gpu_fma(scale, (float)code, least) : scale * (float)code);
    }
    return out;
}

#endif
