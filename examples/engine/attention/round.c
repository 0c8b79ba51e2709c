/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Rounds f32 to f16 and bf16, and takes them back. */
#include "round.h"
#include "model/quant.h"

#include <attn/types.h>
#include <string.h>

/* The upper bits of a number, `drop` lower ones rounded to the nearest, the even one of two. */
static uint32_t drop_bits(uint32_t bits, uint32_t drop)
{
    uint32_t half = 1u << (drop - 1);
    uint32_t odd = bits >> drop & 1;
    return (bits + half - 1 + odd) >> drop;
}

static uint16_t to_bf16(uint32_t bits)
{
    if ((bits & 0x7fffffff) > 0x7f800000) /* a NaN stays one */
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)drop_bits(bits, 16);
}

static uint16_t to_f16(uint32_t bits)
{
    const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff, exponent = size >> 23;
    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (exponent >= 127 + 16)
        return (uint16_t)(sign | 0x7c00);
    if (exponent >= 127 - 14) /* a carry goes into the exponent, and from the largest number to infinity */
        return (uint16_t)(sign | drop_bits(size - ((127 - 15) << 23), 13));
    if (exponent < 127 - 25)
        return (uint16_t)sign;
    return (uint16_t)(sign | drop_bits((size & 0x7fffff) | 0x800000, 126 - exponent));
}

void round_from_float(uint32_t dtype, const float *from, uint64_t count, void *to)
{
    uint16_t *out = to;
    if (dtype == ATTN_F32) {
        memcpy(to, from, count * sizeof *from);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        out[i] = dtype == ATTN_F16 ? to_f16(bits) : to_bf16(bits);
    }
}

void round_to_float(uint32_t dtype, const void *from, uint64_t count, float *to)
{
    if (dtype == ATTN_F32)
        memcpy(to, from, count * sizeof *to);
    else
        quant_type_find(dtype == ATTN_F16 ? QUANT_F16 : QUANT_BF16)->to_float(from, count, to);
}
