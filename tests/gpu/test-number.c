/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Conversions of device code against those of the host: all codes, and values at and beside every midpoint.
 */
#include <criterion/criterion.h>

#include "codec8.h"

#include "fp8-int8.h"

static const uint32_t types8[] = {ATTN_INT8, ATTN_E4M3, ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ};

static bool same(float a, float b)
{
    return isnan(a) ? isnan(b) : attn__f32_bits(a) == attn__f32_bits(b);
}

Test(number, decodes_every_code)
{
    for (size_t i = 0; i < sizeof types8 / sizeof types8[0]; i++) {
        for (uint32_t code = 0; code < 256; code++) {
            const float wanted = attn__codec8_decode(types8[i], (uint8_t)code);
            const float got = gpu_decode8(types8[i], code);
            cr_assert(same(got, wanted), "type %#x code %02x: %a, not %a", types8[i], code, (double)got,
                      (double)wanted);
        }
    }
}

static float half_of(const uint32_t words[2], uint32_t i, bool bf16)
{
    const uint16_t bits = (uint16_t)(words[i / 2] >> 16 * (i % 2));

    return bf16 ? attn__bf16_to_f32(bits) : attn__f16_to_f32(bits);
}

/* Each code at each place of a word, beside three others. */
static void decode_four(uint32_t dtype, uint32_t code)
{
    static const uint32_t across[] = {0, 2, 1, 3};
    const uint32_t word = code | (code * 7 + 1) % 256 << 8 | (code * 5 + 2) % 256 << 16 | (255 - code) << 24;
    uint32_t plain[2], turned[2], wide[2];

    gpu_quad8(dtype, word, plain);
    gpu_quad8_across(dtype, word, turned);
    gpu_quad8_wide(dtype, word, wide);
    for (uint32_t i = 0; i < 4; i++) {
        const float wanted = attn__codec8_decode(dtype, (uint8_t)(word >> 8 * i));
        const float other = attn__codec8_decode(dtype, (uint8_t)(word >> 8 * across[i]));
        cr_assert(same(half_of(plain, i, false), wanted), "type %#x word %08x number %u", dtype, word, i);
        cr_assert(same(half_of(turned, i, false), other), "type %#x word %08x across %u", dtype, word, i);
        cr_assert(same(half_of(wide, i, true), other), "type %#x word %08x wide %u", dtype, word, i);
    }
}

Test(number, decodes_four_codes_at_once)
{
    for (size_t i = 0; i < sizeof types8 / sizeof types8[0]; i++)
        for (uint32_t code = 0; code < 256; code++)
            decode_four(types8[i], code);
}

static void encode(uint32_t dtype, float value)
{
    const uint32_t wanted = attn__codec8_encode(dtype, value), got = gpu_encode8(dtype, value);

    cr_assert_eq(got, wanted, "type %#x value %a: %02x, not %02x", dtype, (double)value, got, wanted);
}

/* Every number of a type, the middle to its neighbour, and the floats beside both. */
static void encode_around(uint32_t dtype, uint32_t code)
{
    const float low = attn__codec8_decode(dtype, (uint8_t)code);
    const float high = attn__codec8_decode(dtype, (uint8_t)(code + 1));
    const float middle = (low + high) / 2;
    const float values[] = {low, middle};

    for (size_t i = 0; i < 2 && !isnan(middle); i++) {
        encode(dtype, values[i]);
        encode(dtype, nextafterf(values[i], INFINITY));
        encode(dtype, nextafterf(values[i], -INFINITY));
    }
}

Test(number, encodes_to_nearest_even)
{
    for (size_t i = 0; i < sizeof types8 / sizeof types8[0]; i++) {
        for (uint32_t code = 0; code < 256; code++)
            encode_around(types8[i], code);
        /* Every exponent and sign, with fractions of all kinds: beyond the largest, infinite, NaN. */
        for (uint32_t top = 0; top < 1024; top++)
            for (uint32_t rest = 0; rest < 64; rest++)
                encode(types8[i], attn__f32_of_bits(top << 22 | (rest * 2654435761u & 0x3fffff)));
    }
}

Test(number, loads_and_stores_every_type)
{
    const uint32_t dtypes[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_E4M3, ATTN_INT8};
    const float values[] = {0, -1, 1.5f, 3, -24, 100};

    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        for (size_t j = 0; j < sizeof values / sizeof values[0]; j++) {
            uint32_t place = 0;
            const float value = dtypes[i] == ATTN_INT8 ? nearbyintf(values[j]) : values[j];
            const float wanted = dtypes[i] == ATTN_E4M3 && value == 100 ? 96 : value;
            gpu_store(dtypes[i], (unsigned char *)&place, value);
            cr_assert_eq(gpu_load(dtypes[i], (unsigned char *)&place), wanted);
            cr_assert(GPU_SIZE(dtypes[i]) == 4 || place >> (8 * GPU_SIZE(dtypes[i])) == 0,
                      "a store of type %#x went beyond its element", dtypes[i]);
        }
    }
}
