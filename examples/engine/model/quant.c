/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Block formats of GGML turned into floats. */
#include "quant.h"

#include <stddef.h>
#include <string.h>

const char quant_supported[] = "F32, F16, BF16, Q4_0, Q4_1 and Q8_0";

static float bits_to_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float half_to_float(const uint8_t *at)
{
    uint32_t half = (uint32_t)at[0] | (uint32_t)at[1] << 8;
    uint32_t sign = (half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 31u;
    uint32_t mantissa = half & 1023u;
    if (exponent == 31)
        return bits_to_float(sign | 0x7f800000u | mantissa << 13);
    if (exponent)
        return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
    float value = (float)mantissa * 0x1p-24f;
    return sign ? -value : value;
}

static void from_f32(const uint8_t *blocks, uint64_t count, float *out)
{
    memcpy(out, blocks, count * sizeof *out);
}

static void from_f16(const uint8_t *blocks, uint64_t count, float *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = half_to_float(blocks + 2 * i);
}

static void from_bf16(const uint8_t *blocks, uint64_t count, float *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = bits_to_float((uint32_t)blocks[2 * i] << 16 | (uint32_t)blocks[2 * i + 1] << 24);
}

/* 18 bytes: f16 scale, 16 bytes of nibbles; low nibbles are elements 0 to 15, high ones 16 to 31, offset 8.
 */
static void from_q4_0(const uint8_t *blocks, uint64_t count, float *out)
{
    for (uint64_t b = 0; b < count; b++, blocks += 18, out += 32) {
        float scale = half_to_float(blocks);
        for (int i = 0; i < 16; i++) {
            out[i] = scale * (float)((blocks[2 + i] & 15) - 8);
            out[i + 16] = scale * (float)((blocks[2 + i] >> 4) - 8);
        }
    }
}

/* 20 bytes: f16 scale, f16 minimum, nibbles as above without offset. */
static void from_q4_1(const uint8_t *blocks, uint64_t count, float *out)
{
    for (uint64_t b = 0; b < count; b++, blocks += 20, out += 32) {
        float scale = half_to_float(blocks);
        float least = half_to_float(blocks + 2);
        for (int i = 0; i < 16; i++) {
            out[i] = scale * (float)(blocks[4 + i] & 15) + least;
            out[i + 16] = scale * (float)(blocks[4 + i] >> 4) + least;
        }
    }
}

/* 34 bytes: f16 scale, 32 signed bytes. */
static void from_q8_0(const uint8_t *blocks, uint64_t count, float *out)
{
    for (uint64_t b = 0; b < count; b++, blocks += 34, out += 32) {
        float scale = half_to_float(blocks);
        for (int i = 0; i < 32; i++)
            out[i] = scale * (float)(int8_t)blocks[2 + i];
    }
}

static const struct quant_type types[] = {
    {QUANT_F32, "F32", 1, 4, from_f32},
    {QUANT_F16, "F16", 1, 2, from_f16},
    {QUANT_Q4_0, "Q4_0", 32, 18, from_q4_0},
    {QUANT_Q4_1, "Q4_1", 32, 20, from_q4_1},
    {QUANT_Q8_0, "Q8_0", 32, 34, from_q8_0},
    {QUANT_BF16, "BF16", 1, 2, from_bf16},
    {6, "Q5_0", 32, 22, NULL},
    {7, "Q5_1", 32, 24, NULL},
    {10, "Q2_K", 256, 84, NULL},
    {11, "Q3_K", 256, 110, NULL},
    {12, "Q4_K", 256, 144, NULL},
    {13, "Q5_K", 256, 176, NULL},
    {14, "Q6_K", 256, 210, NULL},
    {24, "I8", 1, 1, NULL},
    {25, "I16", 1, 2, NULL},
    {26, "I32", 1, 4, NULL},
};

const struct quant_type *quant_type_find(uint32_t id)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].id == id)
            return &types[i];
    return NULL;
}
