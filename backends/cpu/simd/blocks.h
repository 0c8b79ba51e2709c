/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Vectors of the types that have blocks, from a level's own operations: codes are brought to int8 and loaded
 * as such, then multiplied with the block's scale. Included behind the level's header.
 */
#ifndef ATTN_CPU_SIMD_BLOCKS_H
#define ATTN_CPU_SIMD_BLOCKS_H

#include "block-codes.h"
#include "half.h"

_Static_assert(ATTN_BLOCK_ELEMENTS / 2 % VEC_LANES == 0, "a vector has one half of the codes of a block");

INLINE bool vec_has_blocks(enum vec_type type)
{
    return type >= VEC_Q8_0 && type < VEC_TYPES;
}

INLINE uint32_t vec_block_bytes(enum vec_type type)
{
    switch (type) {
    case VEC_Q8_0:
        return attn_block_bytes(ATTN_Q8_0);
    case VEC_Q4_1:
        return attn_block_bytes(ATTN_Q4_1);
    case VEC_Q5_0:
        return attn_block_bytes(ATTN_Q5_0);
    case VEC_Q5_1:
        return attn_block_bytes(ATTN_Q5_1);
    default: /* of iq4_nl, too */
        return attn_block_bytes(ATTN_Q4_0);
    }
}

/* Bytes of n elements of any type; of n that are no whole blocks, of those before them. */
INLINE size_t vec_row_bytes(enum vec_type type, uint32_t n)
{
    return vec_has_blocks(type) ? (size_t)(n / ATTN_BLOCK_ELEMENTS) * vec_block_bytes(type)
                                : (size_t)n * vec_size(type);
}

INLINE float block_half(const char *p)
{
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
#if defined(__F16C__)
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
#elif defined(__aarch64__)
    __fp16 half;
    memcpy(&half, &bits, sizeof half);
    return (float)half;
#else
    return attn__f16_to_f32(bits);
#endif
}

/* As many codes of 8 bits as a vector has lanes. */
typedef uint8_t block_codes __attribute__((vector_size(VEC_LANES)));

/* The low or the high halves of so many bytes: by words, for not every machine shifts bytes. */
INLINE block_codes block_nibbles(const char *p, bool high)
{
    uint64_t words[VEC_LANES / 8];
    block_codes out;
    memcpy(words, p, sizeof words);
    UNROLL
    for (uint32_t i = 0; i < VEC_LANES / 8; i++)
        words[i] = (high ? words[i] >> 4 : words[i]) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    memcpy(&out, words, sizeof out);
    return out;
}

/* Ones in bit 4 of the lanes whose bit is set, of the elements from `at` on. */
INLINE block_codes block_fifth_bits(const char *bits, uint32_t at)
{
    uint32_t word;
    block_codes out = {0};
    memcpy(&word, bits, sizeof word);
    word >>= at;
    UNROLL
    for (uint32_t i = 0; i < VEC_LANES; i++)
        out[i] = (uint8_t)((word >> i & 1) << 4);
    return out;
}

/* What the scale of a block is multiplied with, of VEC_LANES elements from `at` on. */
INLINE vec block_load_codes(enum vec_type type, const char *block, uint32_t at)
{
    if (type == VEC_Q8_0)
        return vec_load(VEC_INT8, block + 2 + at);
    const uint32_t half = ATTN_BLOCK_ELEMENTS / 2, bytes = vec_block_bytes(type);
    const block_codes x = block_nibbles(block + bytes - half + at % half, at >= half);
    const bool has_fifth = type == VEC_Q5_0 || type == VEC_Q5_1;
    block_codes y = has_fifth ? x | block_fifth_bits(block + bytes - half - 4, at) : x;
    if (type == VEC_IQ4_NL) {
        UNROLL
        for (uint32_t i = 0; i < VEC_LANES; i++)
            y[i] = (uint8_t)attn__iq4_nl[x[i]];
    }
    const vec codes = vec_load(VEC_INT8, (const char *)&y);
    if (type == VEC_Q4_0 || type == VEC_Q5_0)
        return vec_sub(codes, vec_set(type == VEC_Q4_0 ? 8 : 16));
    return codes;
}

/* VEC_LANES elements of a row from element `at` on, a multiple of VEC_LANES: each rounded once, as products
 * of a scale and a code are exact. */
INLINE vec block_load(enum vec_type type, const char *row, uint32_t at)
{
    const char *block = row + vec_row_bytes(type, at);
    const vec codes = block_load_codes(type, block, at % ATTN_BLOCK_ELEMENTS);
    const vec scale = vec_set(block_half(block));
    if (type == VEC_Q4_1 || type == VEC_Q5_1)
        return vec_fma(codes, scale, vec_set(block_half(block + 2)));
    return vec_mul(codes, scale);
}

/* The same of any type, from any element on where it has no blocks. */
INLINE vec vec_load_at(enum vec_type type, const char *row, uint32_t at)
{
    return vec_has_blocks(type) ? block_load(type, row, at)
                                : vec_load(type, row + (size_t)at * vec_size(type));
}

#endif
