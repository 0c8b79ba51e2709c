/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One layer of a step: writes its cache and attends, or launches the graph that does both. */
#include "attention-impl.h"

#include <math.h>

/* A contiguous view [token, head, dim] of floats. */
static struct attn_tensor view(struct attn_buffer buffer, uint32_t heads, uint32_t dim)
{
    int64_t head_stride = (int64_t)(dim * sizeof(float));
    return (struct attn_tensor){
        .buffer = buffer, .token_stride = heads * head_stride, .head_stride = head_stride};
}

static int write(struct attention *a, const struct attn_metadata *metadata, uint32_t layer, uint32_t rows,
                 void *stream, struct failure *err)
{
    const struct attention_shape *s = &a->shape;
    struct attn_kv_write_args args;
    struct attn_view slots;
    struct attn_error error;
    ATTN_INIT(&args);
    ATTN_INIT(&slots);
    ATTN_INIT(&error);
    if (attn_metadata_get(metadata, ATTN_FIELD_SLOT_MAPPING, attention_group_of(a, layer), &slots, &error) <
        0)
        return attention_fail(err, "slots", &error);
    args.k_dtype = ATTN_F32;
    args.v_dtype = ATTN_F32;
    args.rows = rows;
    args.k_new = view(a->d_k, s->kv_heads, s->head_dim);
    args.v_new = view(a->d_v, s->kv_heads, s->head_dim);
    args.kv = a->caches[layer].kv;
    args.slot_mapping = slots.device;
    if (attn_kv_write(a->backend, &args, stream, &error) < 0)
        return attention_fail(err, "cache write", &error);
    return 0;
}

int attention_run_layer(struct attention *a, const struct attn_state *state,
                        const struct attn_metadata *metadata, uint32_t layer, uint32_t rows, void *stream,
                        struct failure *err)
{
    const struct attention_shape *s = &a->shape;
    struct attn_state_step step;
    struct attn_tensors tensors;
    struct attn_error error;
    ATTN_INIT(&step);
    ATTN_INIT(&tensors);
    ATTN_INIT(&error);
    if (write(a, metadata, layer, rows, stream, err) < 0)
        return -1;
    tensors.softmax_scale = 1.0f / sqrtf((float)s->head_dim);
    tensors.q = view(a->d_q, s->heads, s->head_dim);
    tensors.out = view(a->d_out, s->heads, s->head_dim);
    tensors.kv = a->caches[layer].kv;
    if (attn_state_get_step(state, attention_group_of(a, layer), &step, &error) < 0 ||
        attn_plan_run(step.plan, step.batch, &tensors, step.schedule, step.scratch, stream, &error) < 0)
        return attention_fail(err, "run", &error);
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
        if (attention_run_layer(a, a->state, a->metadata, layer, a->rows, NULL, err) < 0)
            return -1;
    } else if (attn_graph_launch(a->size->layers[layer], NULL, &error) < 0) {
        return attention_fail(err, "graph", &error);
    }
    return attention_to_host(a, out, &a->d_out, q_bytes, err);
}
