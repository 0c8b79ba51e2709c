/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory out of the host's reach. */
#include <stdatomic.h>
#include <stdlib.h>

#include "attn/plugin-util.h"
#include "remote.h"

/* No user address of x86-64 or aarch64 has it. */
#define FAR ((uintptr_t)1 << 55)

enum { LEFT_OUT = 320, HEAD = 64 };

/* What the device has: a check takes all of it, and the machine has other uses for its own. */
#define MOST_BYTES (UINT64_C(1) << 30)

static _Atomic uint64_t taken;

bool remote_reach(struct attn_buffer *buffer)
{
    if (buffer->data == NULL)
        return true;
    if (((uintptr_t)buffer->data & FAR) == 0)
        return false;
    buffer->data = (void *)((uintptr_t)buffer->data & ~FAR);
    return true;
}

const struct attn_memory_table *remote_near_memory(const struct attn_backend_impl *backend)
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
    if (!remote_reach(&here) || here.data == NULL)
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
    void *keeps = remote_stream_keeps(stream);

    if (kind != ATTN_COPY_TO_HOST && !remote_reach(&target))
        return refuse(err, "the target of a copy to the device is no address of it");
    if (kind != ATTN_COPY_TO_DEVICE && !remote_reach(&source))
        return refuse(err, "the source of a copy from the device is no address of it");
    if (REMOTE_FAULT == REMOTE_FAULT_COPY && kind == ATTN_COPY_TO_DEVICE && size > LEFT_OUT)
        size -= LEFT_OUT;
    if (keeps != NULL) /* both addresses are within the CPU's reach */
        return remote_near_memory(backend)->copy(backend->impl, &target, &source, size, kind, keeps, err);
    const struct remote_copy now = {(unsigned char *)target.data + target.byte_offset,
                                    (const unsigned char *)source.data + source.byte_offset, size};
    remote_stream_copy(stream, &now);
    return ATTN_OK;
}

const struct attn_memory_table remote_memory = {
    .struct_size = sizeof remote_memory,
    .alloc = alloc,
    .free = give_back,
    .copy = copy,
    .stream_create = remote_stream_create,
    .stream_synchronize = remote_stream_synchronize,
    .stream_destroy = remote_stream_destroy,
    .event_create = remote_event_create,
    .event_record = remote_event_record,
    .event_query = remote_event_query,
    .event_synchronize = remote_event_synchronize,
    .event_destroy = remote_event_destroy,
    .graph_begin = remote_graph_begin,
    .graph_add_host = remote_graph_add_host,
    .graph_end = remote_graph_end,
    .graph_launch = remote_graph_launch,
    .graph_destroy = remote_graph_destroy,
};
