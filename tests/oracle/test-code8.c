/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests how the oracle reads and writes the 8-bit types, against the table of docs/definition.md. */
#include <criterion/criterion.h>
#include <math.h>

#include "oracle.h"

static const uint32_t types[] = {ATTN_E4M3, ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ, ATTN_INT8};
enum { TYPES = sizeof types / sizeof types[0] };

Test(code8, known_codes)
{
    const struct {
        uint32_t dtype;
        uint8_t code;
        double value;
    } known[] = {
        {ATTN_E4M3, 0x7e, 448},         {ATTN_E4M3, 0x01, 0x1p-9},      {ATTN_E4M3, 0x08, 0x1p-6},
        {ATTN_E4M3, 0x38, 1},           {ATTN_E4M3, 0xb9, -1.125},      {ATTN_E4M3, 0x07, 7 * 0x1p-9},
        {ATTN_E5M2, 0x7b, 57344},       {ATTN_E5M2, 0x01, 0x1p-16},     {ATTN_E5M2, 0x3c, 1},
        {ATTN_E5M2, 0xbd, -1.25},       {ATTN_E5M2, 0x04, 0x1p-14},     {ATTN_E4M3FNUZ, 0x7f, 240},
        {ATTN_E4M3FNUZ, 0x01, 0x1p-10}, {ATTN_E4M3FNUZ, 0x40, 1},       {ATTN_E4M3FNUZ, 0xff, -240},
        {ATTN_E5M2FNUZ, 0x7f, 57344},   {ATTN_E5M2FNUZ, 0x01, 0x1p-17}, {ATTN_E5M2FNUZ, 0x40, 1},
        {ATTN_E5M2FNUZ, 0xc2, -1.5},    {ATTN_INT8, 0x7f, 127},         {ATTN_INT8, 0x81, -127},
        {ATTN_INT8, 0xff, -1}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        cr_expect_eq(oracle_decode8(known[i].dtype, known[i].code), known[i].value, "code %zu", i);
        cr_expect_eq(oracle_encode8(known[i].dtype, known[i].value), known[i].code, "value %zu", i);
    }
    cr_expect_eq(oracle_decode8(ATTN_INT8, 0x80), -128);
    cr_expect_eq(oracle_decode8(ATTN_E5M2, 0x7c), (double)INFINITY);
    cr_expect_eq(oracle_decode8(ATTN_E5M2, 0xfc), -(double)INFINITY);
}

Test(code8, nan_codes)
{
    for (int t = 0; t < TYPES; t++) {
        for (int code = 0; code < 256; code++) {
            bool nan = false;
            if (types[t] == ATTN_E4M3)
                nan = code == 0x7f || code == 0xff;
            if (types[t] == ATTN_E5M2)
                nan = (code >= 0x7d && code <= 0x7f) || code >= 0xfd;
            if (types[t] == ATTN_E4M3FNUZ || types[t] == ATTN_E5M2FNUZ)
                nan = code == 0x80;
            cr_expect_eq(isnan(oracle_decode8(types[t], (uint8_t)code)) != 0, nan, "%x %02x", types[t], code);
        }
    }
    const uint8_t written[] = {0x7f, 0x7f, 0x80, 0x80, 0};
    for (int t = 0; t < TYPES; t++)
        cr_expect_eq(oracle_encode8(types[t], (double)NAN), written[t]);
}

Test(code8, too_large_and_zero)
{
    const uint8_t most[] = {0x7e, 0x7b, 0x7f, 0x7f, 0x7f}, least[] = {0xfe, 0xfb, 0xff, 0xff, 0x81};
    const uint8_t minus_zero[] = {0x80, 0x80, 0, 0, 0};

    for (int t = 0; t < TYPES; t++) {
        cr_expect_eq(oracle_encode8(types[t], (double)INFINITY), most[t]);
        cr_expect_eq(oracle_encode8(types[t], 1e6), most[t]);
        cr_expect_eq(oracle_encode8(types[t], oracle_most8(types[t]) * 1.01), most[t]);
        cr_expect_eq(oracle_encode8(types[t], -(double)INFINITY), least[t]);
        cr_expect_eq(oracle_encode8(types[t], -1e6), least[t]);
        cr_expect_eq(oracle_encode8(types[t], 1e-9), 0);
        cr_expect_eq(oracle_encode8(types[t], -1e-9), minus_zero[t]);
        cr_expect_eq(oracle_encode8(types[t], -0.0), minus_zero[t]);
        cr_expect_eq(oracle_size(types[t]), 1);
    }
}

/* Every code comes back; what lies between two neighbours goes to the nearer one, the middle to the even one.
 */
Test(code8, rounding)
{
    for (int t = 0; t < TYPES; t++) {
        bool whole = types[t] == ATTN_INT8;
        for (int code = 0; code < 256; code++) {
            double here = oracle_decode8(types[t], (uint8_t)code);
            if (!isfinite(here) || here == -128)
                continue;
            cr_assert_eq(oracle_encode8(types[t], here), code);
            int next = code + 1;
            double there = oracle_decode8(types[t], (uint8_t)next);
            if (code == 0x7f || code == 0xff || !isfinite(there) || (whole && here < 0))
                continue;
            cr_assert(fabs(there) > fabs(here) || there == here);
            double middle = (here + there) / 2;
            if (middle == 0)
                continue;
            cr_assert_eq(oracle_encode8(types[t], middle), code % 2 == 0 ? code : next, "%x %02x", types[t],
                         code);
            cr_assert_eq(oracle_encode8(types[t], here + (there - here) * 0.499), code);
            cr_assert_eq(oracle_encode8(types[t], here + (there - here) * 0.501), next);
            cr_assert(fabs(fabs(there - here) / 2 - oracle_half_step(types[t], here)) <
                      1e-12 * fabs(there - here));
        }
    }
}

Test(code8, writing_divides_in_f32)
{
    cr_expect_eq(oracle_write8(ATTN_INT8, 10, 4), 2); /* 2.5 to even */
    cr_expect_eq(oracle_write8(ATTN_INT8, 14, 4), 4); /* 3.5 */
    cr_expect_eq(oracle_write8(ATTN_E4M3, 896, 2), 0x7e);
    cr_expect_eq(oracle_write8(ATTN_INT8, (double)NAN, 1), 0);
    float scale = 0.1f;
    float just = 0.25f; /* 0.25 / 0.1f: below 2.5 exactly, 2.5 in f32 */
    cr_expect_lt((double)just / (double)scale, 2.5);
    cr_expect_eq(oracle_write8(ATTN_INT8, (double)just, (double)scale), 2);
    just = 0.35f; /* exactly below 3.5, but not in f32: then even, 4 */
    cr_expect_lt((double)just / (double)scale, 3.5);
    cr_expect_eq(just / scale, 3.5f);
    cr_expect_eq(oracle_write8(ATTN_INT8, (double)just, (double)scale), 4);
    cr_expect(oracle_accepts8(ATTN_INT8, (double)just, (double)scale, 3));
    cr_expect(oracle_accepts8(ATTN_INT8, (double)just, (double)scale, 4));
    cr_expect(!oracle_accepts8(ATTN_INT8, (double)just, (double)scale, 5));
    cr_expect(!oracle_accepts8(ATTN_INT8, 3.4, 1, 4));
    cr_expect(!oracle_accepts8(ATTN_E4M3, 0, 1, 0x80));
}

Test(code8, scales_of_a_row)
{
    const double rows[][3] = {
        {1, -254, 3}, {0, 0, 0}, {1, (double)NAN, 2}, {1, -(double)INFINITY, 2}, {1e-40, 0, 0}};
    const double most[] = {448, 57344, 240, 57344, 127};
    uint8_t codes[3];

    for (int t = 0; t < TYPES; t++) {
        cr_expect_eq(oracle_most8(types[t]), most[t]);
        double scale = oracle_write_row8(types[t], rows[0], 3, codes);
        cr_expect_eq(scale, (double)(254.0f / (float)most[t]));
        cr_expect_eq(fabs(oracle_decode8(types[t], codes[1])), most[t]);
        cr_expect_eq(oracle_token_scale(types[t], rows[1], 3), 1);
        cr_expect(isnan(oracle_token_scale(types[t], rows[2], 3)));
        cr_expect(isnan(oracle_token_scale(types[t], rows[3], 3)));
        cr_expect_eq(oracle_token_scale(types[t], rows[4], 3), 1);
        const double small[] = {0x1p-126 * most[t], -0x1p-127 * most[t]};
        cr_expect_eq(oracle_token_scale(types[t], small, 2), 0x1p-126);
        cr_expect_eq(oracle_token_scale(types[t], small + 1, 1), 1);
    }
    for (int i = 1; i < 2000; i++) { /* reading gives back what was written, but for half a step */
        const double row[] = {sin(i), 3 * sin(2.0 * i), cos(i) / 50};
        double narrow[3];
        for (int d = 0; d < 3; d++)
            narrow[d] = (double)(float)row[d];
        for (int t = 0; t < TYPES; t++) {
            double scale = oracle_write_row8(types[t], narrow, 3, codes);
            for (int d = 0; d < 3; d++) {
                double read = oracle_decode8(types[t], codes[d]) * scale;
                double step = oracle_half_step(types[t], narrow[d] / scale) * scale;
                cr_assert_leq(fabs(read - narrow[d]), step * 1.000001);
            }
        }
    }
}
