/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One layer of a step: writes its cache and attends, or launches the graph that does both. */
#include "attention-impl.h"

/* A contiguous view [token, head, dim] of floats. */
static struct attn_tensor view(struct attn_buffer buffer, uint32_t heads, uint32_t dim)
{
    int64_t head_stride = (int64_t)(dim * sizeof(float));
    return (struct attn_tensor){
        .buffer = buffer, .token_stride = heads * head_stride, .head_stride = head_stride};
}

int attention_run_layer(struct attention *a, struct attn_state *state, const struct attn_metadata *metadata,
                        uint32_t layer, void *stream, struct failure *err)
{
    const struct attention_shape *s = &a->shape;
    struct attn_layer_tensors tensors;
    struct attn_error error;
    ATTN_INIT(&tensors);
    ATTN_INIT(&error);
    tensors.q = view(a->d_q, s->heads, s->head_dim);
    tensors.k_new = view(a->d_k, s->kv_heads, s->head_dim);
    tensors.v_new = view(a->d_v, s->kv_heads, s->head_dim);
    tensors.out = view(a->d_out, s->heads, s->head_dim);
    if (attn_layer_forward(a->groups[attention_group_of(a, layer)].layer, state, metadata,
                           a->caches[layer].kv, &tensors, stream, &error) < 0)
        return attention_fail(err, "layer", &error);
    return 0;
}

int attention_forward(struct attention *a, uint32_t layer, const float *q, const float *k, const float *v,
                      float *out, struct failure *err)
{
    const struct attention_shape *s = &a->shape;
    uint64_t q_bytes = (uint64_t)a->rows * s->heads * s->head_dim * sizeof(float);
    uint64_t kv_bytes = (uint64_t)a->rows * s->kv_heads * s->head_dim * sizeof(float);
    struct attn_error error;
    ATTN_INIT(&error);
    if (attention_to_device(a, &a->d_q, q, q_bytes, err) < 0 ||
        attention_to_device(a, &a->d_k, k, kv_bytes, err) < 0 ||
        attention_to_device(a, &a->d_v, v, kv_bytes, err) < 0)
        return -1;
    if (!a->size) {
        if (attention_run_layer(a, a->state, a->metadata, layer, NULL, err) < 0)
            return -1;
    } else if (attn_graph_launch(a->size->layers[layer], NULL, &error) < 0) {
        return attention_fail(err, "graph", &error);
    }
    return attention_to_host(a, out, &a->d_out, q_bytes, err);
}
