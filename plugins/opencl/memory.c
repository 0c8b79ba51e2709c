/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Device memory, whose addresses are cl_mem; pinned memory of the host; copies; the table of these functions.
 */
#include "opencl.h"

static cl_mem create(const struct attn_backend_impl *backend, cl_mem_flags flags, uint64_t size,
                     struct attn_error *err, int32_t *out_status)
{
    cl_int result = CL_SUCCESS;
    const uint64_t most = backend->device->info.memory_bytes;
    char call[64];

    /* Some drivers find out when the buffer is first used. */
    if (most > 0 && size > most) {
        *out_status =
            opencl_fail(err, ATTN_E_MEMORY, 0, "size", "size is %llu: more than the %llu bytes of the device",
                        (unsigned long long)size, (unsigned long long)most);
        return NULL;
    }
    /* There are no buffers without bytes. */
    cl_mem buffer = backend->cl->clCreateBuffer(backend->context, flags, size > 0 ? size : 1, NULL, &result);
    snprintf(call, sizeof call, "clCreateBuffer of %llu bytes", (unsigned long long)size);
    *out_status = opencl_check(result, "size", call, err);
    return *out_status == ATTN_OK ? buffer : NULL;
}

static int32_t alloc(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                     struct attn_error *err)
{
    int32_t status;

    out->byte_offset = 0;
    out->data = create(backend, CL_MEM_READ_WRITE, size, err, &status);
    return status;
}

int32_t opencl_copy_of(struct attn_backend_impl *backend, const void *from, size_t size, const char *name,
                       cl_mem *out, struct attn_error *err)
{
    cl_int result = CL_SUCCESS;
    cl_mem buffer = backend->cl->clCreateBuffer(backend->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                                                size, (void *)(uintptr_t)from, &result);

    *out = result == CL_SUCCESS ? buffer : NULL;
    return opencl_check(result, name, "clCreateBuffer", err);
}

static void free_buffer(struct attn_backend_impl *backend, const struct attn_buffer *buffer)
{
    if (buffer != NULL && buffer->data != NULL)
        backend->cl->clReleaseMemObject((cl_mem)buffer->data);
}

int32_t opencl_copy_start(const struct opencl_functions *cl, const struct opencl_copy *copy,
                          cl_command_queue queue, struct attn_error *err)
{
    const struct attn_buffer *to = &copy->to, *from = &copy->from;

    if (copy->kind == ATTN_COPY_TO_DEVICE)
        return opencl_check(cl->clEnqueueWriteBuffer(queue, (cl_mem)to->data, CL_FALSE, to->byte_offset,
                                                     copy->size, attn_util_at(from), 0, NULL, NULL),
                            "to", "clEnqueueWriteBuffer", err);
    if (copy->kind == ATTN_COPY_TO_HOST)
        return opencl_check(cl->clEnqueueReadBuffer(queue, (cl_mem)from->data, CL_FALSE, from->byte_offset,
                                                    copy->size, attn_util_at(to), 0, NULL, NULL),
                            "from", "clEnqueueReadBuffer", err);
    return opencl_check(cl->clEnqueueCopyBuffer(queue, (cl_mem)from->data, (cl_mem)to->data,
                                                from->byte_offset, to->byte_offset, copy->size, 0, NULL,
                                                NULL),
                        "from", "clEnqueueCopyBuffer", err);
}

int32_t opencl_copy_enqueue(struct attn_backend_impl *backend, const struct opencl_copy *copy, void *stream,
                            struct attn_error *err)
{
    cl_command_queue queue = opencl_queue(backend, stream);
    struct attn_graph_impl *graph = opencl_graph_find(backend, stream);

    if (copy->size == 0)
        return ATTN_OK;
    if (graph != NULL)
        return opencl_graph_add_copy(graph, copy, err);
    const int32_t status = opencl_copy_start(backend->cl, copy, queue, err);
    return status == ATTN_OK ? opencl_check(backend->cl->clFlush(queue), "stream", "clFlush", err) : status;
}

static int32_t copy(struct attn_backend_impl *backend, const struct attn_buffer *to,
                    const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                    struct attn_error *err)
{
    return opencl_copy_enqueue(backend, &(struct opencl_copy){*to, *from, size, kind}, stream, err);
}

static int32_t alloc_pinned(struct attn_backend_impl *backend, uint64_t size, void **out,
                            struct attn_error *err)
{
    struct opencl_pinned *pinned = calloc(1, sizeof *pinned);
    cl_int result = CL_SUCCESS;
    int32_t status;

    *out = NULL;
    if (pinned == NULL)
        return opencl_fail(err, ATTN_E_MEMORY, 0, "size", "no memory for the list of pinned memory");
    pinned->buffer = create(backend, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, size, err, &status);
    if (status == ATTN_OK) {
        pinned->memory = backend->cl->clEnqueueMapBuffer(backend->queue, pinned->buffer, CL_TRUE,
                                                         CL_MAP_READ | CL_MAP_WRITE, 0, size > 0 ? size : 1,
                                                         0, NULL, NULL, &result);
        status = opencl_check(result, "size", "clEnqueueMapBuffer", err);
        if (status != ATTN_OK)
            backend->cl->clReleaseMemObject(pinned->buffer);
    }
    if (status != ATTN_OK) {
        free(pinned);
        return status;
    }
    pthread_mutex_lock(&backend->lock);
    pinned->next = backend->pinned;
    backend->pinned = pinned;
    pthread_mutex_unlock(&backend->lock);
    *out = pinned->memory;
    return ATTN_OK;
}

static void free_pinned(struct attn_backend_impl *backend, void *memory)
{
    struct opencl_pinned **at = &backend->pinned, *pinned;

    pthread_mutex_lock(&backend->lock);
    while (*at != NULL && (*at)->memory != memory)
        at = &(*at)->next;
    pinned = *at;
    if (pinned != NULL)
        *at = pinned->next;
    pthread_mutex_unlock(&backend->lock);
    if (pinned == NULL)
        return;
    backend->cl->clEnqueueUnmapMemObject(backend->queue, pinned->buffer, memory, 0, NULL, NULL);
    (void)opencl_stream_synchronize(backend, NULL, NULL);
    backend->cl->clReleaseMemObject(pinned->buffer);
    free(pinned);
}

const struct attn_memory_table opencl_memory_table = {
    .struct_size = sizeof opencl_memory_table,
    .alloc = alloc,
    .free = free_buffer,
    .copy = copy,
    .alloc_pinned = alloc_pinned,
    .free_pinned = free_pinned,
    .stream_create = opencl_stream_create,
    .stream_synchronize = opencl_stream_synchronize,
    .stream_destroy = opencl_stream_destroy,
    .event_create = opencl_event_create,
    .event_record = opencl_event_record,
    .event_query = opencl_event_query,
    .event_synchronize = opencl_event_synchronize,
    .event_destroy = opencl_event_destroy,
    .graph_begin = opencl_graph_begin,
    .graph_add_host = opencl_graph_add_host,
    .graph_end = opencl_graph_end,
    .graph_launch = opencl_graph_launch,
    .graph_destroy = opencl_graph_destroy,
};
