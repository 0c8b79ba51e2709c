/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory of the device, pinned memory of the host, copies; and the table of it all. */
#include <stdio.h>

#include "cuda.h"

static int32_t alloc(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                     struct attn_error *err)
{
    struct cuda_context *context = backend->context;
    cuda_address address = 0;
    char call[64];

    *out = (struct attn_buffer){0};
    if (size == 0)
        return cuda_fail(err, ATTN_E_INVALID, 0, "size", "size is 0, at least 1 byte is wanted");
    int32_t status = cuda_enter(context, err);
    if (status != ATTN_OK)
        return status;
    snprintf(call, sizeof call, "cuMemAlloc of %llu bytes", (unsigned long long)size);
    status = cuda_check(context, context->driver->cuMemAlloc(&address, size), "size", call, err);
    if (status == ATTN_OK)
        out->data = (void *)(uintptr_t)address;
    return cuda_leave(context, status);
}

static void free_buffer(struct attn_backend_impl *backend, const struct attn_buffer *buffer)
{
    struct cuda_context *context = backend->context;

    if (buffer == NULL || buffer->data == NULL || !cuda_enter_to_free(context))
        return;
    (void)cuda_check(context, context->driver->cuMemFree((cuda_address)(uintptr_t)buffer->data), "buffer",
                     "cuMemFree", NULL);
    (void)cuda_leave(context, ATTN_OK);
}

static int32_t check_copy(const struct attn_buffer *to, const struct attn_buffer *from, uint64_t size,
                          uint32_t kind, struct attn_error *err)
{
    if (kind < ATTN_COPY_TO_DEVICE || kind > ATTN_COPY_ON_DEVICE)
        return cuda_fail(err, ATTN_E_INVALID, 0, "kind", "kind is %u, 1 to 3 are accepted", kind);
    if (size > 0 && (gpu_address(to) == 0 || gpu_address(from) == 0))
        return cuda_fail(err, ATTN_E_INVALID, 0, gpu_address(to) == 0 ? "to" : "from",
                         "an address is needed to copy %llu bytes", (unsigned long long)size);
    return ATTN_OK;
}

static int32_t copy(struct attn_backend_impl *backend, const struct attn_buffer *to,
                    const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                    struct attn_error *err)
{
    struct cuda_context *context = backend->context;
    const struct cuda_driver *driver = context->driver;
    int32_t status = check_copy(to, from, size, kind, err);

    if (status != ATTN_OK || size == 0)
        return status;
    status = cuda_enter(context, err);
    if (status != ATTN_OK)
        return status;
    const uint64_t target = gpu_address(to), source = gpu_address(from);
    if (kind == ATTN_COPY_TO_DEVICE)
        status = cuda_check(context,
                            driver->cuMemcpyHtoDAsync(target, (const void *)(uintptr_t)source, size, stream),
                            "to", "cuMemcpyHtoDAsync", err);
    else if (kind == ATTN_COPY_TO_HOST)
        status =
            cuda_check(context, driver->cuMemcpyDtoHAsync((void *)(uintptr_t)target, source, size, stream),
                       "from", "cuMemcpyDtoHAsync", err);
    else
        status = cuda_check(context, driver->cuMemcpyDtoDAsync(target, source, size, stream), "from",
                            "cuMemcpyDtoDAsync", err);
    return cuda_leave(context, status);
}

static int32_t alloc_pinned(struct attn_backend_impl *backend, uint64_t size, void **out,
                            struct attn_error *err)
{
    struct cuda_context *context = backend->context;
    char call[64];

    *out = NULL;
    if (size == 0)
        return cuda_fail(err, ATTN_E_INVALID, 0, "size", "size is 0, at least 1 byte is wanted");
    int32_t status = cuda_enter(context, err);
    if (status != ATTN_OK)
        return status;
    snprintf(call, sizeof call, "cuMemHostAlloc of %llu bytes", (unsigned long long)size);
    status = cuda_check(context, context->driver->cuMemHostAlloc(out, size, CUDA_HOST_PORTABLE), "size", call,
                        err);
    if (status != ATTN_OK)
        *out = NULL;
    return cuda_leave(context, status);
}

static void free_pinned(struct attn_backend_impl *backend, void *memory)
{
    struct cuda_context *context = backend->context;

    if (memory == NULL || !cuda_enter_to_free(context))
        return;
    (void)cuda_check(context, context->driver->cuMemFreeHost(memory), "memory", "cuMemFreeHost", NULL);
    (void)cuda_leave(context, ATTN_OK);
}

const struct attn_memory_table cuda_memory_table = {
    .struct_size = sizeof cuda_memory_table,
    .alloc = alloc,
    .free = free_buffer,
    .copy = copy,
    .alloc_pinned = alloc_pinned,
    .free_pinned = free_pinned,
    .stream_create = cuda_stream_create,
    .stream_synchronize = cuda_stream_synchronize,
    .stream_destroy = cuda_stream_destroy,
    .event_create = cuda_event_create,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_synchronize = cuda_event_synchronize,
    .event_destroy = cuda_event_destroy,
    .graph_begin = cuda_graph_begin,
    .graph_add_host = cuda_graph_add_host,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
};
