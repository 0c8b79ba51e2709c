/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory out of the host's reach. */
#include <stdatomic.h>
#include <stdlib.h>

#include "attn/plugin-util.h"
#include "device-memory.h"

/* No user address of x86-64 or aarch64 has it. */
#define FAR ((uintptr_t)1 << 55)

enum { LEFT_OUT = 320, HEAD = 64 };

/* What the device has: a check takes all of it, and the machine has other uses for its own. */
#define MOST_BYTES (UINT64_C(1) << 30)

static _Atomic uint64_t taken;

bool device_memory_reach(struct attn_buffer *buffer)
{
    if (buffer->data == NULL)
        return true;
    if (((uintptr_t)buffer->data & FAR) == 0)
        return false;
    buffer->data = (void *)((uintptr_t)buffer->data & ~FAR);
    return true;
}

const struct attn_memory_table *device_memory_near_memory(const struct attn_backend_impl *backend)
{
    return backend->table->memory;
}

static int32_t alloc(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                     struct attn_error *err)
{
    void *memory = NULL;

    (void)backend;
    if (size > MOST_BYTES || atomic_fetch_add(&taken, size) + size > MOST_BYTES) {
        if (size <= MOST_BYTES)
            atomic_fetch_sub(&taken, size);
        return attn_util_fail(err, ATTN_E_MEMORY, "size", "the memory of this device is taken");
    }
    if (posix_memalign(&memory, 64, size + HEAD) != 0) {
        atomic_fetch_sub(&taken, size);
        return attn_util_fail(err, ATTN_E_MEMORY, "size", "out of memory");
    }
    memcpy(memory, &size, sizeof size);
    memory = (char *)memory + HEAD;
    out->data = (void *)((uintptr_t)memory | FAR);
    out->byte_offset = 0;
    return ATTN_OK;
}

static void give_back(struct attn_backend_impl *backend, const struct attn_buffer *buffer)
{
    struct attn_buffer here = *buffer;

    uint64_t size;

    (void)backend;
    if (!device_memory_reach(&here) || here.data == NULL)
        return;
    char *head = (char *)here.data - HEAD;
    memcpy(&size, head, sizeof size);
    atomic_fetch_sub(&taken, size);
    free(head);
}

static int32_t refuse(struct attn_error *err, const char *text)
{
    if (err != NULL) {
        strncpy(err->message, text, sizeof err->message - 1);
        strncpy(err->field, "buffer", sizeof err->field - 1);
    }
    return ATTN_E_INVALID;
}

static int32_t copy(struct attn_backend_impl *backend, const struct attn_buffer *to,
                    const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                    struct attn_error *err)
{
    struct attn_buffer target = *to, source = *from;
    void *keeps = device_memory_stream_keeps(stream);

    if (kind != ATTN_COPY_TO_HOST && !device_memory_reach(&target))
        return refuse(err, "the target of a copy to the device is no address of it");
    if (kind != ATTN_COPY_TO_DEVICE && !device_memory_reach(&source))
        return refuse(err, "the source of a copy from the device is no address of it");
    if (device_memory_fault == FAULT_COPY && kind == ATTN_COPY_TO_DEVICE && size > LEFT_OUT)
        size -= LEFT_OUT;
    if (keeps != NULL) /* both addresses are within the CPU's reach */
        return device_memory_near_memory(backend)->copy(backend->impl, &target, &source, size, kind, keeps,
                                                        err);
    const struct device_memory_copy now = {(unsigned char *)target.data + target.byte_offset,
                                           (const unsigned char *)source.data + source.byte_offset, size};
    device_memory_stream_copy(stream, &now);
    return ATTN_OK;
}

const struct attn_memory_table device_memory_memory = {
    .struct_size = sizeof device_memory_memory,
    .alloc = alloc,
    .free = give_back,
    .copy = copy,
    .stream_create = device_memory_stream_create,
    .stream_synchronize = device_memory_stream_synchronize,
    .stream_destroy = device_memory_stream_destroy,
    .event_create = device_memory_event_create,
    .event_record = device_memory_event_record,
    .event_query = device_memory_event_query,
    .event_synchronize = device_memory_event_synchronize,
    .event_destroy = device_memory_event_destroy,
    .graph_begin = device_memory_graph_begin,
    .graph_add_host = device_memory_graph_add_host,
    .graph_end = device_memory_graph_end,
    .graph_launch = device_memory_graph_launch,
    .graph_destroy = device_memory_graph_destroy,
};
