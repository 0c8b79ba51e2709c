/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pairs of 8-bit codes into pairs of 16-bit numbers, exactly: what a matrix instruction takes. */
#ifndef ATTN_GPU_EIGHT_H
#define ATTN_GPU_EIGHT_H

#include "number.h"

/* Bytes `low` and `high` of a word as two numbers, the first in the low half. */
GPU_INLINE uint32_t gpu_pair8(uint32_t dtype, uint32_t word, uint32_t low, uint32_t high, bool bf16)
{
    const uint32_t a = word >> (8 * low) & 0xff, b = word >> (8 * high) & 0xff;

    if (dtype == ATTN_E5M2 && !bf16) /* the upper half of an f16 */
        return a << 8 | b << 24;
    if (dtype == ATTN_INT8) {
        const float x = (float)(int32_t)(a ^ 0x80) - 128.0f, y = (float)(int32_t)(b ^ 0x80) - 128.0f;
        return bf16 ? gpu_pack_bf16(x, y) : gpu_pack_f16(x, y);
    }
    if (dtype == ATTN_E4M3 && (a & 0x7f) != 0x7f && (b & 0x7f) != 0x7f) {
        /* An f32 of a smaller exponent, put right by a power of two; small numbers come out of it too. */
        const float power = gpu_f32_of_bits(247u << 23); /* 2^120 */
        const float x = gpu_f32_of_bits((a & 0x80) << 24 | (a & 0x7f) << 20) * power;
        const float y = gpu_f32_of_bits((b & 0x80) << 24 | (b & 0x7f) << 20) * power;
        return bf16 ? gpu_pack_bf16(x, y) : gpu_pack_f16(x, y);
    }
    const float x = gpu_decode8(dtype, a), y = gpu_decode8(dtype, b);
    return bf16 ? gpu_pack_bf16(x, y) : gpu_pack_f16(x, y);
}

#endif
