/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Graphs: calls are appended while a stream is captured, and made again in order by a launch. */
#include <stdlib.h>

#include "graph.h"

/* Calls and arguments are allocated in chunks of at least this size. */
#define CHUNK_BYTES 16384u

struct cpu_chunk {
    struct cpu_chunk *next;
    uint64_t size;
    uint64_t used;
    uint64_t reserved;
    unsigned char bytes[];
};

void *cpu_graph_take(struct attn_graph_impl *graph, uint64_t size)
{
    struct cpu_chunk *chunk = graph->chunks;
    uint64_t rounded = size > UINT64_MAX - 15 ? UINT64_MAX : (size + 15) / 16 * 16;

    if (chunk == NULL || chunk->size - chunk->used < rounded) {
        uint64_t bytes = rounded > CHUNK_BYTES ? rounded : CHUNK_BYTES;
        chunk = bytes < SIZE_MAX - sizeof *chunk ? malloc(sizeof *chunk + bytes) : NULL;
        if (chunk == NULL) {
            graph->status = graph->status != ATTN_OK ? graph->status : ATTN_E_MEMORY;
            return NULL;
        }
        *chunk = (struct cpu_chunk){.next = graph->chunks, .size = bytes};
        graph->chunks = chunk;
    }
    void *at = chunk->bytes + chunk->used;
    chunk->used += rounded;
    return at;
}

int32_t cpu_graph_begin(struct attn_backend_impl *backend, void *stream, struct attn_graph_impl **out,
                        struct attn_error *err)
{
    struct attn_cpu_executor *given = stream;
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    *out = NULL;
    if (status != ATTN_OK)
        return status;
    if (given == NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "stream", "stream is NULL, which cannot be captured");
    if (executor.recording != NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "stream", "the stream is captured already");
    if (executor.team != NULL)
        return attn__fail(
            err, ATTN_E_UNSUPPORTED, 0, "stream.kind",
            "a team of threads cannot be captured; parallel_for (1) and pool (3) can, and a team "
            "can launch");
    struct attn_graph_impl *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "graph", "no memory for a graph");
    graph->backend = backend;
    graph->executor = given;
    graph->end = &graph->first;
    given->recording = graph;
    *out = graph;
    return ATTN_OK;
}

int32_t cpu_graph_add_host(struct attn_graph_impl *graph, attn_host_fn fn, void *arg, struct attn_error *err)
{
    const struct cpu_host_args host = {fn, arg};
    const struct cpu_call call = {CPU_CALL_HOST, .args = &host, .args_size = sizeof host};

    return cpu_record(graph, &call, err);
}

static void stop_recording(struct attn_graph_impl *graph)
{
    if (graph->executor != NULL)
        graph->executor->recording = NULL;
    graph->executor = NULL;
}

int32_t cpu_graph_end(struct attn_graph_impl *graph, struct attn_error *err)
{
    if (graph->executor == NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "stream", "the stream was destroyed while it was captured");
    stop_recording(graph);
    if (graph->status != ATTN_OK)
        return attn__fail(err, graph->status, 0, "graph", "a call of the capture could not be kept");
    return ATTN_OK;
}

int32_t cpu_graph_launch(struct attn_graph_impl *graph, void *stream, struct attn_error *err)
{
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, graph->backend, stream, err);

    if (status == ATTN_OK && executor.recording != NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "stream", "a graph cannot be launched into a capture");
    for (const struct cpu_call *call = graph->first; call != NULL && status == ATTN_OK; call = call->next)
        status = cpu_call_again(graph->backend, call, stream, err);
    return status;
}

void cpu_graph_destroy(struct attn_graph_impl *graph)
{
    if (graph == NULL)
        return;
    stop_recording(graph);
    for (const struct cpu_call *call = graph->first; call != NULL; call = call->next)
        if (call->plan != NULL)
            cpu_plan_destroy((struct attn_plan_impl *)(uintptr_t)call->plan);
    for (struct cpu_chunk *chunk = graph->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(graph);
}
