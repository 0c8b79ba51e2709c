/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests 8-bit encodings exhaustively, and that a write finds scales and codes as docs/definition.md says. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "feature-case.h"
#include "fp8-int8.h"
#include "plugin.h"

static const uint32_t types[] = {ATTN_E4M3, ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ, ATTN_INT8};
static const double largest[] = {448, 57344, 240, 57344, 127};

enum { TYPES = 5, ROWS = 5, HEADS = 2, DIM = 24, BLOCK = 4, PAGES = 3 };

Test(write8, every_code_and_midpoint)
{
    for (int t = 0; t < TYPES; t++) {
        for (int code = 0; code < 256; code++) {
            double number = number_of_code(types[t], (uint8_t)code);
            float read = attn__codec8_decode(types[t], (uint8_t)code);
            cr_assert(isnan(number) ? isnan(read) : (double)read == number, "%s code %d",
                      attn_dtype_name(types[t]), code);
            if (!isfinite(number) || (types[t] == ATTN_INT8 && code == 128))
                continue;
            cr_assert_eq(attn__codec8_encode(types[t], read), code, "%s code %d", attn_dtype_name(types[t]),
                         code);
            double next = code < 127 ? number_of_code(types[t], (uint8_t)(code + 1)) : (double)NAN;
            if (!isfinite(next))
                continue;
            float middle = (float)((number + next) / 2);
            cr_assert_eq(attn__codec8_encode(types[t], middle), code + code % 2);
            cr_assert_eq(attn__codec8_encode(types[t], nextafterf(middle, 0)), code);
            cr_assert_eq(attn__codec8_encode(types[t], nextafterf(middle, INFINITY)), code + 1);
        }
        cr_assert_eq(number_of_code(types[t], attn__codec8_encode(types[t], INFINITY)), largest[t]);
        cr_assert_eq(number_of_code(types[t], attn__codec8_encode(types[t], -FLT_MAX)), -largest[t]);
    }
    cr_assert_eq(attn__codec8_encode(ATTN_E4M3, NAN), 0x7f);
    cr_assert_eq(attn__codec8_encode(ATTN_E5M2FNUZ, NAN), 0x80);
    cr_assert_eq(attn__codec8_encode(ATTN_INT8, NAN), 0);
    cr_assert_eq(attn__codec8_encode(ATTN_E5M2, -1e-20f), 0x80);
    cr_assert_eq(attn__codec8_encode(ATTN_E4M3FNUZ, -1e-20f), 0);
}

/* Rows of ordinary numbers, of zeros, one with a NaN, one with an infinity. */
static void fill(float x[ROWS][HEADS][DIM])
{
    for (int i = 0; i < ROWS * HEADS * DIM; i++)
        x[i / DIM / HEADS][i / DIM % HEADS][i % DIM] = (float)((uint32_t)i * 2654435761u % 4001) / 500 - 4;
    memset(x[1], 0, sizeof x[1]);
    x[2][1][5] = NAN;
    x[3][0][23] = -INFINITY;
}

/* What is stored of one value. */
static void judge(uint32_t t, float scale, float value, uint8_t code)
{
    double quotient = (double)(value / scale), number = number_of_code(types[t], code);

    if (isnan(quotient)) {
        cr_assert(types[t] == ATTN_INT8 ? code == 0 : isnan(number));
        return;
    }
    quotient = fmax(-largest[t], fmin(largest[t], quotient));
    for (int other = 0; other < 256; other++) {
        double distance = fabs(number_of_code(types[t], (uint8_t)other) - quotient);
        cr_assert(!(distance < fabs(number - quotient)), "%s: %g became code %d", attn_dtype_name(types[t]),
                  quotient, code);
    }
}

static void write_type(const struct entered *entered, struct attn_backend_impl *backend, uint32_t t, bool own)
{
    static float x[ROWS][HEADS][DIM];
    int64_t slots[ROWS] = {7, 0, 11, 5, -1};
    uint8_t k[PAGES][BLOCK][HEADS][DIM], v[PAGES][BLOCK][HEADS][DIM];
    float scales[PAGES][BLOCK][HEADS], fixed = 0.0625f;
    struct attn_kv_desc desc;
    struct attn_kv_write_args args;
    struct attn_error err;

    fill(x);
    memset(k, 0x55, sizeof k);
    memset(scales, 0x55, sizeof scales);
    ATTN_INIT(&err);
    ATTN_INIT(&desc);
    ATTN_INIT(&args);
    desc.k_dtype = desc.v_dtype = types[t];
    desc.pages = PAGES;
    desc.block = BLOCK;
    desc.kv_heads = HEADS;
    desc.head_dim = desc.head_dim_vo = DIM;
    desc.k.data = k;
    desc.v.data = v;
    desc.k_page_stride = desc.v_page_stride = sizeof k[0];
    desc.k_token_stride = desc.v_token_stride = sizeof k[0][0];
    desc.k_head_stride = desc.v_head_stride = sizeof k[0][0][0];
    desc.k_scale = (struct attn_scale){ATTN_SCALE_DEVICE, ATTN_SCALES_TENSOR, {&fixed, 0}, 0, 0, 0, {0}};
    desc.v_scale = desc.k_scale;
    if (own)
        desc.k_scale =
            (struct attn_scale){ATTN_SCALE_DEVICE,   ATTN_SCALES_TOKEN_HEAD, {scales, 0}, sizeof scales[0],
                                sizeof scales[0][0], sizeof scales[0][0][0], {0}};
    args.k_dtype = args.v_dtype = ATTN_F32;
    args.num_tokens = ROWS;
    args.k_new.buffer.data = args.v_new.buffer.data = x;
    args.k_new.token_stride = args.v_new.token_stride = sizeof x[0];
    args.k_new.head_stride = args.v_new.head_stride = sizeof x[0][0];
    args.slot_mapping.data = slots;
    cr_assert_eq(entered->table->kv->write(backend, &args, NULL, &desc, NULL, &err), ATTN_OK, "%s",
                 err.message);
    for (int row = 0; row < ROWS - 1; row++) {
        for (int h = 0; h < HEADS; h++) {
            float scale = own ? scales[slots[row] / BLOCK][slots[row] % BLOCK][h] : fixed, most = 0;
            for (int d = 0; d < DIM; d++) {
                most = fmaxf(most, fabsf(x[row][h][d]));
                judge(t, scale, x[row][h][d], k[slots[row] / BLOCK][slots[row] % BLOCK][h][d]);
                judge(t, fixed, x[row][h][d], v[slots[row] / BLOCK][slots[row] % BLOCK][h][d]);
            }
            if (own && ((row == 2 && h == 1) || (row == 3 && h == 0)))
                cr_assert(isnan(scale));
            else if (own)
                cr_assert_eq(scale, row == 1 ? 1 : most / (float)largest[t]);
        }
    }
    cr_assert_eq(k[0][1][0][0], 0x55, "a slot that no row names was written");
}

Test(write8, scales_and_codes)
{
    struct entered entered;

    plugin_enter(&entered, NULL, NULL);
    struct attn_backend_impl *backend = plugin_open(&entered, 1);
    for (uint32_t t = 0; t < TYPES; t++) {
        write_type(&entered, backend, t, true);
        write_type(&entered, backend, t, false);
    }
    entered.table->close(backend);
    plugin_leave(&entered);
}
