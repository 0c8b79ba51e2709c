/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory out of the host's reach, and streams on which copies wait until somebody synchronises or computes.
 */
#include <stdlib.h>

#include "attn/plugin-util.h"
#include "remote.h"

/* No user address of x86-64 or aarch64 has it. */
#define FAR ((uintptr_t)1 << 55)

enum { MOST_WAITING = 256, LEFT_OUT = 320 };

struct copy {
    void *to;
    const void *from;
    uint64_t size;
};

struct stream {
    uint32_t waiting;
    struct copy copies[MOST_WAITING];
    void *keeps; /* the CPU's stream while a graph is captured */
};

bool remote_reach(struct attn_buffer *buffer)
{
    if (buffer->data == NULL)
        return true;
    if (((uintptr_t)buffer->data & FAR) == 0)
        return false;
    buffer->data = (void *)((uintptr_t)buffer->data & ~FAR);
    return true;
}

void *remote_catch_up(void *stream)
{
    struct stream *mine = stream;

    if (mine == NULL || mine->keeps != NULL)
        return mine != NULL ? mine->keeps : NULL;
    for (uint32_t i = 0; i < mine->waiting; i++)
        memcpy(mine->copies[i].to, mine->copies[i].from, mine->copies[i].size);
    mine->waiting = 0;
    return NULL;
}

void remote_stream_keep(void *stream, void *cpu_stream)
{
    ((struct stream *)stream)->keeps = cpu_stream;
}

static int32_t alloc(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                     struct attn_error *err)
{
    void *memory = NULL;

    (void)backend;
    if (posix_memalign(&memory, 64, size) != 0)
        return attn_util_fail(err, ATTN_E_MEMORY, "size", "out of memory");
    out->data = (void *)((uintptr_t)memory | FAR);
    out->byte_offset = 0;
    return ATTN_OK;
}

static void give_back(struct attn_backend_impl *backend, const struct attn_buffer *buffer)
{
    struct attn_buffer here = *buffer;

    (void)backend;
    if (remote_reach(&here))
        free(here.data);
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
    struct stream *mine = stream;

    (void)backend;
    if (kind != ATTN_COPY_TO_HOST && !remote_reach(&target))
        return refuse(err, "the target of a copy to the device is no address of it");
    if (kind != ATTN_COPY_TO_DEVICE && !remote_reach(&source))
        return refuse(err, "the source of a copy from the device is no address of it");
    if (REMOTE_FAULT == REMOTE_FAULT_COPY && kind == ATTN_COPY_TO_DEVICE && size > LEFT_OUT)
        size -= LEFT_OUT;
    struct copy now = {(unsigned char *)target.data + target.byte_offset,
                       (const unsigned char *)source.data + source.byte_offset, size};
    if (mine == NULL) {
        memcpy(now.to, now.from, now.size);
        return ATTN_OK;
    }
    if (mine->waiting == MOST_WAITING)
        (void)remote_catch_up(mine);
    mine->copies[mine->waiting++] = now;
    return ATTN_OK;
}

static int32_t stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    (void)backend;
    (void)err;
    *out = calloc(1, sizeof(struct stream));
    return *out != NULL ? ATTN_OK : ATTN_E_MEMORY;
}

static int32_t stream_synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err)
{
    (void)backend;
    (void)err;
    if (REMOTE_FAULT != REMOTE_FAULT_STREAM)
        (void)remote_catch_up(stream);
    return ATTN_OK;
}

static void stream_destroy(struct attn_backend_impl *backend, void *stream)
{
    (void)backend;
    free(stream);
}

const struct attn_memory_table remote_memory = {
    .struct_size = sizeof remote_memory,
    .alloc = alloc,
    .free = give_back,
    .copy = copy,
    .stream_create = stream_create,
    .stream_synchronize = stream_synchronize,
    .stream_destroy = stream_destroy,
    .graph_begin = remote_graph_begin,
    .graph_add_host = remote_graph_add_host,
    .graph_end = remote_graph_end,
    .graph_launch = remote_graph_launch,
    .graph_destroy = remote_graph_destroy,
};
