/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Conversions of block formats against their definition, written out once more in the simplest way. */
#include "attention/round.h"
#include "model/quant.h"

#include <attn/types.h>
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* An f16 by its definition, in doubles. */
static double half(unsigned bits)
{
    int exponent = (int)(bits >> 10 & 31);
    double fraction = (bits & 1023) / 1024.0;
    double value = exponent ? ldexp(1 + fraction, exponent - 15) : ldexp(fraction, -14);
    if (exponent == 31)
        value = (bits & 1023) ? NAN : INFINITY;
    return bits & 0x8000 ? -value : value;
}

Test(quant, converts_every_f16)
{
    const struct quant_type *type = quant_type_find(QUANT_F16);
    for (unsigned bits = 0; bits < 65536; bits++) {
        uint8_t bytes[2] = {(uint8_t)bits, (uint8_t)(bits >> 8)};
        float got;
        type->to_float(bytes, 1, &got);
        double want = half(bits);
        cr_assert(isnan(want) ? isnan(got) : (double)got == want && !signbit(got) == !signbit(want),
                  "%04x: %g", bits, (double)got);
    }
}

Test(quant, converts_f32_and_bf16_from_any_address)
{
    uint8_t bytes[9];
    float value = -1.5f;
    float got;
    memcpy(bytes + 1, &value, 4);
    quant_type_find(QUANT_F32)->to_float(bytes + 1, 1, &got);
    cr_assert_eq(got, -1.5f);
    quant_type_find(QUANT_BF16)->to_float(bytes + 3, 1, &got); /* the upper half of the float */
    cr_assert_eq(got, -1.5f);
}

enum { BLOCKS = 7 };

/* Blocks of pseudo-random bytes with finite scales. */
static void fill(uint8_t *blocks, uint32_t bytes, int halves)
{
    uint32_t state = 12345;
    for (uint32_t i = 0; i < BLOCKS * bytes; i++) {
        state = state * 1664525 + 1013904223;
        blocks[i] = (uint8_t)(state >> 24);
    }
    for (uint32_t b = 0; b < BLOCKS; b++)
        for (int h = 0; h < halves; h++)
            blocks[b * bytes + 2 * (uint32_t)h + 1] &= 0xbf; /* exponent below 16 */
}

static double half_at(const uint8_t *at)
{
    return half((unsigned)at[0] | (unsigned)at[1] << 8);
}

static int nibble(const uint8_t *packed, int i)
{
    return i < 16 ? packed[i] & 15 : packed[i - 16] >> 4;
}

static void check(uint32_t id, int halves, double (*element)(const uint8_t *block, int i))
{
    const struct quant_type *type = quant_type_find(id);
    uint8_t blocks[BLOCKS * 34];
    float got[BLOCKS * 32];
    fill(blocks, type->bytes, halves);
    type->to_float(blocks, BLOCKS, got);
    for (uint32_t i = 0; i < BLOCKS * 32; i++) {
        double want = element(blocks + i / 32 * type->bytes, (int)(i % 32));
        cr_assert_float_eq((double)got[i], want, 1e-6 * (fabs(want) + 1e-3), "%s element %u: %g, not %g",
                           type->name, i, (double)got[i], want);
    }
}

static double element_q4_0(const uint8_t *block, int i)
{
    return half_at(block) * (nibble(block + 2, i) - 8);
}

static double element_q4_1(const uint8_t *block, int i)
{
    return half_at(block) * nibble(block + 4, i) + half_at(block + 2);
}

static double element_q8_0(const uint8_t *block, int i)
{
    return half_at(block) * (block[2 + i] < 128 ? block[2 + i] : block[2 + i] - 256);
}

Test(quant, converts_q4_0)
{
    check(QUANT_Q4_0, 1, element_q4_0);
}

Test(quant, converts_q4_1)
{
    check(QUANT_Q4_1, 2, element_q4_1);
}

Test(quant, converts_q8_0)
{
    check(QUANT_Q8_0, 1, element_q8_0);
}

Test(quant, knows_sizes_of_types_it_does_not_convert)
{
    const struct quant_type *type = quant_type_find(14);
    cr_assert(type && type->bytes == 210 && type->elements == 256);
    cr_assert_null(type->to_float);
    cr_assert_null(quant_type_find(4));
}

/* Every finite f16 comes back; half way to its neighbour the even one is taken, a bit further the farther. */
Test(quant, rounds_to_f16)
{
    for (unsigned bits = 0; bits < 0x7c00; bits++) {
        const double low = half(bits), high = bits == 0x7bff ? 65536 : half(bits + 1);
        const float middle = (float)((low + high) / 2);
        const float from[] = {(float)low, middle, nextafterf(middle, 0), nextafterf(middle, INFINITY),
                              -(float)low};
        uint16_t to[5];
        round_from_float(ATTN_F16, from, 5, to);
        cr_assert(to[0] == bits && to[1] == bits + (bits & 1) && to[2] == bits && to[3] == bits + 1 &&
                      to[4] == (bits | 0x8000),
                  "%04x: %04x %04x %04x %04x %04x", bits, to[0], to[1], to[2], to[3], to[4]);
    }
}

Test(quant, rounds_what_is_no_number_and_bf16)
{
    const float non_finite[] = {INFINITY, -INFINITY, NAN, 1e30f, -1e-30f};
    const float from[] = {1.00390625f, 1.01171875f, 1.005f, INFINITY, 3.4e38f};
    const uint16_t wanted[] = {0x3f80, 0x3f82, 0x3f81, 0x7f80, 0x7f80};
    uint16_t to[5];
    float back[5];
    round_from_float(ATTN_F16, non_finite, 5, to);
    cr_assert(to[0] == 0x7c00 && to[1] == 0xfc00 && (to[2] & 0x7fff) > 0x7c00 && to[3] == 0x7c00 &&
              to[4] == 0x8000);
    round_from_float(ATTN_BF16, non_finite, 3, to);
    cr_assert(to[0] == 0x7f80 && to[1] == 0xff80 && (to[2] & 0x7fff) > 0x7f80);
    round_from_float(ATTN_BF16, from, 5, to);
    cr_assert_arr_eq(to, wanted, sizeof wanted);
    round_to_float(ATTN_BF16, to, 5, back);
    cr_assert(back[0] == 1.0f && back[1] == 1.015625f && back[2] == 1.0078125f);
    round_from_float(ATTN_F32, from, 5, back);
    cr_assert_arr_eq(back, from, sizeof from);
}
