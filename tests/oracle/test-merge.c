/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests what the oracle makes of merges, of element types, and of the bounds. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "oracle.h"

static bool close_to(double a, double b)
{
    return fabs(a - b) <= 1e-13 * fmax(1, fabs(b));
}

Test(merge, empty_and_nan_parts)
{
    float out[2] = {NAN, 5}, lse[2] = {-INFINITY, INFINITY};
    struct attn_merge_part parts[2] = {{.out = {.buffer = {&out[0], 0}}, .lse = {.buffer = {&lse[0], 0}}},
                                       {.out = {.buffer = {&out[1], 0}}, .lse = {.buffer = {&lse[1], 0}}}};
    struct attn_merge_args args;
    double merged, total;
    uint32_t count;

    ATTN_INIT(&args);
    args.count = 2;
    args.parts = parts;
    args.dtype = ATTN_F32;
    args.num_tokens = args.heads = args.head_dim = 1;
    const struct oracle_merged result = {.out = &merged, .lse = &total, .parts = &count};
    oracle_merge(&args, &result);
    cr_expect(merged == 0 && total == -INFINITY && count == 0);
    lse[1] = 2;
    oracle_merge(&args, &result);
    cr_expect(merged == 5 && total == 2 && count == 1);
    lse[0] = NAN;
    oracle_merge(&args, &result);
    cr_expect(isnan(merged) && isnan(total));
}

Test(merge, rescaled_parts_add_up)
{
    float out[3] = {1.5f, -2, 7}, lse[3] = {0.25f, 1.5f, -INFINITY};
    struct attn_tensor all[3];
    struct attn_merge_part parts[3];
    double sum = 0, merged, total;

    memset(parts, 0, sizeof parts);
    memset(all, 0, sizeof all);
    for (int r = 0; r < 3; r++) {
        all[r].buffer.data = parts[r].lse.buffer.data = &lse[r];
        parts[r].out.buffer.data = &out[r];
    }
    for (int r = 0; r < 3; r++) {
        struct attn_rescale_args args;
        double share;
        ATTN_INIT(&args);
        args.dtype = ATTN_F32;
        args.out.buffer.data = &out[r];
        args.own = all[r];
        args.all = all;
        args.count = 3;
        args.num_tokens = args.heads = args.head_dim = 1;
        oracle_rescale(&args, &share);
        sum += share;
        cr_expect(r != 2 || share == 0);
    }
    struct attn_merge_args args;
    ATTN_INIT(&args);
    args.count = 3;
    args.parts = parts;
    args.dtype = ATTN_F32;
    args.num_tokens = args.heads = args.head_dim = 1;
    const struct oracle_merged result = {.out = &merged, .lse = &total};
    oracle_merge(&args, &result);
    cr_expect(close_to(sum, merged));
}

/* Every f16 and bf16 code decodes and encodes to itself; midpoints go to the even code. */
Test(number, codes_come_back)
{
    const uint32_t types[] = {ATTN_F16, ATTN_BF16};

    for (int t = 0; t < 2; t++) {
        for (uint32_t code = 0; code < 0x10000; code++) {
            uint16_t bits = (uint16_t)code, next = (uint16_t)(code + 1), back;
            double here, there;
            oracle_load(types[t], &bits, 1, &here);
            oracle_load(types[t], &next, 1, &there);
            oracle_store(types[t], here, &back);
            if (isnan(here)) {
                double again;
                oracle_load(types[t], &back, 1, &again);
                cr_assert(isnan(again));
                continue;
            }
            cr_assert_eq(back, bits);
            if (!isfinite(here) || !isfinite(there) || signbit(here) != signbit(there))
                continue;
            oracle_store(types[t], (here + there) / 2, &back);
            cr_assert_eq(back, bits % 2 == 0 ? bits : next);
            oracle_store(types[t], here + (there - here) * 0.501, &back);
            cr_assert_eq(back, next);
        }
    }
}

Test(number, known_codes)
{
    const struct {
        uint32_t dtype;
        double value;
        uint16_t bits;
    } known[] = {
        {ATTN_F16, 1, 0x3c00},          {ATTN_F16, 65504, 0x7bff},      {ATTN_F16, 65519.99, 0x7bff},
        {ATTN_F16, 65520, 0x7c00},      {ATTN_F16, 0x1p-24, 0x0001},    {ATTN_F16, 0x1p-25, 0x0000},
        {ATTN_F16, -0x1.8p-25, 0x8001}, {ATTN_F16, -0.0, 0x8000},       {ATTN_BF16, 1, 0x3f80},
        {ATTN_BF16, -2.5, 0xc020},      {ATTN_BF16, 1e39, 0x7f80},      {ATTN_BF16, 0x1p-133, 0x0001},
        {ATTN_F16, 0x1p-14, 0x0400},    {ATTN_BF16, 1.00390625, 0x3f80}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint16_t bits;
        oracle_store(known[i].dtype, known[i].value, &bits);
        cr_expect_eq(bits, known[i].bits, "%g: %04x", known[i].value, bits);
    }
}

Test(bounds, table)
{
    cr_expect(close_to(oracle_bound_out(ORACLE_UNROUNDED, ATTN_F32, 64), 6e-6));
    cr_expect(close_to(oracle_bound_out(ORACLE_UNROUNDED, ATTN_F16, 64), 6e-4));
    cr_expect(close_to(oracle_bound_out(ORACLE_UNROUNDED, ATTN_E4M3, 64), 6e-6));
    cr_expect(close_to(oracle_bound_out(ORACLE_P_F16, ATTN_INT8, 1), 6e-4));
    cr_expect(close_to(oracle_bound_out(ORACLE_P_BF16, ATTN_BF16, 1), 5e-3));
    cr_expect(close_to(oracle_bound_lse(ORACLE_UNROUNDED, 1, 1.5), 1e-5 + 0x1p-22));
    cr_expect(close_to(oracle_bound_merge_out(4, 1, 100, 2), 24 * 0x1p-24));
    cr_expect(close_to(oracle_bound_merge_lse(4, 1, 10), 8 * 0x1p-24 + 20 * 0x1p-23));
}

Test(bounds, before_rounding)
{
    const double inf = (double)INFINITY;
    const struct {
        uint32_t dtype;
        double result, wanted, error;
    } known[] = {{ATTN_BF16, 39, 38.875, 0},          {ATTN_BF16, 39, 38.75, 0.125},
                 {ATTN_BF16, -39, -38.75, 0.125},     {ATTN_BF16, 39, -39, 77.875},
                 {ATTN_BF16, 64, 63.75, 0}, /* half a step above, where it is larger */
                 {ATTN_F16, 1, 1 + 0x1p-10, 0x1p-11}, {ATTN_F16, 0, 0x1p-24, 0x1p-25},
                 {ATTN_F32, 1, 1 + 0x1p-23, 0x1p-23}, {ATTN_F16, inf, 65500, 20}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        double error = oracle_error_before_rounding(known[i].dtype, known[i].result, known[i].wanted);
        cr_expect(error == known[i].error, "%zu: %g", i, error);
    }
    cr_expect(isinf(oracle_error_before_rounding(ATTN_F16, inf, (double)NAN)));
}

/* Beyond the largest number of a type there is infinity of the same sign; nothing else stands for it. */
Test(bounds, infinite_results)
{
    const double inf = (double)INFINITY;
    const struct {
        uint32_t dtype;
        double result, wanted, error;
    } known[] = {{ATTN_F16, inf, 65520, 0},
                 {ATTN_F16, -inf, -238517, 0},
                 {ATTN_F16, inf, -238517, inf},
                 {ATTN_F16, -inf, 65504, inf},
                 {ATTN_F16, inf, 65500, 20},
                 {ATTN_F16, -inf, -65500, 20},
                 {ATTN_F16, 65504, 65519, 15},
                 {ATTN_F16, 65504, 238517, 238517 - 65504.},
                 {ATTN_F16, inf, 3, 65517},
                 {ATTN_BF16, inf, 65520, 0x1.ffp127 - 65520},
                 {ATTN_BF16, inf, 0x1.ffp127, 0},
                 {ATTN_BF16, -inf, -0x1.fep127, 0x1p119},
                 {ATTN_F32, inf, 0x1.ffffffp127, 0},
                 {ATTN_F32, inf, 0x1.fffffep127, 0x1p103},
                 {ATTN_F32, inf, 0x1.ffp127, 0x1.ffffffp127 - 0x1.ffp127},
                 {ATTN_F16, inf, (double)NAN, inf},
                 {ATTN_F16, 2, 3, 1}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        double error = oracle_error(known[i].dtype, known[i].result, known[i].wanted);
        cr_expect(error == known[i].error, "%zu: %g", i, error);
    }
    const uint32_t types[] = {ATTN_F16, ATTN_BF16, ATTN_F32};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        unsigned char code[4];
        double limit = oracle_overflow(types[i]), value;
        oracle_store(types[i], limit, code);
        oracle_load(types[i], code, 1, &value);
        cr_expect(isinf(value));
        oracle_store(types[i], nextafter(limit, 0), code);
        oracle_load(types[i], code, 1, &value);
        cr_expect(isfinite(value));
    }
}
