/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens a backend and its graphs for tools/gpu-bench. */
#include "bridge.h"

#include <stdlib.h>

#include "bridge-inner.h"

static struct attn_error last;

const char *gpu_bench_error(void)
{
    return last.message;
}

struct attn_error *gpu_bench_err(void)
{
    ATTN_INIT(&last);
    return &last;
}

int32_t gpu_bench_refuse(const char *field, const char *text)
{
    struct attn_error *err = gpu_bench_err();

    snprintf(err->field, sizeof err->field, "%s", field);
    snprintf(err->message, sizeof err->message, "%s: %s", field, text);
    err->status = ATTN_E_INVALID;
    return ATTN_E_INVALID;
}

/* Any problem that every backend of a GPU serves: the winner is opened, and plans are asked one by one. */
static const char anything[] = "heads=8 kv_heads=8 head_dim=128 q=bf16";

struct gpu_bench *gpu_bench_open(const char *plugins, const char *backend, const char *device)
{
    struct attn_context_options options;
    struct attn_select_options wanted;
    struct attn_problem problem;
    struct attn_decision *decision = NULL;
    struct attn_error *err = gpu_bench_err();
    struct gpu_bench *bench = calloc(1, sizeof *bench);

    if (bench == NULL) {
        snprintf(err->message, sizeof err->message, "out of memory");
        return NULL;
    }
    ATTN_INIT(&options);
    ATTN_INIT(&wanted);
    options.plugin_path = plugins;
    wanted.backend = backend;
    wanted.device = device;
    wanted.strict = 1;
    int32_t status = attn_context_create(&options, &bench->context, err);
    if (status == ATTN_OK)
        status = attn_problem_parse(anything, &problem, err);
    if (status == ATTN_OK)
        status = attn_select(bench->context, &problem, 1, &wanted, &decision, err);
    if (status == ATTN_OK)
        status = attn_backend_open(bench->context, decision, NULL, &bench->backend, err);
    attn_decision_destroy(decision);
    if (status != ATTN_OK) {
        gpu_bench_close(bench);
        return NULL;
    }
    return bench;
}

void gpu_bench_close(struct gpu_bench *bench)
{
    if (bench == NULL)
        return;
    attn_backend_destroy(bench->backend);
    attn_context_destroy(bench->context);
    free(bench);
}

const char *gpu_bench_text(const struct gpu_bench *bench, const char *name)
{
    if (strcmp(name, "version") == 0)
        return attn_version();
    if (strcmp(name, "backend") == 0)
        return attn_backend_get_name(bench->backend);
    return strcmp(name, "device") == 0 ? attn_backend_get_device(bench->backend) : NULL;
}

void *gpu_bench_stream_create(struct gpu_bench *bench)
{
    void *stream = NULL;

    return attn_stream_create(bench->backend, &stream, gpu_bench_err()) == ATTN_OK ? stream : NULL;
}

void gpu_bench_stream_destroy(struct gpu_bench *bench, void *stream)
{
    attn_stream_destroy(bench->backend, stream);
}

int32_t gpu_bench_synchronize(struct gpu_bench *bench, void *stream)
{
    return attn_stream_synchronize(bench->backend, stream, gpu_bench_err());
}

struct attn_graph *gpu_bench_graph_begin(struct gpu_bench *bench, void *stream)
{
    struct attn_graph *graph = NULL;

    return attn_graph_begin(bench->backend, stream, &graph, gpu_bench_err()) == ATTN_OK ? graph : NULL;
}

int32_t gpu_bench_graph_end(struct attn_graph *graph)
{
    return attn_graph_end(graph, gpu_bench_err());
}

int32_t gpu_bench_graph_launch(struct attn_graph *graph, void *stream)
{
    return attn_graph_launch(graph, stream, gpu_bench_err());
}

void gpu_bench_graph_destroy(struct attn_graph *graph)
{
    attn_graph_destroy(graph);
}
