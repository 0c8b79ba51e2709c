/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Device memory, pinned host memory and copies, and the table of these functions. */
#include <stdio.h>

#include "host.h"

static int32_t alloc(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                     struct attn_error *err)
{
    struct gpu_context *context = backend->context;
    gpu_pointer address = 0;
    char call[64];

    *out = (struct attn_buffer){0};
    int32_t status = gpu_enter(context, err);
    if (status != ATTN_OK)
        return status;
    snprintf(call, sizeof call, "%s of %llu bytes", gpu_names.mem_alloc, (unsigned long long)size);
    status = gpu_check(context, context->driver->mem_alloc(&address, size), "size", call, err);
    if (status == ATTN_OK)
        out->data = (void *)(uintptr_t)address;
    return gpu_leave(context, status);
}

static void free_buffer(struct attn_backend_impl *backend, const struct attn_buffer *buffer)
{
    struct gpu_context *context = backend->context;

    if (buffer == NULL || buffer->data == NULL || !gpu_enter_to_free(context))
        return;
    (void)gpu_check(context, context->driver->mem_free((gpu_pointer)(uintptr_t)buffer->data), "buffer",
                    gpu_names.mem_free, NULL);
    (void)gpu_leave(context, ATTN_OK);
}

static int32_t copy(struct attn_backend_impl *backend, const struct attn_buffer *to,
                    const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                    struct attn_error *err)
{
    struct gpu_context *context = backend->context;
    const struct gpu_driver *driver = context->driver;

    if (size == 0)
        return ATTN_OK;
    int32_t status = gpu_enter(context, err);
    if (status != ATTN_OK)
        return status;
    const uint64_t target = gpu_address(to), source = gpu_address(from);
    if (kind == ATTN_COPY_TO_DEVICE)
        status = gpu_check(context,
                           driver->memcpy_htod_async(target, (const void *)(uintptr_t)source, size, stream),
                           "to", gpu_names.memcpy_htod_async, err);
    else if (kind == ATTN_COPY_TO_HOST)
        status =
            gpu_check(context, driver->memcpy_dtoh_async((void *)(uintptr_t)target, source, size, stream),
                      "from", gpu_names.memcpy_dtoh_async, err);
    else
        status = gpu_check(context, driver->memcpy_dtod_async(target, source, size, stream), "from",
                           gpu_names.memcpy_dtod_async, err);
    return gpu_leave(context, status);
}

static int32_t alloc_pinned(struct attn_backend_impl *backend, uint64_t size, void **out,
                            struct attn_error *err)
{
    struct gpu_context *context = backend->context;
    char call[64];

    *out = NULL;
    int32_t status = gpu_enter(context, err);
    if (status != ATTN_OK)
        return status;
    snprintf(call, sizeof call, "%s of %llu bytes", gpu_names.mem_host_alloc, (unsigned long long)size);
    status =
        gpu_check(context, context->driver->mem_host_alloc(out, size, GPU_HOST_PORTABLE), "size", call, err);
    if (status != ATTN_OK)
        *out = NULL;
    return gpu_leave(context, status);
}

static void free_pinned(struct attn_backend_impl *backend, void *memory)
{
    struct gpu_context *context = backend->context;

    if (memory == NULL || !gpu_enter_to_free(context))
        return;
    (void)gpu_check(context, context->driver->mem_free_host(memory), "memory", gpu_names.mem_free_host, NULL);
    (void)gpu_leave(context, ATTN_OK);
}

const struct attn_memory_table gpu_memory_table = {
    .struct_size = sizeof gpu_memory_table,
    .alloc = alloc,
    .free = free_buffer,
    .copy = copy,
    .alloc_pinned = alloc_pinned,
    .free_pinned = free_pinned,
    .stream_create = gpu_stream_create,
    .stream_synchronize = gpu_stream_synchronize,
    .stream_destroy = gpu_stream_destroy,
    .event_create = gpu_event_create,
    .event_record = gpu_event_record,
    .event_query = gpu_event_query,
    .event_synchronize = gpu_event_synchronize,
    .event_destroy = gpu_event_destroy,
    .graph_begin = gpu_graph_begin,
    .graph_add_host = gpu_graph_add_host,
    .graph_end = gpu_graph_end,
    .graph_launch = gpu_graph_launch,
    .graph_destroy = gpu_graph_destroy,
};
