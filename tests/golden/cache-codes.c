/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_ops.json, fp8: codes of 8-bit caches, read by a gather and made by a write. */
#include <stdlib.h>
#include <string.h>

#include "cache-codes.h"
#include "device.h"

/* A cache of one head of 16 columns, 16 tokens a page. */
enum { COLUMNS = 16, BLOCK = 16 };

static uint32_t type_of(const char *name)
{
    if (strcmp(name, "float8_e4m3fn") == 0)
        return ATTN_E4M3;
    if (strcmp(name, "float8_e5m2") == 0)
        return ATTN_E5M2;
    if (strcmp(name, "float8_e4m3fnuz") == 0)
        return ATTN_E4M3FNUZ;
    return strcmp(name, "float8_e5m2fnuz") == 0 ? (uint32_t)ATTN_E5M2FNUZ : 0;
}

static void describe(uint32_t dtype, const struct attn_buffer *codes, uint32_t pages,
                     struct attn_kv_desc *desc)
{
    ATTN_INIT(desc);
    desc->k_dtype = desc->v_dtype = dtype;
    desc->layout = ATTN_STRIDED;
    desc->pages = pages;
    desc->block = BLOCK;
    desc->kv_heads = 1;
    desc->head_dim = COLUMNS;
    desc->k = desc->v = *codes;
    desc->v.byte_offset += (uint64_t)pages * BLOCK * COLUMNS;
    desc->k_page_stride = desc->v_page_stride = BLOCK * COLUMNS;
    desc->k_token_stride = desc->v_token_stride = COLUMNS;
    desc->k_head_stride = desc->v_head_stride = COLUMNS;
    desc->k_scale.kind = desc->v_scale.kind = ATTN_SCALE_UNIT;
    desc->k_scale.granularity = desc->v_scale.granularity = ATTN_SCALES_UNIT;
}

/* All 256 codes fill one page. */
static void check_decode(struct golden *g, struct attn_backend *backend, uint32_t dtype,
                         const json_t *expected)
{
    unsigned char codes[2 * BLOCK * COLUMNS];
    float numbers[BLOCK * COLUMNS] = {0};
    int32_t table[1] = {0};
    int32_t lens[1] = {BLOCK};
    int32_t offsets[2] = {0, BLOCK};
    struct attn_kv_desc desc;
    struct attn_batch batch;
    struct attn_kv_gather_args args;
    struct attn_error err;

    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (unsigned char)i;
    const struct golden_lent lent[] = {golden_lend(codes, sizeof codes), golden_lend(lens, sizeof lens),
                                       golden_lend(table, sizeof table), golden_lend(offsets, sizeof offsets),
                                       golden_lend(numbers, sizeof numbers)};
    describe(dtype, &lent[0].buffer, 1, &desc);
    ATTN_INIT(&err);
    ATTN_INIT(&batch);
    batch.seqs = 1;
    batch.max_kv = BLOCK;
    batch.kv_lens = lent[1].buffer;
    batch.table = lent[2].buffer;
    batch.table_width = 1;
    batch.table_stride = sizeof table;
    ATTN_INIT(&args);
    args.tokens = BLOCK;
    args.k_dtype = ATTN_F32;
    args.v_dtype = ATTN_F32;
    args.addressing = ATTN_TABLE;
    args.kv_desc = &desc;
    args.batch = &batch;
    args.offsets = lent[3].buffer;
    args.k.buffer = lent[4].buffer;
    args.k.token_stride = args.k.head_stride = COLUMNS * (int64_t)sizeof(float);
    const int32_t status = attn_kv_gather(backend, &args, NULL, &err);
    for (size_t i = 0; i < sizeof lent / sizeof *lent; i++)
        golden_return(&lent[i]);
    if (golden_ok(g, "attn_kv_gather", status, &err)) {
        json_t *actual = json_array();
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            double number = (double)numbers[i];
            const char *text = number > 1e300 ? "inf" : number < -1e300 ? "-inf" : "nan";
            bool finite = number >= -1e300 && number <= 1e300;
            json_array_append_new(actual, finite ? json_real(number) : json_string(text));
        }
        golden_same(g, "decode", expected, actual, NULL);
        json_decref(actual);
    }
}

/* Writes the recorded numbers, row by row of 16, and reads the codes back. */
static void check_encode(struct golden *g, struct attn_backend *backend, uint32_t dtype,
                         const json_t *expected)
{
    size_t count = json_array_size(expected);
    uint32_t rows = (uint32_t)((count + COLUMNS - 1) / COLUMNS);
    uint32_t pages = (rows + BLOCK - 1) / BLOCK;
    unsigned char *codes = golden_memory(2, (size_t)pages * BLOCK * COLUMNS);
    float *numbers = golden_memory((size_t)rows * COLUMNS, sizeof *numbers);
    int64_t *slots = golden_memory(rows, sizeof *slots);
    struct attn_kv_desc desc;
    struct attn_kv_write_args args;
    struct attn_error err;

    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(json_array_get(expected, i), 0);
        const char *text = json_string_value(value);
        numbers[i] = text != NULL ? strtof(text, NULL) : (float)json_number_value(value);
    }
    for (uint32_t i = 0; i < rows; i++)
        slots[i] = i;
    const struct golden_lent lent[] = {golden_lend(codes, 2 * (uint64_t)pages * BLOCK * COLUMNS),
                                       golden_lend(numbers, (uint64_t)rows * COLUMNS * sizeof *numbers),
                                       golden_lend(slots, rows * sizeof *slots)};
    describe(dtype, &lent[0].buffer, pages, &desc);
    ATTN_INIT(&err);
    ATTN_INIT(&args);
    args.k_dtype = args.v_dtype = ATTN_F32;
    args.num_tokens = rows;
    args.k_new.buffer = args.v_new.buffer = lent[1].buffer;
    args.k_new.token_stride = args.v_new.token_stride = COLUMNS * (int64_t)sizeof(float);
    args.k_new.head_stride = args.v_new.head_stride = COLUMNS * (int64_t)sizeof(float);
    args.kv_desc = &desc;
    args.slot_mapping = lent[2].buffer;
    const int32_t status = attn_kv_write(backend, &args, NULL, &err);
    for (size_t i = 0; i < sizeof lent / sizeof *lent; i++)
        golden_return(&lent[i]);
    if (golden_ok(g, "attn_kv_write", status, &err)) {
        json_t *actual = json_array();
        for (size_t i = 0; i < count; i++)
            json_array_append_new(
                actual, json_pack("[O, i]", json_array_get(json_array_get(expected, i), 0), (int)codes[i]));
        golden_same(g, "encode", expected, actual, NULL);
        json_decref(actual);
    }
    free(codes);
    free(numbers);
    free(slots);
}

void check_codes(struct golden *g, struct attn_backend *backend, const json_t *types)
{
    const char *name;
    json_t *tables;

    json_object_foreach((json_t *)types, name, tables)
    {
        uint32_t dtype = type_of(name);
        const json_t *decode = json_object_get(tables, "decode");
        const json_t *encode = json_object_get(tables, "encode_satfinite");
        if (dtype == 0) {
            golden_broken(g, "type %s is not known", name);
            continue;
        }
        if (decode != NULL) {
            golden_begin(g, "fp8.%s.decode", name);
            check_decode(g, backend, dtype, decode);
            golden_end(g);
        }
        if (encode != NULL) {
            golden_begin(g, "fp8.%s.encode", name);
            check_encode(g, backend, dtype, encode);
            golden_end(g);
        }
    }
}
