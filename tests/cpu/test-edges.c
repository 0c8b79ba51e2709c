/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Tests the kernels at the edges of a vector: heads shorter than one, keys that do not exist in scratch full
 * of NaN, sums that underflow. Decode and prefill, at the level of this machine and at none.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "shape-fixture.h"

enum { HEADS = 2, BLOCK = 4, PAGES = 5, KEYS = BLOCK * PAGES, ROWS = 12, DIM_MAX = 40 };

/* One sequence whose last `tokens` keys are the queries, in f32; the cache may be of e4m3. */
struct desk {
    struct shape_fixture fixture;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;
    uint32_t kv_dtype;
    int32_t q_offsets[2];
    int32_t kv_lens[1];
    int32_t table[PAGES];
    float q[ROWS * HEADS * DIM_MAX];
    float k[KEYS * DIM_MAX];
    float v[KEYS * DIM_MAX];
    float out[ROWS * HEADS * DIM_MAX];
};

static void desk_init(struct desk *desk, const char *flags)
{
    memset(desk, 0, sizeof *desk);
    desk->kv_dtype = ATTN_F32;
    fixture_open(&desk->fixture, flags);
    for (uint32_t i = 0; i < ROWS * HEADS * DIM_MAX; i++)
        desk->q[i] = (float)((i * 2654435761u) >> 8 & 0xff) / 128 - 1;
    for (uint32_t i = 0; i < KEYS * DIM_MAX; i++) {
        desk->k[i] = (float)((i * 2246822519u) >> 8 & 0xff) / 128 - 1;
        desk->v[i] = (float)((i * 3266489917u) >> 8 & 0xff) / 128 - 1;
    }
    for (int32_t i = 0; i < PAGES; i++)
        desk->table[i] = i;
}

/* Runs it for `tokens` query tokens of head size dim/dim_vo: more than 8 are a prefill. */
static void desk_run(struct desk *desk, int32_t tokens, uint32_t dim, uint32_t dim_vo)
{
    struct attn_problem problem;
    struct attn_error err;
    const int64_t size = attn_dtype_size(desk->kv_dtype);
    char text[128];

    snprintf(text, sizeof text, "heads=%u kv_heads=1 head_dim=%u/%u q=f32 %s out=f32 block=%u", HEADS, dim,
             dim_vo, size == 1 ? "kv=e4m3 scales=unit" : "kv=f32", BLOCK);
    fixture_problem(text, &problem);
    ATTN_INIT(&err);
    ATTN_INIT(&desk->batch);
    ATTN_INIT(&desk->tensors);
    ATTN_INIT(&desk->kv);
    desk->q_offsets[1] = tokens;
    desk->kv_lens[0] = KEYS;
    desk->batch.seqs = 1;
    desk->batch.num_tokens = desk->batch.max_q = (uint32_t)tokens;
    desk->batch.max_kv = KEYS;
    desk->batch.q_offsets.data = desk->q_offsets;
    desk->batch.kv_lens.data = desk->kv_lens;
    desk->batch.table.data = desk->table;
    desk->batch.table_width = PAGES;
    desk->batch.table_stride = sizeof desk->table;
    desk->kv.k_dtype = desk->kv.v_dtype = desk->kv_dtype;
    if (size == 1)
        desk->kv.k_scale.kind = desk->kv.v_scale.kind = ATTN_SCALE_UNIT;
    desk->kv.pages = PAGES;
    desk->kv.block = BLOCK;
    desk->kv.kv_heads = 1;
    desk->kv.head_dim = dim;
    desk->kv.head_dim_vo = dim_vo;
    desk->kv.k.data = desk->k;
    desk->kv.v.data = desk->v;
    desk->kv.k_head_stride = desk->kv.k_token_stride = dim * size;
    desk->kv.v_head_stride = desk->kv.v_token_stride = dim_vo * size;
    desk->kv.k_page_stride = desk->kv.k_token_stride * BLOCK;
    desk->kv.v_page_stride = desk->kv.v_token_stride * BLOCK;
    desk->tensors.softmax_scale = 0.3f;
    desk->tensors.kv_desc = &desk->kv;
    desk->tensors.q = fixture_tensor(desk->q, dim * HEADS * sizeof(float), dim * sizeof(float));
    desk->tensors.out = fixture_tensor(desk->out, dim_vo * HEADS * sizeof(float), dim_vo * sizeof(float));
    cr_assert_eq(fixture_run(&desk->fixture, &problem, &desk->batch, &desk->tensors, &err), ATTN_OK, "%s: %s",
                 text, err.message);
}

static const int32_t row_counts[] = {1, ROWS};
static const char *const levels[] = {NULL, "none"};

Test(edges, heads_of_every_size)
{
    static struct desk best, reference;

    desk_init(&best, NULL);
    desk_init(&reference, "none");
    for (uint32_t dim = 1; dim <= DIM_MAX; dim++) {
        const uint32_t sizes[][2] = {{dim, DIM_MAX}, {DIM_MAX, dim}, {dim, dim}};
        for (uint32_t i = 0; i < 6; i++) {
            const int32_t tokens = row_counts[i % 2];
            const uint32_t *size = sizes[i / 2];
            desk_run(&best, tokens, size[0], size[1]);
            desk_run(&reference, tokens, size[0], size[1]);
            for (uint32_t e = 0; e < (uint32_t)tokens * HEADS * size[1]; e++)
                cr_assert_float_eq(best.out[e], reference.out[e], 2e-6, "%u/%u, %d tokens, element %u",
                                   size[0], size[1], tokens, e);
        }
    }
    fixture_close(&best.fixture);
    fixture_close(&reference.fixture);
}

/* The scratch of a run holds what the run before left there: NaN, in keys and values of a prefill too. */
Test(edges, invalid_blocks_in_used_scratch)
{
    for (uint32_t i = 0; i < 4; i++) {
        static struct desk desk;
        desk_init(&desk, levels[i % 2]);
        desk.table[2] = -1;
        desk_run(&desk, row_counts[i / 2], 24, 24);
        for (uint32_t e = 0; e < (uint32_t)row_counts[i / 2] * HEADS * 24; e++)
            cr_assert(isfinite(desk.out[e]), "level %s, %d tokens, element %u", levels[i % 2],
                      row_counts[i / 2], e);
        fixture_close(&desk.fixture);
    }
}

/* A sum below the smallest number is 0, not -0, as where there was nothing to add. */
Test(edges, sums_that_underflow)
{
    for (uint32_t i = 0; i < 4; i++) {
        static struct desk desk;
        desk_init(&desk, levels[i % 2]);
        memset(desk.k, 0, sizeof desk.k); /* equal weights */
        memset(desk.v, 0, sizeof desk.v);
        for (uint32_t d = 0; d < 24; d++)
            desk.v[d] = -0x1p-149f;
        desk_run(&desk, row_counts[i / 2], 24, 24);
        for (uint32_t e = 0; e < (uint32_t)row_counts[i / 2] * HEADS * 24; e++)
            cr_assert(desk.out[e] == 0 && !signbit(desk.out[e]), "level %s, %d tokens, element %u",
                      levels[i % 2], row_counts[i / 2], e);
        fixture_close(&desk.fixture);
    }
}

/* A NaN in a key, or in a value, makes results NaN wherever in the vector it is: of a value those of its
 * column. */
Test(edges, nan_codes_at_every_element)
{
    static const uint32_t dims[] = {32, 40, 64, 72};
    static struct desk desk;
    unsigned char *const keys = (unsigned char *)desk.k, *const values = (unsigned char *)desk.v;

    desk_init(&desk, NULL);
    desk.kv_dtype = ATTN_E4M3;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t dim = dims[i];
        for (uint32_t at = 0; at < 2 * dim; at++) {
            unsigned char *const codes = at < dim ? keys : values;
            memset(keys, 0x31, (size_t)KEYS * dim);
            memset(values, 0x31, (size_t)KEYS * dim);
            codes[3 * dim + at % dim] = at % 2 ? 0x7f : 0xff;
            desk_run(&desk, 1, dim, dim);
            for (uint32_t e = 0; e < HEADS * dim; e++)
                cr_assert_eq(isnan(desk.out[e]) != 0, at < dim || e % dim == at % dim,
                             "head size %u, element %u of a %s, element %u", dim, at % dim,
                             at < dim ? "key" : "value", e);
        }
    }
    fixture_close(&desk.fixture);
}
