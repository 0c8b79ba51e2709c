/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Exact decoding and correctly rounded encoding of the oracle's element types. */
#include "oracle.h"

#include <math.h>
#include <string.h>

const unsigned char *oracle_address(const struct attn_buffer *buffer)
{
    if (buffer->data == NULL)
        return NULL;
    return (const unsigned char *)buffer->data + buffer->byte_offset;
}

uint32_t oracle_size(uint32_t dtype)
{
    switch (dtype) {
    case ATTN_F32:
        return 4;
    case ATTN_F16:
    case ATTN_BF16:
        return 2;
    default:
        return oracle_is_8bit(dtype) ? 1 : 0;
    }
}

static double decode_f16(uint16_t bits)
{
    double sign = (bits & 0x8000) != 0 ? -1 : 1;
    uint32_t exponent = bits >> 10 & 0x1f;
    uint32_t fraction = bits & 0x3ff;

    if (exponent == 0x1f)
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * (double)fraction * 0x1p-24;
    /* A double with the same exponent and fraction. */
    uint64_t wide = (uint64_t)(exponent + 1023 - 15) << 52 | (uint64_t)fraction << 42;
    double value;
    memcpy(&value, &wide, sizeof value);
    return sign * value;
}

static double decode_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

double oracle_power2(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static void load_f32(const unsigned char *bytes, uint32_t count, double *to)
{
    for (uint32_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, bytes + (size_t)4 * i, sizeof value);
        to[i] = (double)value;
    }
}

static void load_16(bool is_f16, const unsigned char *bytes, uint32_t count, double *to)
{
    for (uint32_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, bytes + (size_t)2 * i, sizeof bits);
        to[i] = is_f16 ? decode_f16(bits) : decode_bf16(bits);
    }
}

/* The code of element i of a block as a number, from the definition. */
static int code_of(uint32_t dtype, const unsigned char *block, uint32_t i)
{
    static const int iq4_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

    if (dtype == ATTN_Q8_0)
        return (signed char)block[2 + i];
    const unsigned char *nibbles = block + oracle_row_bytes(dtype, 32) - 16;
    const int nibble = i < 16 ? nibbles[i] % 16 : nibbles[i - 16] / 16;
    const bool has_fifth = dtype == ATTN_Q5_0 || dtype == ATTN_Q5_1;
    const int fifth = has_fifth ? ((nibbles - 4)[i / 8] >> i % 8) % 2 * 16 : 0;
    switch (dtype) {
    case ATTN_Q4_0:
        return nibble - 8;
    case ATTN_Q4_1:
        return nibble;
    case ATTN_Q5_0:
        return nibble + fifth - 16;
    case ATTN_Q5_1:
        return nibble + fifth;
    default:
        return iq4_nl[nibble];
    }
}

bool oracle_has_blocks(uint32_t dtype)
{
    return dtype == ATTN_Q8_0 || dtype == ATTN_Q4_0 || dtype == ATTN_Q4_1 || dtype == ATTN_Q5_0 ||
           dtype == ATTN_Q5_1 || dtype == ATTN_IQ4_NL;
}

size_t oracle_row_bytes(uint32_t dtype, uint32_t count)
{
    switch (dtype) {
    case ATTN_Q8_0:
        return (size_t)count / 32 * 34;
    case ATTN_Q4_0:
    case ATTN_IQ4_NL:
        return (size_t)count / 32 * 18;
    case ATTN_Q4_1:
        return (size_t)count / 32 * 20;
    case ATTN_Q5_0:
        return (size_t)count / 32 * 22;
    case ATTN_Q5_1:
        return (size_t)count / 32 * 24;
    default:
        return (size_t)count * oracle_size(dtype);
    }
}

static void load_blocks(uint32_t dtype, const unsigned char *block, uint32_t count, double *to)
{
    const bool has_least = dtype == ATTN_Q4_1 || dtype == ATTN_Q5_1;

    for (uint32_t at = 0; at < count; at += 32, block += oracle_row_bytes(dtype, 32)) {
        double scale, least = 0;
        load_16(true, block, 1, &scale);
        if (has_least)
            load_16(true, block + 2, 1, &least);
        for (uint32_t i = 0; i < 32; i++)
            to[at + i] = scale * code_of(dtype, block, i) + least;
    }
}

void oracle_load(uint32_t dtype, const void *from, uint32_t count, double *to)
{
    if (oracle_has_blocks(dtype)) {
        load_blocks(dtype, from, count, to);
        return;
    }
    if (dtype == ATTN_F32)
        load_f32(from, count, to);
    else if (dtype == ATTN_F16 || dtype == ATTN_BF16)
        load_16(dtype == ATTN_F16, from, count, to);
    else
        oracle_load8(dtype, from, count, to);
}

double oracle_step(double value, int digits, int least)
{
    int exponent = least;

    if (value != 0 && isfinite(value)) {
        frexp(value, &exponent);
        exponent -= 1; /* value = 1.x * 2^exponent */
    }
    if (exponent < least)
        exponent = least;
    return oracle_power2(exponent - (digits - 1));
}

static double round_to(double value, int digits, int least, double max)
{
    if (!isfinite(value))
        return value;
    double step = oracle_step(value, digits, least);
    double rounded = nearbyint(value / step) * step; /* ties to even: the default rounding mode */

    if (fabs(rounded) > max)
        return copysign((double)INFINITY, value);
    return copysign(rounded, value);
}

static uint16_t encode_f16(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;

    if (isnan(value))
        return sign | 0x7e00;
    value = fabs(round_to(value, 11, -14, 65504));
    if (isinf(value))
        return sign | 0x7c00;
    if (value < 0x1p-14)
        return (uint16_t)(sign | (uint16_t)(value * 0x1p24));
    int exponent;
    double fraction = frexp(value, &exponent); /* 0.5 <= fraction < 1 */
    uint32_t bits = (uint32_t)(exponent - 1 + 15) << 10 | ((uint32_t)(fraction * 0x1p11) & 0x3ff);
    return (uint16_t)(sign | bits);
}

static uint16_t encode_bf16(double value)
{
    if (isnan(value))
        return 0x7fc0;
    float rounded = (float)round_to(value, 8, -126, 0x1.fep127);
    uint32_t bits;

    memcpy(&bits, &rounded, sizeof bits);
    return (uint16_t)(bits >> 16);
}

void oracle_store(uint32_t dtype, double value, void *to)
{
    if (dtype == ATTN_F32) {
        float narrow = (float)value;
        memcpy(to, &narrow, sizeof narrow);
        return;
    }
    if (oracle_is_8bit(dtype)) {
        *(unsigned char *)to = oracle_encode8(dtype, value);
        return;
    }
    uint16_t bits = dtype == ATTN_F16 ? encode_f16(value) : encode_bf16(value);
    memcpy(to, &bits, sizeof bits);
}

double oracle_ulp32(double value)
{
    return oracle_step(value, 24, -126);
}

double oracle_half_step(uint32_t dtype, double value)
{
    switch (dtype) {
    case ATTN_F16:
        return oracle_step(value, 11, -14) / 2;
    case ATTN_BF16:
        return oracle_step(value, 8, -126) / 2;
    case ATTN_INT8:
        return 0.5;
    case ATTN_E4M3:
        return oracle_step(value, 4, -6) / 2;
    case ATTN_E4M3FNUZ:
        return oracle_step(value, 4, -7) / 2;
    case ATTN_E5M2:
        return oracle_step(value, 3, -14) / 2;
    case ATTN_E5M2FNUZ:
        return oracle_step(value, 3, -15) / 2;
    default:
        return oracle_step(value, 24, -126) / 2;
    }
}
