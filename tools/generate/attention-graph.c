/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Captures the attention of decode steps for a ladder of sizes. The products between layers are the host's,
 * so that there is one graph for each layer and size: the copy of its tensors to the backend, the cache
 * write, the attention and the copy of the output back. A step of fewer sequences is padded to the next size.
 */
#include "attention-impl.h"

#include <inttypes.h>
#include <stdlib.h>

/* 1, 2, 4, 8, 16, 24 …: small batches are padded by no more than they have, larger ones by less than 8. */
static uint32_t next_size(uint32_t size)
{
    return size < 8 ? 2 * size : size + 8;
}

static int make_sizes(struct attention *a, struct failure *err)
{
    uint32_t most = a->options.max_seqs;
    uint32_t count = 1;
    for (uint32_t size = 1; size < most; size = next_size(size))
        count++;
    a->sizes = calloc(count, sizeof *a->sizes);
    if (!a->sizes)
        return failure_set(err, "no memory for graphs of %" PRIu32 " sizes", count);
    for (uint32_t size = 1; a->size_count < count; size = next_size(size)) {
        struct attention_size *s = &a->sizes[a->size_count++];
        s->seqs = size < most ? size : most;
        s->layers = calloc(a->shape.layers, sizeof(struct attn_graph *));
        if (!s->layers)
            return failure_set(err, "no memory for graphs of %" PRIu32 " layers", a->shape.layers);
    }
    return 0;
}

static int refuse(const struct attention *a, const char *why, struct failure *err)
{
    return failure_set(err, "graph is on, and backend %s has no graphs: %.300s; accepted is off",
                       attn_backend_get_name(a->backend), why);
}

static int capture_layer(struct attention *a, struct attention_size *size,
                         const struct attn_metadata *metadata, uint32_t layer, struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    int32_t begun = attn_graph_begin(a->backend, a->device.stream, &size->layers[layer], &error);
    if (begun < 0)
        return begun == ATTN_E_UNSUPPORTED ? refuse(a, error.message, err)
                                           : device_fail(err, "graph", &error);
    int status = attention_run_layer(a, size->state, metadata, layer, err);
    if (attn_graph_end(size->layers[layer], &error) < 0 && status == 0)
        status = device_fail(err, "graph", &error);
    return status;
}

static int capture_size(struct attention *a, struct attention_size *size, struct failure *err)
{
    struct attn_state_capture_args args;
    struct attn_metadata *metadata = NULL;
    struct attn_error error;
    ATTN_INIT(&args);
    ATTN_INIT(&error);
    args.batch = size->seqs;
    device_tensors_place(&a->tensors, attention_q_count(a, size->seqs), attention_kv_count(a, size->seqs));
    if (attn_state_get_capture_metadata(a->state, &args, a->device.stream, &metadata, &error) < 0 ||
        attn_state_clone(a->state, size->seqs, &size->state, &error) < 0 ||
        attn_state_begin_forward(size->state, metadata, a->device.stream, &error) < 0)
        return device_fail(err, "graph", &error);
    for (uint32_t i = 0; i < a->shape.layers; i++)
        if (attention_run_layer(a, size->state, metadata, i, err) < 0 || /* warm-up */
            capture_layer(a, size, metadata, i, err) < 0)
            return -1;
    return 0;
}

/* From large to small, so that what the first one takes is enough for the others. */
static int capture_all(struct attention *a, struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    if (attn_state_begin_capture(a->state, a->options.max_seqs, a->device.stream, &error) < 0)
        return device_fail(err, "graph", &error);
    int status = 0;
    for (uint32_t i = a->size_count; status == 0 && i-- > 0;)
        status = capture_size(a, &a->sizes[i], err);
    if (attn_state_end_capture(a->state, &error) < 0 && status == 0)
        status = device_fail(err, "graph", &error);
    return status;
}

int attention_capture(struct attention *a, struct failure *err)
{
    if (!a->device.stream)
        return refuse(a, "it has no streams that could be captured", err);
    return make_sizes(a, err) < 0 ? -1 : capture_all(a, err);
}

const struct attention_size *attention_find_size(const struct attention *a, uint32_t seqs)
{
    for (uint32_t i = 0; i < a->size_count; i++)
        if (a->sizes[i].seqs >= seqs)
            return &a->sizes[i];
    return NULL;
}

void attention_free_graphs(struct attention *a)
{
    for (uint32_t i = 0; i < a->size_count; i++) {
        for (uint32_t k = 0; a->sizes[i].layers && k < a->shape.layers; k++)
            attn_graph_destroy(a->sizes[i].layers[k]);
        attn_state_destroy(a->sizes[i].state);
        free(a->sizes[i].layers);
    }
    free(a->sizes);
}
