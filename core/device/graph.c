/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Graphs of a backend: checks the order of calls, and calls its memory table. */
#include <stdlib.h>

#include "attn/device.h"
#include "dispatch/call.h"
#include "dispatch/trace.h"

struct attn_graph {
    struct attn_backend *backend; /* held */
    struct attn_graph_impl *impl;
    enum { CAPTURING = 1, READY, FAILED } state;
};

/* A plugin offers all five functions or none. */
static bool has_graphs(const struct attn_memory_table *memory)
{
    return memory->graph_begin != NULL && memory->graph_add_host != NULL && memory->graph_end != NULL &&
           memory->graph_launch != NULL && memory->graph_destroy != NULL;
}

static const char *state_text(const struct attn_graph *graph)
{
    return graph->state == CAPTURING ? "is still captured: end it first"
           : graph->state == READY   ? "is ended: its contents are fixed"
                                     : "is of no use: its capture failed";
}

static int32_t check_begin(const struct attn_backend *backend, const void *stream, const void *out,
                           struct attn_error *err)
{
    const int32_t status = attn__call_begin(backend, "attn_graph_begin", err);
    if (status != ATTN_OK)
        return status;
    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "attn_graph_begin: out is NULL");
    if (!has_graphs(&backend->entry->memory)) {
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "graphs", "%s offers no graphs",
                          backend->entry->table.name);
    }
    return stream != NULL
               ? ATTN_OK
               : attn__fail(err, ATTN_E_STATE, 0, "stream",
                            "stream is NULL, which cannot be captured; make one with attn_stream_create");
}

int32_t attn_graph_begin(struct attn_backend *backend, void *stream, struct attn_graph **out,
                         struct attn_error *err)
{
    if (out != NULL)
        *out = NULL;
    int32_t status = check_begin(backend, stream, out, err);
    if (status != ATTN_OK)
        return status;
    struct attn_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "graph", "no memory for a graph");
    struct attn_error own;
    attn__error_open(&own);
    status =
        attn__call_end(backend, backend->entry->memory.graph_begin(backend->impl, stream, &graph->impl, &own),
                       &own, "graph begin", err);
    if (status == ATTN_OK && graph->impl == NULL) {
        status = attn__fail(err, ATTN_E_PLUGIN, 0, "out", "%s: graph begin succeeded without a graph",
                            backend->entry->table.name);
    }
    if (status != ATTN_OK) {
        free(graph);
        return status;
    }
    graph->backend = backend;
    graph->state = CAPTURING;
    attn__backend_hold(backend);
    *out = graph;
    return ATTN_OK;
}

static int32_t begin(const struct attn_graph *graph, int state, const char *what, struct attn_error *err)
{
    if (graph == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "graph", "%s: the handle is NULL", what);
    const int32_t status = attn__call_begin(graph->backend, what, err);
    if (status != ATTN_OK || (int)graph->state == state)
        return status;
    return attn__fail(err, ATTN_E_STATE, 0, "graph", "%s: the graph %s", what, state_text(graph));
}

int32_t attn_graph_add_host(struct attn_graph *graph, attn_host_fn fn, void *arg, struct attn_error *err)
{
    const int32_t status = begin(graph, CAPTURING, "attn_graph_add_host", err);
    if (status != ATTN_OK)
        return status;
    if (fn == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "fn", "attn_graph_add_host: fn is NULL");
    struct attn_error own;
    attn__error_open(&own);
    return attn__call_end(graph->backend,
                          graph->backend->entry->memory.graph_add_host(graph->impl, fn, arg, &own), &own,
                          "graph add_host", err);
}

int32_t attn_graph_end(struct attn_graph *graph, struct attn_error *err)
{
    int32_t status = begin(graph, CAPTURING, "attn_graph_end", err);
    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    status = attn__call_end(graph->backend, graph->backend->entry->memory.graph_end(graph->impl, &own), &own,
                            "graph end", err);
    graph->state = status == ATTN_OK ? READY : FAILED;
    return status;
}

int32_t attn_graph_launch(struct attn_graph *graph, void *stream, struct attn_error *err)
{
    int32_t status = begin(graph, READY, "attn_graph_launch", err);
    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    const uint64_t began = attn__trace_begin(graph->backend);
    status = graph->backend->entry->memory.graph_launch(graph->impl, stream, &own);
    attn__trace(graph->backend, began, status, "graph_launch", NULL, "%s", "");
    return attn__call_end(graph->backend, status, &own, "graph launch", err);
}

void attn_graph_destroy(struct attn_graph *graph)
{
    if (graph == NULL)
        return;
    if (graph->backend->born == attn__fork_generation())
        graph->backend->entry->memory.graph_destroy(graph->impl);
    attn__backend_drop(graph->backend);
    free(graph);
}
