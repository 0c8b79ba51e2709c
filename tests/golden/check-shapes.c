/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* shapes_and_checks.json: cache shapes and views, kernel choices, construction of layers, cache types. */
#include <stdio.h>
#include <string.h>

#include "compat.h"
#include "golden.h"

static const json_t *at(const json_t *row, size_t index)
{
    return json_array_get(row, index);
}

static uint32_t number(const json_t *row, size_t index)
{
    return (uint32_t)json_integer_value(at(row, index));
}

static const char *text(const json_t *row, size_t index)
{
    const char *value = json_string_value(at(row, index));

    return value != NULL ? value : "";
}

static uint32_t dtype_of(const char *name)
{
    if (strcmp(name, "float32") == 0)
        return ATTN_F32;
    return strcmp(name, "bfloat16") == 0 ? ATTN_BF16 : ATTN_F16;
}

static const char *torch_name(uint32_t dtype)
{
    switch (dtype) {
    case ATTN_F16:
        return "torch.float16";
    case ATTN_BF16:
        return "torch.bfloat16";
    case ATTN_F32:
        return "torch.float32";
    case ATTN_E4M3:
        return "torch.float8_e4m3fn";
    case ATTN_E5M2:
        return "torch.float8_e5m2";
    default:
        return "torch.uint8";
    }
}

/* Either the recorded exception, or the recorded value. Takes `actual`. */
static void judge(struct golden *g, const json_t *expected, int32_t status, const struct attn_error *err,
                  json_t *actual)
{
    static const char *const ignored[] = {"use_naive_attn", "use_triton_flash_attn", "need_mask", NULL};
    const json_t *exception = golden_exception(expected);

    if (exception != NULL)
        golden_check_exception(g, exception, status, err);
    else if (golden_ok(g, "the call", status, err))
        golden_same(g, "value", expected, actual, ignored);
    json_decref(actual);
}

static void check_cache_shape(struct golden *g, const json_t *row)
{
    struct compat_desc desc;
    struct compat_values values;
    struct attn_error err;

    ATTN_INIT(&desc);
    ATTN_INIT(&values);
    ATTN_INIT(&err);
    desc.questions = COMPAT_CACHE;
    desc.pages = number(row, 1);
    desc.block = number(row, 2);
    desc.kv_heads = number(row, 3);
    desc.head_dim = number(row, 4);
    int32_t status = compat_get_values(text(row, 0), &desc, &values, &err);
    judge(g, at(row, 5), status, &err, golden_list_u64(values.cache_dims, values.cache_rank));
}

/* Any flavour with flat halves splits them alike. */
static void check_split(struct golden *g, const json_t *row)
{
    struct compat_desc desc;
    struct compat_values values;
    struct attn_error err;

    ATTN_INIT(&desc);
    ATTN_INIT(&values);
    ATTN_INIT(&err);
    desc.questions = COMPAT_VIEWS;
    desc.kv_dtype = strcmp(text(row, 0), "uint8") == 0 ? "fp8" : "auto";
    desc.model_dtype = dtype_of(text(row, 0));
    desc.pages = number(row, 1);
    desc.block = number(row, 2);
    desc.kv_heads = number(row, 3);
    desc.head_dim = number(row, 4);
    int32_t status = compat_get_values("xformers", &desc, &values, &err);
    json_t *actual = json_array();
    json_array_append_new(actual, golden_list_u64(values.key_dims, values.key_rank));
    json_array_append_new(actual, golden_list_u64(values.value_dims, values.value_rank));
    json_array_append_new(actual, golden_list_u64(values.key_strides, values.key_rank));
    json_array_append_new(actual, golden_list_u64(values.value_strides, values.value_rank));
    judge(g, at(row, 5), status, &err, actual);
}

/* The partial results that were recorded had 8 elements a head. */
static void check_paged_version(struct golden *g, const json_t *row)
{
    uint64_t partitions;
    uint32_t version = compat_paged_version(number(row, 0), number(row, 1), number(row, 2), &partitions);
    json_t *actual = json_string(version == 1 ? "v1" : "v2");

    golden_same(g, "version", at(row, 3), actual, NULL);
    json_decref(actual);
    if (at(row, 4) != NULL) {
        const uint64_t shape[] = {number(row, 0), number(row, 1), partitions, 8};
        actual = golden_list_u64(shape, 4);
        golden_same(g, "partial results", at(row, 4), actual, NULL);
        json_decref(actual);
    }
}

static void check_rocm_custom(struct golden *g, const json_t *row)
{
    const char *arch = json_is_true(at(row, 0)) ? "gfx90a" : json_is_true(at(row, 1)) ? "gfx1100" : "gfx906";
    const char *name = text(row, 2);
    json_t *actual = json_boolean(compat_rocm_custom(arch, dtype_of(name), number(row, 3), number(row, 4),
                                                     number(row, 5), number(row, 6)));

    golden_same(g, "custom kernel", at(row, 7), actual, NULL);
    json_decref(actual);
}

/* What was recorded where a row does not say otherwise: 8 heads of 128, 2 kv heads, scale 0.1. */
static void describe(const json_t *row, struct compat_desc *desc)
{
    const json_t *changes = at(row, 1);
    const json_t *kv_heads = json_object_get(changes, "num_kv_heads");

    ATTN_INIT(desc);
    desc->questions = COMPAT_LAYER;
    desc->heads = (uint32_t)golden_int(changes, "num_heads", 8);
    desc->head_dim = (uint32_t)golden_int(changes, "head_size", 128);
    desc->kv_heads = json_is_null(kv_heads) ? 0 : (uint32_t)golden_int(changes, "num_kv_heads", 2);
    desc->kv_dtype = golden_text(changes, "kv_cache_dtype", "auto");
    desc->window = (int32_t)golden_int(changes, "sliding_window", 0);
    desc->softcap = (float)golden_real(changes, "logits_soft_cap", 0);
    if (json_is_integer(json_object_get(changes, "sliding_window")))
        desc->given |= COMPAT_GIVEN_WINDOW;
    if (json_is_number(json_object_get(changes, "logits_soft_cap")))
        desc->given |= COMPAT_GIVEN_SOFTCAP;
    if (json_is_array(json_object_get(changes, "alibi_slopes")))
        desc->given |= COMPAT_GIVEN_ALIBI;
    if (json_is_object(json_object_get(changes, "blocksparse_params")))
        desc->given |= COMPAT_GIVEN_BLOCKSPARSE;
}

/* What the original keeps of its arguments, with those members that libattn computes. */
static json_t *construct(const json_t *row, const struct compat_desc *desc,
                         const struct compat_values *values)
{
    const json_t *changes = at(row, 1);
    json_t *actual = json_object();
    const json_t *slopes = json_object_get(changes, "alibi_slopes");

    json_object_set_new(actual, "num_heads", json_integer(desc->heads));
    json_object_set_new(actual, "head_size", json_integer(desc->head_dim));
    json_object_set_new(actual, "num_kv_heads", json_integer(desc->kv_heads));
    json_object_set_new(actual, "scale", json_real(golden_real(changes, "scale", 0.1)));
    json_object_set_new(actual, "kv_cache_dtype", json_string(desc->kv_dtype));
    json_object_set_new(actual, "num_queries_per_kv", json_integer(values->queries_per_kv));
    if (json_is_array(slopes))
        json_object_set_new(actual, "alibi_slopes",
                            json_pack("{s:s, s:[I], s:O}", "d", "float32", "s",
                                      (json_int_t)json_array_size(slopes), "v", slopes));
    if (values->window_count == 2)
        json_object_set_new(actual, "sliding_window",
                            json_pack("[i, i]", values->window[0], values->window[1]));
    else if (values->window_count == 1)
        json_object_set_new(actual, "sliding_window", json_integer(values->window[0]));
    if (values->softcap_kind == COMPAT_SOFTCAP_SET)
        json_object_set_new(actual, "logits_soft_cap", json_real((double)values->softcap));
    return actual;
}

static void check_constructor(struct golden *g, const json_t *row)
{
    struct compat_desc desc;
    struct compat_values values;
    struct attn_error err;

    describe(row, &desc);
    ATTN_INIT(&values);
    ATTN_INIT(&err);
    int32_t status = compat_get_values(text(row, 0), &desc, &values, &err);
    judge(g, at(row, 2), status, &err, construct(row, &desc, &values));
}

static void check_fp8(struct golden *g, const json_t *row)
{
    struct attn_error err;
    uint32_t dtype = 0;

    ATTN_INIT(&err);
    int32_t status = compat_fp8_dtype(text(row, 0), &dtype, &err);
    judge(g, at(row, 1), status, &err, json_string(torch_name(dtype)));
}

/* Names that are no text are given as the original prints them. The model's type was float16. */
static void check_kv_dtype(struct golden *g, const json_t *row)
{
    const json_t *value = at(row, 0);
    struct attn_error err;
    uint32_t dtype = 0;
    char name[64];

    ATTN_INIT(&err);
    if (json_is_integer(value))
        snprintf(name, sizeof name, "%lld", (long long)json_integer_value(value));
    else
        snprintf(name, sizeof name, "%s", json_is_null(value) ? "None" : json_string_value(value));
    int32_t status = compat_cache_dtype(name, ATTN_F16, &dtype, &err);
    judge(g, at(row, 1), status, &err, json_string(torch_name(dtype)));
}

static void check_head_sizes(struct golden *g, const json_t *sizes)
{
    const char *name;
    json_t *list;

    json_object_foreach((json_t *)sizes, name, list)
    {
        uint32_t count;
        const uint32_t *dims = compat_head_dims(strcmp(name, "PAGED") == 0 ? "xformers" : name, &count);
        json_t *actual = json_array();
        for (uint32_t i = 0; i < count; i++)
            json_array_append_new(actual, json_integer(dims[i]));
        golden_begin_model(g, "head_sizes.%s", name);
        golden_same(g, "head sizes", list, actual, NULL);
        golden_end(g);
        json_decref(actual);
    }
}

static void check_metadata_head_dim(struct golden *g, const char *key, const json_t *expected)
{
    static const char prefix[] = "flashinfer_metadata_head_dim_";
    struct compat_desc desc;
    struct attn_error err;

    ATTN_INIT(&desc);
    ATTN_INIT(&err);
    desc.questions = COMPAT_METADATA;
    if (sscanf(key + strlen(prefix), "%u", &desc.head_dim) != 1)
        golden_differ(g, "no head size in the name");
    judge(g, expected, compat_check("flashinfer", &desc, &err), &err, json_null());
}

void check_shapes(struct golden *g, const json_t *data)
{
    static const struct {
        const char *table;
        void (*check)(struct golden *g, const json_t *row);
    } tables[] = {
        {"kv_cache_shape", check_cache_shape},
        {"split_kv_cache", check_split},
        {"paged_attention_version", check_paged_version},
        {"rocm_custom_paged", check_rocm_custom},
        {"impl_constructor", check_constructor},
        {"flashinfer_fp8", check_fp8},
        {"kv_torch_dtype", check_kv_dtype},
    };
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)data, key, value)
    {
        size_t table = 0;
        while (table < sizeof tables / sizeof *tables && strcmp(tables[table].table, key) != 0)
            table++;
        if (table < sizeof tables / sizeof *tables) {
            for (size_t i = 0; i < json_array_size(value); i++) {
                golden_begin_model(g, "%s[%zu]", key, i);
                tables[table].check(g, at(value, i));
                golden_end(g);
            }
        } else if (strcmp(key, "head_sizes") == 0) {
            check_head_sizes(g, value);
        } else if (strncmp(key, "flashinfer_metadata_head_dim_", 29) == 0) {
            golden_begin_model(g, "%s", key);
            check_metadata_head_dim(g, key, value);
            golden_end(g);
        } else {
            golden_broken(g, "no table %s is known", key);
        }
    }
}
