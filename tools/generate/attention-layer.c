/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One layer of a step: writes its cache and attends, or launches the graph that does both. */
#include "attention-impl.h"

uint64_t attention_q_count(const struct attention *a, uint32_t rows)
{
    return (uint64_t)rows * a->shape.heads * a->shape.head_dim;
}

uint64_t attention_kv_count(const struct attention *a, uint32_t rows)
{
    return (uint64_t)rows * a->shape.kv_heads * a->shape.head_dim;
}

int attention_run_layer(struct attention *a, struct attn_state *state, const struct attn_metadata *metadata,
                        uint32_t layer, struct failure *err)
{
    const struct attention_shape *s = &a->shape;
    const struct device_tensors *t = &a->tensors;
    struct attn_layer_tensors tensors;
    struct attn_error error;
    ATTN_INIT(&tensors);
    ATTN_INIT(&error);
    tensors.q = device_view(t, t->d_up, 0, s->heads, s->head_dim);
    tensors.k_new = device_view(t, t->d_up, t->k, s->kv_heads, s->head_dim);
    tensors.v_new = device_view(t, t->d_up, t->v, s->kv_heads, s->head_dim);
    tensors.out = device_view(t, t->d_down, 0, s->heads, s->head_dim);
    if (device_tensors_upload(&a->device, t, err) < 0)
        return -1;
    if (attn_layer_forward(a->groups[attention_group_of(a, layer)].layer, state, metadata,
                           a->caches[layer].kv, &tensors, a->device.stream, &error) < 0)
        return device_fail(err, "layer", &error);
    return device_tensors_download(&a->device, t, err);
}

static int launch(struct attention *a, uint32_t layer, struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    if (attn_graph_launch(a->size->layers[layer], a->device.stream, &error) < 0)
        return device_fail(err, "graph", &error);
    return 0;
}

int attention_forward(struct attention *a, uint32_t layer, const float *q, const float *k, const float *v,
                      float *out, struct failure *err)
{
    const uint64_t count = attention_q_count(a, a->rows);
    device_tensors_fill(&a->tensors, q, count, k, v, attention_kv_count(a, a->rows));
    if ((a->size ? launch(a, layer, err) : attention_run_layer(a, a->state, a->metadata, layer, err)) < 0 ||
        device_wait(&a->device, err) < 0)
        return -1;
    device_tensors_take(&a->tensors, out, count);
    return 0;
}
