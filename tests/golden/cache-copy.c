/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_ops.json, copy_blocks: pages copied within the caches of several layers. */
#include <stdlib.h>
#include <string.h>

#include "cache-codes.h"
#include "device.h"

/* The caches that were recorded: pages of 6 floats; layer l begins at 1000 l in keys, 500 above in values. */
enum { PAGE = 6, MOST_LAYERS = 16 };

struct copy {
    float *keys[MOST_LAYERS];
    float *values[MOST_LAYERS];
    struct golden_lent lent[2 * MOST_LAYERS];
    struct attn_kv_desc desc[MOST_LAYERS];
    const struct attn_kv_desc *descs[MOST_LAYERS];
    uint32_t layers;
    size_t elements;
};

static float *ramp(size_t count, float first)
{
    float *values = golden_memory(count, sizeof *values);

    for (size_t i = 0; i < count; i++)
        values[i] = first + (float)i;
    return values;
}

static void make_layers(struct copy *copy)
{
    for (uint32_t l = 0; l < copy->layers; l++) {
        struct attn_kv_desc *desc = &copy->desc[l];
        copy->keys[l] = ramp(copy->elements, 1000.0F * (float)l);
        copy->values[l] = ramp(copy->elements, 1000.0F * (float)l + 500.0F);
        ATTN_INIT(desc);
        desc->k_dtype = desc->v_dtype = ATTN_F32;
        desc->layout = ATTN_STRIDED;
        desc->pages = (uint32_t)(copy->elements / PAGE);
        desc->block = 3;
        desc->kv_heads = 1;
        desc->head_dim = 2;
        copy->lent[2 * l] = golden_lend(copy->keys[l], copy->elements * sizeof(float));
        copy->lent[2 * l + 1] = golden_lend(copy->values[l], copy->elements * sizeof(float));
        desc->k = copy->lent[2 * l].buffer;
        desc->v = copy->lent[2 * l + 1].buffer;
        desc->k_page_stride = desc->v_page_stride = PAGE * (int64_t)sizeof(float);
        desc->k_token_stride = desc->v_token_stride = 2 * (int64_t)sizeof(float);
        desc->k_head_stride = desc->v_head_stride = 2 * (int64_t)sizeof(float);
        copy->descs[l] = desc;
    }
}

static json_t *layers_of(float *const *arrays, const struct copy *copy)
{
    json_t *list = json_array();

    for (uint32_t l = 0; l < copy->layers; l++) {
        json_t *layer = json_array();
        for (size_t i = 0; i < copy->elements; i++)
            json_array_append_new(layer, json_real((double)arrays[l][i]));
        json_array_append_new(list, layer);
    }
    return list;
}

void check_copy(struct golden *g, struct attn_backend *backend, const json_t *row)
{
    const json_t *keys = json_object_get(row, "key");
    const json_t *pairs = json_object_get(row, "pairs");
    struct copy copy = {.layers = (uint32_t)json_array_size(keys),
                        .elements = json_array_size(json_array_get(keys, 0))};
    struct attn_kv_copy_blocks_args args;
    struct attn_error err;
    int64_t *flat = golden_memory(2 * json_array_size(pairs), sizeof *flat);

    if (copy.layers > MOST_LAYERS || copy.elements % PAGE != 0) {
        golden_differ(g, "%u layers of %zu elements are not what is recorded", copy.layers, copy.elements);
        free(flat);
        return;
    }
    make_layers(&copy);
    for (size_t i = 0; i < json_array_size(pairs); i++)
        for (size_t j = 0; j < 2; j++)
            flat[2 * i + j] = json_integer_value(json_array_get(json_array_get(pairs, i), j));
    ATTN_INIT(&args);
    ATTN_INIT(&err);
    args.count = (uint32_t)json_array_size(pairs);
    args.layers = copy.layers;
    args.kv_descs = copy.descs;
    const struct golden_lent lent = golden_lend(flat, 2 * (uint64_t)args.count * sizeof *flat);
    args.pairs = lent.buffer;
    const int32_t status = attn_kv_copy_blocks(backend, &args, NULL, &err);
    golden_return(&lent);
    for (uint32_t i = 0; i < 2 * copy.layers; i++)
        golden_return(&copy.lent[i]);
    if (golden_ok(g, "attn_kv_copy_blocks", status, &err)) {
        json_t *actual_keys = layers_of(copy.keys, &copy);
        json_t *actual_values = layers_of(copy.values, &copy);
        golden_same(g, "key", keys, actual_keys, NULL);
        golden_same(g, "value", json_object_get(row, "value"), actual_values, NULL);
        json_decref(actual_keys);
        json_decref(actual_values);
    }
    for (uint32_t l = 0; l < copy.layers; l++) {
        free(copy.keys[l]);
        free(copy.values[l]);
    }
    free(flat);
}
