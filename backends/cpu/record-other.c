/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Merge, rescale and copies of memory in a graph. */
#include "graph.h"

static int32_t merge_again(struct attn_backend_impl *backend, const void *args, void *stream,
                           struct attn_error *err)
{
    return cpu_merge(backend, args, stream, err);
}

int32_t cpu_record_merge(struct attn_graph_impl *graph, const struct attn_merge_args *args,
                         struct attn_error *err)
{
    struct attn_merge_args *call = cpu_graph_take(graph, sizeof *call);
    struct attn_merge_part *parts = call != NULL ? cpu_graph_take(graph, args->count * sizeof *parts) : NULL;

    if (parts != NULL) {
        memcpy(parts, args->parts, args->count * sizeof *parts);
        *call = *args;
        call->parts = parts;
    }
    return cpu_graph_add(graph, merge_again, parts != NULL ? call : NULL, NULL, err);
}

static int32_t rescale_again(struct attn_backend_impl *backend, const void *args, void *stream,
                             struct attn_error *err)
{
    return cpu_rescale(backend, args, stream, err);
}

int32_t cpu_record_rescale(struct attn_graph_impl *graph, const struct attn_rescale_args *args,
                           struct attn_error *err)
{
    struct attn_rescale_args *call = cpu_graph_take(graph, sizeof *call);
    struct attn_tensor *all = call != NULL ? cpu_graph_take(graph, args->count * sizeof *all) : NULL;

    if (all != NULL) {
        memcpy(all, args->all, args->count * sizeof *all);
        *call = *args;
        call->all = all;
    }
    return cpu_graph_add(graph, rescale_again, all != NULL ? call : NULL, NULL, err);
}

struct copy_call {
    struct attn_buffer to;
    struct attn_buffer from;
    uint64_t size;
    uint32_t kind;
};

static int32_t copy_again(struct attn_backend_impl *backend, const void *args, void *stream,
                          struct attn_error *err)
{
    const struct copy_call *call = args;

    return cpu_memory_table.copy(backend, &call->to, &call->from, call->size, call->kind, stream, err);
}

int32_t cpu_record_copy(struct attn_graph_impl *graph, const struct attn_buffer *to,
                        const struct attn_buffer *from, uint64_t size, uint32_t kind, struct attn_error *err)
{
    struct copy_call *call = cpu_graph_take(graph, sizeof *call);

    if (call != NULL)
        *call = (struct copy_call){*to, *from, size, kind};
    return cpu_graph_add(graph, copy_again, call, NULL, err);
}
