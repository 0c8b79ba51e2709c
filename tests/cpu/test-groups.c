/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Tests decode of large groups of query heads at the edges of numbers: infinities, numbers that are too small
 * or too large for the terms that tile instructions multiply, and scratch with anything in it.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "shape-fixture.h"

enum { HEADS = 16, DIM = 64, BLOCK = 16, KEYS = 40, PAGES = 3 };

/* One query token over one kv head. */
struct desk {
    struct shape_fixture fixture;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;
    int32_t q_offsets[2];
    int32_t kv_lens[1];
    int32_t table[PAGES];
    float k_scale[1];
    float q[HEADS * DIM];
    uint16_t k[PAGES * BLOCK * DIM], v[PAGES * BLOCK * DIM]; /* bf16, or in the first half int8 */
    float out[HEADS * DIM];
};

static uint16_t bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float noise(uint32_t i)
{
    return (float)((i * 2654435761u) >> 24) / 128 - 1;
}

static void desk_init(struct desk *desk, const char *flags)
{
    memset(desk, 0, sizeof *desk);
    fixture_open(&desk->fixture, flags);
    desk->k_scale[0] = 1;
    for (uint32_t i = 0; i < HEADS * DIM; i++)
        desk->q[i] = noise(i);
    for (uint32_t i = 0; i < PAGES * BLOCK * DIM; i++) {
        desk->k[i] = bf16(noise(i + 1000));
        desk->v[i] = bf16(noise(i + 9000));
    }
    for (int32_t i = 0; i < PAGES; i++)
        desk->table[i] = PAGES - 1 - i;
}

static void desk_fill_int8(struct desk *desk)
{
    int8_t *k = (int8_t *)desk->k, *v = (int8_t *)desk->v;

    for (uint32_t i = 0; i < PAGES * BLOCK * DIM; i++) {
        k[i] = (int8_t)(noise(i + 1000) * 127);
        v[i] = (int8_t)(noise(i + 9000) * 127);
    }
}

/* The element of key `key` and column `d`, in pages that the table has backwards. */
static uint32_t at(uint32_t key, uint32_t d)
{
    return ((PAGES - 1 - key / BLOCK) * BLOCK + key % BLOCK) * DIM + d;
}

static void desk_run(struct desk *desk, uint32_t type, int32_t keys)
{
    struct attn_problem problem;
    struct attn_error err;
    const bool int8 = type == ATTN_INT8;

    fixture_problem(
        int8 ? "heads=16 kv_heads=1 head_dim=64 q=f32 kv=int8 out=f32 block=16 k_scale=tensor v_scale=unit"
             : "heads=16 kv_heads=1 head_dim=64 q=f32 kv=bf16 out=f32 block=16",
        &problem);
    ATTN_INIT(&err);
    ATTN_INIT(&desk->batch);
    ATTN_INIT(&desk->tensors);
    ATTN_INIT(&desk->kv);
    desk->q_offsets[1] = 1;
    desk->kv_lens[0] = keys;
    desk->batch.seqs = desk->batch.num_tokens = desk->batch.max_q = 1;
    desk->batch.max_kv = (uint32_t)keys;
    desk->batch.q_offsets.data = desk->q_offsets;
    desk->batch.kv_lens.data = desk->kv_lens;
    desk->batch.table.data = desk->table;
    desk->batch.table_width = PAGES;
    desk->batch.table_stride = sizeof desk->table;
    desk->kv.k_dtype = desk->kv.v_dtype = type;
    desk->kv.pages = PAGES;
    desk->kv.block = BLOCK;
    desk->kv.kv_heads = 1;
    desk->kv.head_dim = desk->kv.head_dim_vo = DIM;
    desk->kv.k.data = desk->k;
    desk->kv.v.data = desk->v;
    desk->kv.k_head_stride = desk->kv.k_token_stride = int8 ? DIM : 2 * DIM;
    desk->kv.v_head_stride = desk->kv.v_token_stride = desk->kv.k_token_stride;
    desk->kv.k_page_stride = desk->kv.v_page_stride = desk->kv.k_token_stride * BLOCK;
    if (int8) {
        desk->kv.k_scale.kind = ATTN_SCALE_HOST;
        desk->kv.k_scale.granularity = ATTN_SCALES_TENSOR;
        desk->kv.k_scale.buffer.data = desk->k_scale;
        desk->kv.v_scale.kind = ATTN_SCALE_UNIT;
    }
    desk->tensors.softmax_scale = 0.3f;
    desk->tensors.kv_desc = &desk->kv;
    desk->tensors.q = fixture_tensor(desk->q, HEADS * DIM * sizeof(float), DIM * sizeof(float));
    desk->tensors.out = fixture_tensor(desk->out, HEADS * DIM * sizeof(float), DIM * sizeof(float));
    cr_assert_eq(fixture_run(&desk->fixture, &problem, &desk->batch, &desk->tensors, &err), ATTN_OK, "%s",
                 err.message);
}

/* An infinite value that all rows see makes its column infinite, and no other. */
Test(groups, infinite_values)
{
    static struct desk desk;

    desk_init(&desk, NULL);
    desk.v[at(21, 5)] = bf16(INFINITY);
    desk.v[at(35, 9)] = bf16(-INFINITY);
    desk_run(&desk, ATTN_BF16, KEYS);
    for (uint32_t e = 0; e < HEADS * DIM; e++) {
        const uint32_t d = e % DIM;
        if (d == 5 || d == 9)
            cr_assert(isinf(desk.out[e]) && (desk.out[e] < 0) == (d == 9), "element %u is %g", e,
                      (double)desk.out[e]);
        else
            cr_assert(isfinite(desk.out[e]), "element %u is %g", e, (double)desk.out[e]);
    }
    fixture_close(&desk.fixture);
}

/* A key whose score is minus infinity has no weight. */
Test(groups, infinite_keys)
{
    static struct desk desk, without;

    desk_init(&desk, NULL);
    desk_init(&without, NULL);
    for (uint32_t h = 0; h < HEADS; h++)
        desk.q[h * DIM] = without.q[h * DIM] = 0.5f; /* one bf16: what is left of it is 0 */
    desk.k[at(KEYS - 1, 0)] = bf16(-INFINITY);
    desk_run(&desk, ATTN_BF16, KEYS);
    desk_run(&without, ATTN_BF16, KEYS - 1);
    for (uint32_t e = 0; e < HEADS * DIM; e++)
        cr_assert_float_eq(desk.out[e], without.out[e], 2e-6, "element %u", e);
    fixture_close(&desk.fixture);
    fixture_close(&without.fixture);
}

/* Queries that are as much smaller as scales of keys are larger; values are up to 127. */
Test(groups, small_and_large_queries)
{
    static const float factors[] = {0x1p-110f, 0x1p-90f, 0x1p+90f, 0x1p+105f};
    static struct desk desk, plain;

    desk_init(&plain, NULL);
    desk_fill_int8(&plain);
    plain.k_scale[0] = 0x1p-7f;
    desk_run(&plain, ATTN_INT8, KEYS);
    for (uint32_t i = 0; i < 4; i++) {
        desk_init(&desk, NULL);
        desk_fill_int8(&desk);
        desk.k_scale[0] = plain.k_scale[0] / factors[i];
        for (uint32_t e = 0; e < HEADS * DIM; e++)
            desk.q[e] = plain.q[e] * factors[i];
        desk_run(&desk, ATTN_INT8, KEYS);
        for (uint32_t e = 0; e < HEADS * DIM; e++)
            cr_assert_float_eq(desk.out[e], plain.out[e], 1e-3, "queries times %g, element %u",
                               (double)factors[i], e);
        fixture_close(&desk.fixture);
    }
    fixture_close(&plain.fixture);
}

/* Results do not depend on what was in the scratch: fewer keys than a tile has. */
Test(groups, any_scratch)
{
    static const uint32_t types[] = {ATTN_BF16, ATTN_INT8};
    static struct desk desk;
    float before[HEADS * DIM];

    for (uint32_t i = 0; i < 2; i++) {
        desk_init(&desk, NULL);
        if (types[i] == ATTN_INT8)
            desk_fill_int8(&desk);
        desk_run(&desk, types[i], 9);
        memcpy(before, desk.out, sizeof before);
        desk.fixture.scratch_byte = 0;
        desk_run(&desk, types[i], 9);
        cr_assert_arr_eq(before, desk.out, sizeof before, "type %u", types[i]);
        fixture_close(&desk.fixture);
    }
}
