/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Element types that have blocks: what the bytes of a block mean (docs/definition.md, section 2). */
#ifndef ATTN_COMMON_BLOCK_CODES_H
#define ATTN_COMMON_BLOCK_CODES_H

#include <stdbool.h>

#include "attn/types.h"
#include "half.h"

/* Values of the codes of iq4_nl. */
static const int8_t attn__iq4_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

static inline float attn__block_half(const uint8_t *at)
{
    return attn__f16_to_f32((uint16_t)(at[0] | at[1] << 8));
}

/* The code of element i, as a number that the scale is multiplied with. */
static inline int32_t attn__block_code(uint32_t dtype, const uint8_t *block, uint32_t i)
{
    const uint32_t half = ATTN_BLOCK_ELEMENTS / 2;

    if (dtype == ATTN_Q8_0)
        return (int8_t)block[2 + i];
    const uint8_t *codes = block + attn_block_bytes(dtype) - half;
    const int32_t low = i < half ? codes[i] & 15 : codes[i - half] >> 4;
    if (dtype == ATTN_IQ4_NL)
        return attn__iq4_nl[low];
    if (dtype == ATTN_Q4_0 || dtype == ATTN_Q4_1)
        return dtype == ATTN_Q4_0 ? low - 8 : low;
    const int32_t code = low | (codes[(int32_t)(i / 8) - 4] >> i % 8 & 1) << 4;
    return dtype == ATTN_Q5_0 ? code - 16 : code;
}

/* Converts whole blocks: `count` elements. */
static inline void attn__blocks_decode(uint32_t dtype, const void *from, uint32_t count, float *to)
{
    const uint8_t *block = from;
    const bool has_least = dtype == ATTN_Q4_1 || dtype == ATTN_Q5_1;

    for (uint32_t at = 0; at < count; at += ATTN_BLOCK_ELEMENTS, block += attn_block_bytes(dtype)) {
        const float scale = attn__block_half(block), least = has_least ? attn__block_half(block + 2) : 0;
        for (uint32_t i = 0; i < ATTN_BLOCK_ELEMENTS; i++) {
            const float product = scale * (float)attn__block_code(dtype, block, i); /* exact */
            to[at + i] = has_least ? product + least : product;
        }
    }
}

#endif
