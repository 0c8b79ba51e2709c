/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Graphs: a stream of the CPU plugin keeps the calls, whose addresses are within reach already. */
#include <stdlib.h>

#include "device-memory.h"

struct attn_graph_impl {
    struct attn_backend_impl *backend;
    void *stream;     /* that is captured; NULL after the end */
    void *cpu_stream; /* that keeps the calls */
    struct attn_graph_impl *impl;
};

int32_t device_memory_graph_begin(struct attn_backend_impl *backend, void *stream,
                                  struct attn_graph_impl **out, struct attn_error *err)
{
    struct attn_graph_impl *graph = calloc(1, sizeof *graph);

    if (graph == NULL)
        return ATTN_E_MEMORY;
    graph->backend = backend;
    (void)device_memory_catch_up(stream);
    int32_t status =
        device_memory_near_memory(graph->backend)->stream_create(backend->impl, &graph->cpu_stream, err);
    if (status == ATTN_OK)
        status = device_memory_near_memory(graph->backend)
                     ->graph_begin(backend->impl, graph->cpu_stream, &graph->impl, err);
    if (status != ATTN_OK) {
        if (graph->cpu_stream != NULL)
            device_memory_near_memory(graph->backend)->stream_destroy(backend->impl, graph->cpu_stream);
        free(graph);
        return status;
    }
    graph->stream = stream;
    device_memory_stream_keep(stream, graph->cpu_stream);
    *out = graph;
    return ATTN_OK;
}

int32_t device_memory_graph_add_host(struct attn_graph_impl *graph, attn_host_fn fn, void *arg,
                                     struct attn_error *err)
{
    return device_memory_near_memory(graph->backend)->graph_add_host(graph->impl, fn, arg, err);
}

static void stop_keeping(struct attn_graph_impl *graph)
{
    if (graph->stream != NULL)
        device_memory_stream_keep(graph->stream, NULL);
    graph->stream = NULL;
}

int32_t device_memory_graph_end(struct attn_graph_impl *graph, struct attn_error *err)
{
    stop_keeping(graph);
    return device_memory_near_memory(graph->backend)->graph_end(graph->impl, err);
}

int32_t device_memory_graph_launch(struct attn_graph_impl *graph, void *stream, struct attn_error *err)
{
    (void)device_memory_catch_up(stream);
    return device_memory_near_memory(graph->backend)->graph_launch(graph->impl, NULL, err);
}

void device_memory_graph_destroy(struct attn_graph_impl *graph)
{
    stop_keeping(graph);
    device_memory_near_memory(graph->backend)->graph_destroy(graph->impl);
    device_memory_near_memory(graph->backend)->stream_destroy(graph->backend->impl, graph->cpu_stream);
    free(graph);
}
