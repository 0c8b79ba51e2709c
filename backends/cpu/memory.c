/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory of the backend, in large pages if it is large enough, and the table of these functions. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "graph.h"

/* Memory from this size on is aligned to and advised for large pages, because caches are read in random
 * order. */
#define LARGE_PAGE ((uint64_t)1 << 21)

static int32_t alloc_block(uint64_t size, void **out, struct attn_error *err)
{
    size_t alignment = size >= 2 * LARGE_PAGE ? (size_t)LARGE_PAGE : CPU_ALIGNMENT;

    *out = NULL;
    if (posix_memalign(out, alignment, size) != 0) {
        *out = NULL;
        return attn__fail(err, ATTN_E_MEMORY, 0, "size", "no memory for %llu bytes",
                          (unsigned long long)size);
    }
    if (alignment == LARGE_PAGE)
        (void)madvise(*out, size & ~(LARGE_PAGE - 1), MADV_HUGEPAGE);
    return ATTN_OK;
}

static int32_t alloc(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                     struct attn_error *err)
{
    (void)backend;
    out->byte_offset = 0;
    return alloc_block(size, &out->data, err);
}

static void free_buffer(struct attn_backend_impl *backend, const struct attn_buffer *buffer)
{
    (void)backend;
    if (buffer != NULL)
        free(buffer->data);
}

static int32_t copy(struct attn_backend_impl *backend, const struct attn_buffer *to,
                    const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                    struct attn_error *err)
{
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status != ATTN_OK)
        return status;
    const struct cpu_copy_args args = {*to, *from, size, kind};
    const struct cpu_call call = {CPU_CALL_COPY, .args = &args, .args_size = sizeof args};
    if (executor.recording != NULL)
        return cpu_record(executor.recording, &call, err);
    if (size > 0 && cpu_is_first(&executor))
        memcpy(attn__address(to), attn__address(from), size);
    cpu_join(&executor);
    return ATTN_OK;
}

static int32_t alloc_pinned(struct attn_backend_impl *backend, uint64_t size, void **out,
                            struct attn_error *err)
{
    (void)backend;
    return alloc_block(size, out, err);
}

static void free_pinned(struct attn_backend_impl *backend, void *memory)
{
    (void)backend;
    free(memory);
}

const struct attn_memory_table cpu_memory_table = {
    .struct_size = sizeof cpu_memory_table,
    .alloc = alloc,
    .free = free_buffer,
    .copy = copy,
    .alloc_pinned = alloc_pinned,
    .free_pinned = free_pinned,
    .stream_create = cpu_stream_create,
    .stream_synchronize = cpu_stream_synchronize,
    .stream_destroy = cpu_stream_destroy,
    .event_create = cpu_event_create,
    .event_record = cpu_event_record,
    .event_query = cpu_event_done,
    .event_synchronize = cpu_event_done,
    .event_destroy = cpu_event_destroy,
    .graph_begin = cpu_graph_begin,
    .graph_add_host = cpu_graph_add_host,
    .graph_end = cpu_graph_end,
    .graph_launch = cpu_graph_launch,
    .graph_destroy = cpu_graph_destroy,
};
