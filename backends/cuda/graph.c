/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Graphs: a capture of the stream by the driver. What was captured is the driver's copy, so that plans and
 * caches may go before the graph; code stays loaded as long as its context.
 */
#include <stdlib.h>

#include "cuda.h"

struct attn_graph_impl {
    struct attn_graph_impl *next; /* captures of the backend */
    struct attn_backend_impl *backend;
    cuda_handle stream; /* that is captured; NULL after the end */
    cuda_handle exec;   /* NULL before the end */
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
    struct cuda_context *context = graph->backend->context;
    bool captured;
    int32_t status = cuda_stream_is_captured(context, stream, &captured, err);

    if (status == ATTN_OK && captured)
        return cuda_fail(err, ATTN_E_STATE, 0, "stream", "the stream is captured already");
    if (status != ATTN_OK)
        return status;
    /* Relaxed: what this thread does beside the stream is no part of the graph and no offence. */
    status = cuda_check(context, context->driver->cuStreamBeginCapture(stream, CUDA_CAPTURE_RELAXED),
                        "stream", "cuStreamBeginCapture", err);
    if (status == ATTN_OK)
        graph->stream = stream;
    return status;
}

/* Ends the capture if there is one. *out is NULL if nothing came of it. The context is current. */
static cuda_result end_capture(struct attn_graph_impl *graph, cuda_handle *out)
{
    const struct cuda_driver *driver = graph->backend->context->driver;
    cuda_handle stream = graph->stream;

    *out = NULL;
    if (stream == NULL)
        return CUDA_SUCCESS;
    remove_capture(graph);
    graph->stream = NULL;
    return driver->cuStreamEndCapture(stream, out);
}

static void drop_captured(struct cuda_context *context, cuda_handle captured)
{
    if (captured != NULL && !cuda_is_lost(context))
        (void)cuda_check(context, context->driver->cuGraphDestroy(captured), "graph", "cuGraphDestroy", NULL);
}

static void drop_capture(struct attn_graph_impl *graph)
{
    cuda_handle captured;

    (void)cuda_check(graph->backend->context, end_capture(graph, &captured), "graph", "cuStreamEndCapture",
                     NULL);
    drop_captured(graph->backend->context, captured);
}

int32_t cuda_graph_begin(struct attn_backend_impl *backend, void *stream, struct attn_graph_impl **out,
                         struct attn_error *err)
{
    *out = NULL;
    if (stream == NULL)
        return cuda_fail(err, ATTN_E_STATE, 0, "stream", "stream is NULL, which cannot be captured");
    struct attn_graph_impl *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return cuda_fail(err, ATTN_E_MEMORY, 0, "graph", "no memory for a graph");
    graph->backend = backend;
    int32_t status = cuda_enter(backend->context, err);
    if (status == ATTN_OK) {
        status = begin_capture(graph, stream, err);
        if (status == ATTN_OK)
            add_capture(graph);
        status = cuda_leave(backend->context, status);
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

int32_t cuda_graph_add_host(struct attn_graph_impl *graph, attn_host_fn fn, void *arg, struct attn_error *err)
{
    struct cuda_context *context = graph->backend->context;

    if (graph->stream == NULL)
        return cuda_fail(err, ATTN_E_STATE, 0, "stream", "the stream was destroyed while it was captured");
    int32_t status = cuda_enter(context, err);
    if (status != ATTN_OK)
        return status;
    status = cuda_check(context, context->driver->cuLaunchHostFunc(graph->stream, fn, arg), "graph",
                        "cuLaunchHostFunc", err);
    return cuda_leave(context, status);
}

int32_t cuda_graph_end(struct attn_graph_impl *graph, struct attn_error *err)
{
    struct cuda_context *context = graph->backend->context;
    cuda_handle captured;

    if (graph->stream == NULL)
        return cuda_fail(err, ATTN_E_STATE, 0, "stream", "the stream was destroyed while it was captured");
    int32_t status = cuda_enter(context, err);
    if (status != ATTN_OK)
        return status;
    status = cuda_check(context, end_capture(graph, &captured), "graph", "cuStreamEndCapture", err);
    if (status == ATTN_OK && captured == NULL)
        status = cuda_fail(err, ATTN_E_STATE, 0, "graph", "a call of the capture could not be kept");
    if (status == ATTN_OK) {
        status = cuda_check(context, context->driver->cuGraphInstantiateWithFlags(&graph->exec, captured, 0),
                            "graph", "cuGraphInstantiateWithFlags", err);
        if (status != ATTN_OK)
            graph->exec = NULL;
        drop_captured(context, captured);
    }
    return cuda_leave(context, status);
}

int32_t cuda_graph_launch(struct attn_graph_impl *graph, void *stream, struct attn_error *err)
{
    struct cuda_context *context = graph->backend->context;
    bool captured;
    int32_t status = cuda_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status = cuda_stream_is_captured(context, stream, &captured, err);
    if (status == ATTN_OK && captured)
        status = cuda_fail(err, ATTN_E_STATE, 0, "stream", "a graph cannot be launched into a capture");
    if (status == ATTN_OK)
        status = cuda_check(context, context->driver->cuGraphLaunch(graph->exec, stream), "graph",
                            "cuGraphLaunch", err);
    return cuda_leave(context, status);
}

void cuda_graph_destroy(struct attn_graph_impl *graph)
{
    if (graph == NULL)
        return;
    struct cuda_context *context = graph->backend->context;
    if (cuda_enter_to_free(context)) {
        drop_capture(graph);
        if (graph->exec != NULL && !cuda_is_lost(context))
            (void)cuda_check(context, context->driver->cuGraphExecDestroy(graph->exec), "graph",
                             "cuGraphExecDestroy", NULL);
        (void)cuda_leave(context, ATTN_OK);
    } else if (graph->stream != NULL) {
        remove_capture(graph);
    }
    free(graph);
}

void cuda_graph_forget_stream(struct attn_backend_impl *backend, void *stream)
{
    struct attn_graph_impl *graph;

    pthread_mutex_lock(&backend->lock);
    for (graph = backend->captures; graph != NULL && graph->stream != stream; graph = graph->next)
        continue;
    pthread_mutex_unlock(&backend->lock);
    if (graph != NULL)
        drop_capture(graph);
}
