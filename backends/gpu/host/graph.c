/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Graphs: a capture of the stream by the driver. The driver keeps a copy of every argument, so that plans and
 * caches may be destroyed before the graph; code stays loaded as long as its context.
 */
#include <stdlib.h>

#include "host.h"

struct attn_graph_impl {
    struct attn_graph_impl *next; /* next capture of the backend */
    struct attn_backend_impl *backend;
    gpu_handle stream; /* that is captured; NULL after the capture */
    gpu_handle exec;   /* NULL before the end of the capture */
};

static void add_capture(struct attn_graph_impl *graph)
{
    struct attn_backend_impl *backend = graph->backend;

    pthread_mutex_lock(&backend->lock);
    graph->next = backend->captures;
    backend->captures = graph;
    pthread_mutex_unlock(&backend->lock);
}

static void remove_capture(struct attn_graph_impl *graph)
{
    struct attn_backend_impl *backend = graph->backend;

    pthread_mutex_lock(&backend->lock);
    for (struct attn_graph_impl **link = &backend->captures; *link != NULL; link = &(*link)->next) {
        if (*link == graph) {
            *link = graph->next;
            break;
        }
    }
    pthread_mutex_unlock(&backend->lock);
}

static int32_t begin_capture(struct attn_graph_impl *graph, void *stream, struct attn_error *err)
{
    struct gpu_context *context = graph->backend->context;
    bool captured;
    int32_t status = gpu_stream_is_captured(context, stream, &captured, err);

    if (status == ATTN_OK && captured)
        return attn__fail(err, ATTN_E_STATE, 0, "stream", "the stream is captured already");
    if (status != ATTN_OK)
        return status;
    /* Relaxed: this thread may call the driver for other purposes without breaking the capture. */
    status = gpu_check(context, context->driver->stream_begin_capture(stream, GPU_CAPTURE_RELAXED), "stream",
                       gpu_names.stream_begin_capture, err);
    if (status == ATTN_OK)
        graph->stream = stream;
    return status;
}

/* Ends the capture if there is one. *out is NULL if it failed. The context is current. */
static gpu_result end_capture(struct attn_graph_impl *graph, gpu_handle *out)
{
    const struct gpu_driver *driver = graph->backend->context->driver;
    gpu_handle stream = graph->stream;

    *out = NULL;
    if (stream == NULL)
        return GPU_SUCCESS;
    remove_capture(graph);
    graph->stream = NULL;
    return driver->stream_end_capture(stream, out);
}

static void drop_captured(struct gpu_context *context, gpu_handle captured)
{
    if (captured != NULL && !gpu_is_lost(context))
        (void)gpu_check(context, context->driver->graph_destroy(captured), "graph", gpu_names.graph_destroy,
                        NULL);
}

static void drop_capture(struct attn_graph_impl *graph)
{
    gpu_handle captured;

    (void)gpu_check(graph->backend->context, end_capture(graph, &captured), "graph",
                    gpu_names.stream_end_capture, NULL);
    drop_captured(graph->backend->context, captured);
}

int32_t gpu_graph_begin(struct attn_backend_impl *backend, void *stream, struct attn_graph_impl **out,
                        struct attn_error *err)
{
    *out = NULL;
    if (stream == NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "stream", "stream is NULL, which cannot be captured");
    struct attn_graph_impl *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "graph", "no memory for a graph");
    graph->backend = backend;
    int32_t status = gpu_enter(backend->context, err);
    if (status == ATTN_OK) {
        status = begin_capture(graph, stream, err);
        if (status == ATTN_OK)
            add_capture(graph);
        status = gpu_leave(backend->context, status);
    }
    if (status != ATTN_OK) {
        if (graph->stream != NULL)
            drop_capture(graph);
        free(graph);
        return status;
    }
    *out = graph;
    return ATTN_OK;
}

int32_t gpu_graph_add_host(struct attn_graph_impl *graph, attn_host_fn fn, void *arg, struct attn_error *err)
{
    struct gpu_context *context = graph->backend->context;

    if (graph->stream == NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "stream", "the stream was destroyed while it was captured");
    if (context->driver->launch_host_func == NULL)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "graph", GPU_VENDOR_DRIVER " has no %s",
                          gpu_names.launch_host_func);
    int32_t status = gpu_enter(context, err);
    if (status != ATTN_OK)
        return status;
    status = gpu_check(context, context->driver->launch_host_func(graph->stream, fn, arg), "graph",
                       gpu_names.launch_host_func, err);
    return gpu_leave(context, status);
}

int32_t gpu_graph_end(struct attn_graph_impl *graph, struct attn_error *err)
{
    struct gpu_context *context = graph->backend->context;
    gpu_handle captured;

    if (graph->stream == NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "stream", "the stream was destroyed while it was captured");
    int32_t status = gpu_enter(context, err);
    if (status != ATTN_OK)
        return status;
    status = gpu_check(context, end_capture(graph, &captured), "graph", gpu_names.stream_end_capture, err);
    if (status == ATTN_OK && captured == NULL)
        status = attn__fail(err, ATTN_E_STATE, 0, "graph", "a call of the capture could not be kept");
    if (status == ATTN_OK) {
        status = gpu_check(context, context->driver->graph_instantiate_with_flags(&graph->exec, captured, 0),
                           "graph", gpu_names.graph_instantiate_with_flags, err);
        if (status != ATTN_OK)
            graph->exec = NULL;
        drop_captured(context, captured);
    }
    return gpu_leave(context, status);
}

int32_t gpu_graph_launch(struct attn_graph_impl *graph, void *stream, struct attn_error *err)
{
    struct gpu_context *context = graph->backend->context;
    bool captured;
    int32_t status = gpu_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status = gpu_stream_is_captured(context, stream, &captured, err);
    if (status == ATTN_OK && captured)
        status = attn__fail(err, ATTN_E_STATE, 0, "stream", "a graph cannot be launched into a capture");
    if (status == ATTN_OK)
        status = gpu_check(context, context->driver->graph_launch(graph->exec, stream), "graph",
                           gpu_names.graph_launch, err);
    return gpu_leave(context, status);
}

void gpu_graph_destroy(struct attn_graph_impl *graph)
{
    if (graph == NULL)
        return;
    struct gpu_context *context = graph->backend->context;
    if (gpu_enter_to_free(context)) {
        drop_capture(graph);
        if (graph->exec != NULL && !gpu_is_lost(context))
            (void)gpu_check(context, context->driver->graph_exec_destroy(graph->exec), "graph",
                            gpu_names.graph_exec_destroy, NULL);
        (void)gpu_leave(context, ATTN_OK);
    } else if (graph->stream != NULL) {
        remove_capture(graph);
    }
    free(graph);
}

void gpu_graph_forget_stream(struct attn_backend_impl *backend, void *stream)
{
    struct attn_graph_impl *graph;

    pthread_mutex_lock(&backend->lock);
    for (graph = backend->captures; graph != NULL && graph->stream != stream; graph = graph->next)
        continue;
    pthread_mutex_unlock(&backend->lock);
    if (graph != NULL)
        drop_capture(graph);
}
