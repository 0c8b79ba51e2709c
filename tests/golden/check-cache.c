/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_ops.json: writing new keys and values, copying pages, and the codes of 8-bit caches. */
#include "cache-codes.h"
#include "device.h"
#include "golden.h"

#include <string.h>

/* One half of a cache as it was recorded: which elements were written, and with what. */
struct half {
    unsigned char *memory;
    unsigned char *other; /* the same with another fill: what differs was not written */
    size_t elements;      /* of the whole allocation */
};

enum { FILL = 0x5a, OTHER_FILL = 0xa5 };

struct reshape {
    const json_t *row;
    bool paged;
    uint32_t dtype;
    uint32_t element; /* bytes */
    uint32_t rows;
    uint32_t heads;
    uint32_t head_dim;
    uint32_t block;
    uint32_t pages;
    uint32_t token_stride; /* elements of the new keys and values */
    uint64_t page_stride;  /* elements of the cache */
    float k_scale;
    float v_scale;
};

static bool read_row(struct golden *g, const json_t *row, struct reshape *out)
{
    const char *kv = golden_text(row, "kv", "auto");
    const char *layout = golden_text(row, "layout", "");

    memset(out, 0, sizeof *out);
    out->row = row;
    out->paged = strcmp(layout, "paged") == 0;
    out->rows = (uint32_t)json_array_size(json_object_get(row, "slots"));
    out->heads = (uint32_t)golden_int(row, "nh", 0);
    out->head_dim = (uint32_t)golden_int(row, "hs", 0);
    out->block = (uint32_t)golden_int(row, "bs", 0);
    out->pages = (uint32_t)golden_int(row, "nb", 0);
    out->token_stride = (uint32_t)golden_int(row, "tok_stride", 0);
    out->k_scale = (float)golden_real(row, "k_scale", 1.0);
    out->v_scale = (float)golden_real(row, "v_scale", 1.0);
    out->dtype = strcmp(kv, "auto") == 0       ? (uint32_t)ATTN_F32
                 : strcmp(kv, "fp8_e5m2") == 0 ? (uint32_t)ATTN_E5M2
                                               : (uint32_t)ATTN_E4M3;
    out->element = attn_dtype_size(out->dtype);
    out->page_stride =
        (uint64_t)golden_int(row, "block_stride", (int64_t)out->block * out->heads * out->head_dim);
    if (!out->paged && strcmp(layout, "flash") != 0 && strcmp(layout, "flashinfer") != 0)
        golden_differ(g, "layout %s is not known", layout);
    return !g->bad;
}

static void set_scale(struct attn_scale *scale, float *value)
{
    scale->kind = ATTN_SCALE_HOST;
    scale->granularity = ATTN_SCALES_TENSOR;
    scale->buffer.data = value;
}

static void describe(struct reshape *r, const struct attn_buffer *keys, const struct attn_buffer *values,
                     struct attn_kv_desc *desc)
{
    int64_t element = r->element;

    ATTN_INIT(desc);
    desc->k_dtype = desc->v_dtype = r->dtype;
    desc->layout = r->paged ? ATTN_PAGED_X : ATTN_STRIDED;
    desc->pages = r->pages;
    desc->block = r->block;
    desc->kv_heads = r->heads;
    desc->head_dim = r->head_dim;
    desc->k = *keys;
    desc->v = *values;
    desc->k_page_stride = (int64_t)r->page_stride * element;
    desc->k_head_stride = (int64_t)r->head_dim * (r->paged ? (int64_t)r->block : 1) * element;
    desc->k_token_stride = r->paged ? 0 : (int64_t)r->heads * r->head_dim * element;
    desc->v_page_stride = desc->k_page_stride;
    desc->v_head_stride = desc->k_head_stride;
    desc->v_token_stride = desc->k_token_stride;
    if (r->dtype != ATTN_F32) {
        set_scale(&desc->k_scale, &r->k_scale);
        set_scale(&desc->v_scale, &r->v_scale);
    }
}

/* [index in a contiguous cache, value] of every element that both runs left alike. */
static json_t *written(const struct reshape *r, const struct half *half)
{
    uint64_t page = (uint64_t)r->block * r->heads * r->head_dim;
    json_t *list = json_array();

    for (uint64_t i = 0; i < page * r->pages; i++) {
        uint64_t place = (i / page * r->page_stride + i % page) * r->element;
        if (memcmp(half->memory + place, half->other + place, r->element) != 0)
            continue;
        json_t *value = json_integer(half->memory[place]);
        if (r->dtype == ATTN_F32) {
            float number;
            memcpy(&number, half->memory + place, sizeof number);
            json_decref(value);
            value = json_real((double)number);
        }
        json_array_append_new(list, json_pack("[I, o]", (json_int_t)i, value));
    }
    return list;
}

static float *floats(const json_t *list)
{
    float *values = golden_memory(json_array_size(list), sizeof *values);

    for (size_t i = 0; i < json_array_size(list); i++)
        values[i] = (float)json_number_value(json_array_get(list, i));
    return values;
}

/* `count` numbers are in keys and values each, `bytes` in each half of the cache. */
static int32_t write_once(struct attn_backend *backend, struct reshape *r, float *keys, float *values,
                          void *k_cache, void *v_cache, const uint64_t sizes[2], struct attn_error *err)
{
    struct attn_kv_desc desc;
    struct attn_kv_write_args args;
    size_t count;
    int64_t *slots = golden_ints(json_object_get(r->row, "slots"), &count);

    const struct golden_lent lent[] = {golden_lend(k_cache, sizes[1]), golden_lend(v_cache, sizes[1]),
                                       golden_lend(keys, sizes[0]), golden_lend(values, sizes[0]),
                                       golden_lend(slots, count * sizeof *slots)};
    describe(r, &lent[0].buffer, &lent[1].buffer, &desc);
    ATTN_INIT(&args);
    args.k_dtype = args.v_dtype = ATTN_F32;
    args.num_tokens = r->rows;
    args.k_new.buffer = lent[2].buffer;
    args.v_new.buffer = lent[3].buffer;
    args.k_new.token_stride = args.v_new.token_stride = (int64_t)r->token_stride * (int64_t)sizeof(float);
    args.k_new.head_stride = args.v_new.head_stride = (int64_t)r->head_dim * (int64_t)sizeof(float);
    args.kv_desc = &desc;
    args.slot_mapping = lent[4].buffer;
    int32_t status = attn_kv_write(backend, &args, NULL, err);
    for (size_t i = 0; i < sizeof lent / sizeof *lent; i++)
        golden_return(&lent[i]);
    free(slots);
    return status;
}

static void half_init(struct half *half, size_t bytes)
{
    half->memory = golden_memory(bytes, 1);
    half->other = golden_memory(bytes, 1);
    memset(half->memory, FILL, bytes);
    memset(half->other, OTHER_FILL, bytes);
}

static void half_finish(struct half *half)
{
    free(half->memory);
    free(half->other);
}

static void check_reshape(struct golden *g, struct attn_backend *backend, const json_t *row,
                          const json_t *inputs)
{
    struct reshape r;
    struct half k;
    struct half v;
    struct attn_error err;

    if (inputs == NULL) {
        golden_differ(g, "no row holds its keys and values");
        return;
    }
    if (!read_row(g, row, &r))
        return;
    ATTN_INIT(&err);
    float *keys = floats(json_object_get(inputs, "key"));
    float *values = floats(json_object_get(inputs, "value"));
    size_t bytes = (size_t)(r.page_stride * r.pages * r.element);
    const uint64_t sizes[2] = {json_array_size(json_object_get(inputs, "key")) * sizeof *keys, bytes};
    half_init(&k, bytes);
    half_init(&v, bytes);
    int32_t status = write_once(backend, &r, keys, values, k.memory, v.memory, sizes, &err);
    if (status == ATTN_OK)
        status = write_once(backend, &r, keys, values, k.other, v.other, sizes, &err);
    if (golden_ok(g, "attn_kv_write", status, &err)) {
        json_t *k_written = written(&r, &k);
        json_t *v_written = written(&r, &v);
        golden_same(g, "kwritten", json_object_get(row, "kwritten"), k_written, NULL);
        golden_same(g, "vwritten", json_object_get(row, "vwritten"), v_written, NULL);
        json_decref(k_written);
        json_decref(v_written);
    }
    half_finish(&k);
    half_finish(&v);
    free(keys);
    free(values);
}

/* The row of the same case that holds keys and values. */
static const json_t *inputs_of(const json_t *list, const json_t *row)
{
    int64_t number = golden_int(row, "case", -1);
    size_t i;
    json_t *other;

    json_array_foreach(list, i, other) if (json_object_get(other, "key") != NULL &&
                                           golden_int(other, "case", -2) == number) return other;
    return NULL;
}

void check_cache_ops(struct golden *g, const json_t *data)
{
    struct attn_backend *backend = golden_device();
    const json_t *reshape = json_object_get(data, "reshape");
    size_t i;
    json_t *row;

    if (backend == NULL)
        backend = golden_backend(g, "cpu/flash-attn", "heads=1 head_dim=64 q=f32 block=16");
    if (backend == NULL) {
        golden_broken(g, "the CPU plugin cannot be opened");
        return;
    }
    json_array_foreach(reshape, i, row)
    {
        if (json_object_get(row, "layout") == NULL)
            continue;
        golden_begin(g, "reshape[%zu] %s %s", i, golden_text(row, "layout", ""), golden_text(row, "kv", ""));
        check_reshape(g, backend, row, inputs_of(reshape, row));
        golden_end(g);
    }
    json_array_foreach(json_object_get(data, "copy_blocks"), i, row)
    {
        golden_begin(g, "copy_blocks[%zu]", i);
        check_copy(g, backend, row);
        golden_end(g);
    }
    check_codes(g, backend, json_object_get(data, "fp8"));
    if (backend != golden_device())
        attn_backend_destroy(backend);
}
