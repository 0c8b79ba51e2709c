/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Runs a step through a graph. While the calls are captured lengths, offsets and starts are zeros: what a
 * graph does must depend on what they are when it is launched.
 */
#include <stdio.h>
#include <stdlib.h>

#include "attn/device.h"
#include "conform.h"
#include "need.h"

enum { MOST_ARRAYS = 16, LAUNCHES = 2 };

/* Contents of the arrays of a batch, while others are in their place. */
struct hidden {
    struct guarded *arrays[MOST_ARRAYS];
    unsigned char *contents[MOST_ARRAYS];
    uint32_t count;
};

/* Tables stay: there are pages in them that nobody may touch. */
static void hide(struct hidden *hidden, const struct attn_batch *batch, const struct attn_tensors *tensors)
{
    const struct attn_buffer *all[] = {&batch->q_offsets,  &batch->kv_lens,        &batch->kv_offsets,
                                       &batch->csr_indptr, &batch->last_page_lens, &batch->q_positions,
                                       &batch->seq_causal, &batch->kv_global_lens, &tensors->mask_starts};

    hidden->count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct guarded *array = all[i]->data != NULL ? arena_buffer(all[i]->data) : NULL;
        if (array == NULL || array->size == 0)
            continue;
        unsigned char *kept = need(malloc(array->size));
        memcpy(kept, array->data, array->size);
        guarded_unprotect(array);
        memset(array->data, 0, array->size);
        hidden->arrays[hidden->count] = array;
        hidden->contents[hidden->count++] = kept;
    }
}

static void show(struct hidden *hidden)
{
    for (uint32_t i = 0; i < hidden->count; i++) {
        memcpy(hidden->arrays[i]->data, hidden->contents[i], hidden->arrays[i]->size);
        guarded_protect(hidden->arrays[i]);
        free(hidden->contents[i]);
    }
    hidden->count = 0;
}

static int32_t launch(struct step *step, struct attn_backend *backend, struct attn_graph *graph, void *stream,
                      struct attn_error *err)
{
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < LAUNCHES && status == ATTN_OK; i++) {
        pattern_fill(step->out_memory);
        if (step->lse_memory != NULL)
            pattern_fill(step->lse_memory);
        status = attn_graph_launch(graph, stream, err);
        if (status == ATTN_OK)
            status = attn_stream_synchronize(backend, stream, err);
    }
    return status;
}

int32_t replay(struct step *step, struct attn_backend *backend, call_fn prepare, call_fn run, void *arg,
               struct attn_error *err)
{
    struct attn_graph *graph = NULL;
    struct hidden hidden = {.count = 0};
    void *stream = NULL;
    int32_t status = attn_stream_create(backend, &stream, err);

    if (status != ATTN_OK)
        return status;
    hide(&hidden, &step->batch, &step->tensors);
    status = attn_graph_begin(backend, stream, &graph, err);
    if (status == ATTN_OK)
        status = prepare(arg, stream, err);
    if (status == ATTN_OK)
        status = run(arg, stream, err);
    if (status == ATTN_OK)
        status = attn_graph_end(graph, err);
    show(&hidden);
    if (status == ATTN_OK)
        status = launch(step, backend, graph, stream, err);
    attn_graph_destroy(graph);
    attn_stream_destroy(backend, stream);
    return status;
}
