/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory of a GPU as buffers of ggml's, through libattn's functions: all on the default stream, as the runs.
 */
#include "client.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a buffer of ggml's is. */
struct memory {
    struct attn_backend *backend;
    struct attn_buffer buffer;
};

/* Waits, since ggml may free the host's memory. It asks for no status. */
static void copy(const struct memory *memory, void *to, const void *from, size_t size, uint32_t kind)
{
    const struct attn_buffer target = {to, 0}, source = {(void *)(uintptr_t)from, 0};
    struct attn_error err;
    ATTN_INIT(&err);
    int32_t status = attn_memory_copy(memory->backend, &target, &source, size, kind, NULL, &err);
    if (status == ATTN_OK)
        status = attn_stream_synchronize(memory->backend, NULL, &err);
    if (status != ATTN_OK)
        GGML_ABORT("libattn: %s: %s", attn_status_name(status), err.message);
}

/* Doubles what is filled: libattn sets no memory. */
static void fill(const struct memory *memory, char *to, uint8_t value, size_t size)
{
    char pattern[4096];
    memset(pattern, value, sizeof pattern);
    size_t done = size < sizeof pattern ? size : sizeof pattern;
    copy(memory, to, pattern, done, ATTN_COPY_TO_DEVICE);
    while (done < size) {
        const size_t more = done < size - done ? done : size - done;
        copy(memory, to + done, to, more, ATTN_COPY_ON_DEVICE);
        done += more;
    }
}

/* ---------------------------------------------------------------- buffer */

static void buffer_free(ggml_backend_buffer_t buffer)
{
    struct memory *memory = buffer->context;
    attn_memory_free(memory->backend, &memory->buffer);
    free(memory);
}

static void *buffer_base(ggml_backend_buffer_t buffer)
{
    const struct memory *memory = buffer->context;
    return memory->buffer.data;
}

static void buffer_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value,
                          size_t offset, size_t size)
{
    fill(buffer->context, (char *)tensor->data + offset, value, size);
}

static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data,
                       size_t offset, size_t size)
{
    copy(buffer->context, (char *)tensor->data + offset, data, size, ATTN_COPY_TO_DEVICE);
}

static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data,
                       size_t offset, size_t size)
{
    copy(buffer->context, data, (const char *)tensor->data + offset, size, ATTN_COPY_TO_HOST);
}

static bool buffer_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *from, struct ggml_tensor *to)
{
    const ggml_backend_buffer_t source = from->view_src != NULL ? from->view_src->buffer : from->buffer;
    if (source->buft != buffer->buft)
        return false;
    copy(buffer->context, to->data, from->data, ggml_nbytes(from), ATTN_COPY_ON_DEVICE);
    return true;
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value)
{
    fill(buffer->context, buffer_base(buffer), value, buffer->size);
}

/* ---------------------------------------------------------------- type of buffers */

static const char *type_name(ggml_backend_buffer_type_t type)
{
    return ggml_backend_dev_name(type->device);
}

static size_t type_alignment(ggml_backend_buffer_type_t type)
{
    (void)type;
    return 64; /* as attn_memory_alloc has it */
}

/* Opened with the first buffer, for as long as the process has the device. */
static int32_t open_backend(const struct device *device, struct attn_backend **out, struct attn_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct attn_backend *backends[MAX_DEVICES];
    struct library *library = library_get();
    struct attn_backend **backend = &backends[device - library->devices];
    int32_t status = ATTN_OK;
    pthread_mutex_lock(&lock);
    if (*backend == NULL)
        status = attn_backend_open(library->context, device->decision, NULL, backend, err);
    *out = *backend;
    pthread_mutex_unlock(&lock);
    return status;
}

static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t size)
{
    static const struct ggml_backend_buffer_i functions = {.free_buffer = buffer_free,
                                                           .get_base = buffer_base,
                                                           .memset_tensor = buffer_memset,
                                                           .set_tensor = buffer_set,
                                                           .get_tensor = buffer_get,
                                                           .cpy_tensor = buffer_copy,
                                                           .clear = buffer_clear};
    struct attn_error err;
    ATTN_INIT(&err);
    struct memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return NULL;
    int32_t status = open_backend(type->context, &memory->backend, &err);
    if (status == ATTN_OK)
        status = attn_memory_alloc(memory->backend, size, &memory->buffer, &err);
    if (status == ATTN_OK)
        return ggml_backend_buffer_init(type, functions, memory, size);
    fprintf(stderr, "libattn: %s: %s\n", attn_status_name(status), err.message);
    free(memory);
    return NULL;
}

static ggml_backend_buffer_type_t own_type(struct device *device, ggml_backend_dev_t ggml_device)
{
    static struct ggml_backend_buffer_type types[MAX_DEVICES];
    struct ggml_backend_buffer_type *type = &types[device - library_get()->devices];
    type->iface.get_name = type_name;
    type->iface.alloc_buffer = type_alloc;
    type->iface.get_alignment = type_alignment;
    type->device = ggml_device;
    type->context = device;
    return type;
}

ggml_backend_buffer_type_t memory_type(struct device *device, ggml_backend_dev_t ggml_device)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (device->buffers == NULL)
        device->buffers = beside_buffers(device);
    if (device->buffers == NULL)
        device->buffers = own_type(device, ggml_device);
    pthread_mutex_unlock(&lock);
    return device->buffers;
}
