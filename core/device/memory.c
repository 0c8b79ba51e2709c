/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory and streams of a backend: calls its memory table. */
#include "attn/device.h"
#include "dispatch/call.h"

static int32_t not_offered(const struct attn_backend *backend, const char *what, struct attn_error *err)
{
    return attn__fail(err, ATTN_E_UNSUPPORTED, 0, what, "%s offers no %s", backend->entry->table.name, what);
}

static int32_t begin_alloc(const struct attn_backend *backend, uint64_t size, const void *out,
                           const char *what, struct attn_error *err)
{
    const int32_t status = attn__call_begin(backend, what, err);
    if (status != ATTN_OK)
        return status;
    if (out == NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, "out",
                          "%s: out is NULL; a place for the buffer is accepted", what);
    }
    if (size == 0 || size > INT64_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, "size", "%s: size is %llu; accepted: 1 to 2^63 - 1 bytes",
                          what, (unsigned long long)size);
    }
    return ATTN_OK;
}

int32_t attn_memory_alloc(struct attn_backend *backend, uint64_t size, struct attn_buffer *out,
                          struct attn_error *err)
{
    const int32_t status = begin_alloc(backend, size, out, "attn_memory_alloc", err);
    if (status != ATTN_OK)
        return status;
    *out = (struct attn_buffer){NULL, 0};
    struct attn_error own;
    attn__error_open(&own);
    return attn__call_end(backend, backend->entry->memory.alloc(backend->impl, size, out, &own), &own,
                          "memory alloc", err);
}

/* A lost device does not prevent freeing; a child after fork has nothing to free. */
static bool may_free(const struct attn_backend *backend)
{
    return backend != NULL && backend->born == attn__fork_generation();
}

void attn_memory_free(struct attn_backend *backend, const struct attn_buffer *buffer)
{
    if (may_free(backend) && buffer != NULL && buffer->data != NULL)
        backend->entry->memory.free(backend->impl, buffer);
}

int32_t attn_memory_copy(struct attn_backend *backend, const struct attn_buffer *to,
                         const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                         struct attn_error *err)
{
    const int32_t status = attn__call_begin(backend, "attn_memory_copy", err);
    if (status != ATTN_OK)
        return status;
    if (kind < ATTN_COPY_TO_DEVICE || kind > ATTN_COPY_ON_DEVICE) {
        return attn__fail(err, ATTN_E_INVALID, 0, "kind",
                          "kind is %u; accepted: ATTN_COPY_TO_DEVICE, TO_HOST or ON_DEVICE", kind);
    }
    if (size > INT64_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, "size", "size is %llu; accepted: up to 2^63 - 1 bytes",
                          (unsigned long long)size);
    }
    if (size == 0)
        return ATTN_OK;
    if (to == NULL || to->data == NULL || from == NULL || from->data == NULL) {
        const char *name = to == NULL || to->data == NULL ? "to" : "from";
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s is NULL, but %llu bytes are to be copied; an address is needed", name,
                          (unsigned long long)size);
    }
    struct attn_error own;
    attn__error_open(&own);
    return attn__call_end(backend,
                          backend->entry->memory.copy(backend->impl, to, from, size, kind, stream, &own),
                          &own, "memory copy", err);
}

int32_t attn_memory_alloc_pinned(struct attn_backend *backend, uint64_t size, void **out,
                                 struct attn_error *err)
{
    const int32_t status = begin_alloc(backend, size, out, "attn_memory_alloc_pinned", err);
    if (status != ATTN_OK)
        return status;
    *out = NULL;
    const struct attn_memory_table *memory = &backend->entry->memory;
    if (memory->alloc_pinned == NULL || memory->free_pinned == NULL)
        return not_offered(backend, "pinned memory", err);
    struct attn_error own;
    attn__error_open(&own);
    return attn__call_end(backend, memory->alloc_pinned(backend->impl, size, out, &own), &own, "pinned alloc",
                          err);
}

void attn_memory_free_pinned(struct attn_backend *backend, void *memory)
{
    if (may_free(backend) && memory != NULL && backend->entry->memory.free_pinned != NULL)
        backend->entry->memory.free_pinned(backend->impl, memory);
}

int32_t attn_stream_create(struct attn_backend *backend, void **out, struct attn_error *err)
{
    const int32_t status = attn__call_begin(backend, "attn_stream_create", err);
    if (status != ATTN_OK)
        return status;
    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL; a place for the stream is accepted");
    *out = NULL;
    const struct attn_memory_table *memory = &backend->entry->memory;
    if (memory->stream_create == NULL || memory->stream_destroy == NULL)
        return not_offered(backend, "streams", err);
    struct attn_error own;
    attn__error_open(&own);
    return attn__call_end(backend, memory->stream_create(backend->impl, out, &own), &own, "stream create",
                          err);
}

void attn_stream_destroy(struct attn_backend *backend, void *stream)
{
    if (may_free(backend) && stream != NULL && backend->entry->memory.stream_destroy != NULL)
        backend->entry->memory.stream_destroy(backend->impl, stream);
}

int32_t attn_stream_synchronize(struct attn_backend *backend, void *stream, struct attn_error *err)
{
    const int32_t status = attn__call_begin(backend, "attn_stream_synchronize", err);
    if (status != ATTN_OK || backend->entry->memory.stream_synchronize == NULL)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    return attn__call_end(backend, backend->entry->memory.stream_synchronize(backend->impl, stream, &own),
                          &own, "stream synchronize", err);
}
