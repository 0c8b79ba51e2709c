/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Contents of 8-bit vectors, and what must hold of 8-bit results. */
#include "conform.h"

#include <math.h>

uint8_t case_poison(const struct conform_case *c, uint32_t dtype)
{
    if (c->poison != 0xff || !oracle_is_8bit(dtype))
        return c->poison;
    return dtype == ATTN_E4M3 || dtype == ATTN_E5M2 ? 0xff : 0x80; /* NaN, or the least int8 */
}

/* Any number of the type, -128 too. */
static uint8_t any_number(uint32_t dtype, uint64_t key)
{
    uint8_t code;

    do {
        key = mix(key, 1);
        code = (uint8_t)(key >> 32);
    } while (!isfinite(oracle_decode8(dtype, code)));
    return code;
}

/* A scale of a block with an RMS of elements near `factor`, of either sign, 0 or subnormal now and then. */
static double block_scale(uint32_t dtype, uint64_t key, double factor)
{
    const uint64_t kind = mix(key, 2) % 16;
    const double rms = dtype == ATTN_Q8_0 || dtype == ATTN_IQ4_NL ? 72 : 8;
    const double size = factor * (0.5 + (double)(mix(key, 3) % 1024) / 1024) / rms;

    if (kind == 0)
        return 0;
    if (kind == 1)
        return 0x1p-24 * (double)(1 + mix(key, 4) % 1023);
    return kind < 8 ? -size : size;
}

/* Random blocks: every code there is, and scales near what other types of the case have. */
static void fill_blocks(const struct scaled_vector *vector, uint64_t key, double factor)
{
    const uint32_t bytes = (uint32_t)oracle_row_bytes(vector->dtype, 32);
    unsigned char *block = vector->to;

    for (uint32_t at = 0; at < vector->count; at += 32, block += bytes) {
        const uint64_t own = mix(key, at);
        for (uint32_t i = 0; i < bytes; i++)
            block[i] = (unsigned char)(mix(own, 16 + i) >> 32);
        oracle_store(ATTN_F16, block_scale(vector->dtype, own, factor), block);
        if (vector->dtype == ATTN_Q4_1 || vector->dtype == ATTN_Q5_1)
            oracle_store(ATTN_F16, block_scale(vector->dtype, mix(own, 1), 4 * factor), block + 2);
    }
}

void case_fill_vector(const struct conform_case *c, const struct scaled_vector *vector, uint64_t key,
                      double factor, bool positive)
{
    unsigned char *to = vector->to;

    if (oracle_has_blocks(vector->dtype)) {
        fill_blocks(vector, key, factor);
        return;
    }
    if (!oracle_is_8bit(vector->dtype)) {
        fill_vector(vector->dtype, to, vector->count, key, factor, positive);
        return;
    }
    for (uint32_t i = 0; i < vector->count && c->scales[vector->what].raw; i++)
        to[i] = any_number(vector->dtype, mix(key, i));
    if (c->scales[vector->what].raw)
        return;
    fill_vector(vector->dtype, to, vector->count, key, factor / vector->scale, positive);
    /* Were a positive number rounded to 0, a row might be left with nothing but the least weights. */
    for (uint32_t i = 0; i < vector->count && positive; i++)
        to[i] = to[i] == 0 ? 1 : to[i];
}

bool case_put_nan(const struct scaled_vector *vector, uint32_t dim)
{
    unsigned char *to = vector->to;
    uint8_t code = (uint8_t)(dim * 37);

    if (oracle_has_blocks(vector->dtype)) { /* of the block */
        oracle_store(ATTN_F16, (double)NAN, to + oracle_row_bytes(vector->dtype, dim / 32 * 32));
        return true;
    }
    if (!oracle_is_8bit(vector->dtype)) {
        oracle_store(vector->dtype, (double)NAN, to + (size_t)dim * oracle_size(vector->dtype));
        return true;
    }
    for (int tries = 0; tries < 256; tries++, code++) {
        if (isnan(oracle_decode8(vector->dtype, code))) {
            to[dim] = code;
            return true;
        }
    }
    return false;
}

void case_put_infinity(const struct scaled_vector *vector, uint32_t dim, bool positive)
{
    unsigned char *to = vector->to;

    if (oracle_has_blocks(vector->dtype))
        oracle_store(ATTN_F16, positive ? (double)INFINITY : -(double)INFINITY,
                     to + oracle_row_bytes(vector->dtype, dim / 32 * 32));
    else if (vector->dtype == ATTN_E5M2)
        to[dim] = positive ? 0x7c : 0xfc;
    else
        oracle_store(vector->dtype, positive ? (double)INFINITY : -(double)INFINITY,
                     to + (size_t)dim * oracle_size(vector->dtype));
}
