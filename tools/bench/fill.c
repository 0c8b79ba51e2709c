/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random numbers made straight in the bits of a type: no rounding, never NaN, and as fast as memory. */
#include "fill.h"

#include "attn/types.h"

/* Fields of a floating-point type. */
static const struct format {
    uint32_t dtype;
    unsigned bits, mantissa, bias;
} formats[] = {
    {ATTN_F32, 32, 23, 127}, {ATTN_F16, 16, 10, 15},   {ATTN_BF16, 16, 7, 127},   {ATTN_E4M3, 8, 3, 7},
    {ATTN_E5M2, 8, 2, 15},   {ATTN_E4M3FNUZ, 8, 3, 8}, {ATTN_E5M2FNUZ, 8, 2, 16},
};

/* A multiplicative congruential step with the high bits folded down. */
static uint32_t next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 32) ^ (uint32_t)(*state >> 13);
}

static uint32_t draw(const struct format *format, uint64_t *state)
{
    uint32_t random = next(state);
    uint32_t exponent = format->bias - 3 + (random >> 28 & 3);
    uint32_t mantissa = random & ((UINT32_C(1) << format->mantissa) - 1);

    return (random >> 31) << (format->bits - 1) | exponent << format->mantissa | mantissa;
}

bool fill_random(uint32_t dtype, void *to, uint64_t count, uint64_t seed)
{
    const struct format *format = NULL;
    uint64_t state = seed * 2 + 1;

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].dtype == dtype)
            format = &formats[i];
    if (dtype == ATTN_INT8) {
        for (uint64_t i = 0; i < count; i++)
            ((int8_t *)to)[i] = (int8_t)((int)(next(&state) % 7) - 3);
        return true;
    }
    if (attn_block_bytes(dtype) != 0) { /* two such bytes are a scale between 0.008 and 1.8 */
        for (uint64_t i = 0; i < count; i++)
            ((uint8_t *)to)[i] = (uint8_t)(0x20 | (next(&state) & 0x1f));
        return true;
    }
    if (format == NULL)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t value = draw(format, &state);
        if (format->bits == 32)
            ((uint32_t *)to)[i] = value;
        else if (format->bits == 16)
            ((uint16_t *)to)[i] = (uint16_t)value;
        else
            ((uint8_t *)to)[i] = (uint8_t)value;
    }
    return true;
}
