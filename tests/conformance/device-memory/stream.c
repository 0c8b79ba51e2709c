/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Streams on which copies wait until somebody synchronises or computes, and events that wait with them. */
#include <stdlib.h>

#include "device-memory.h"

enum { MOST_WAITING = 256 };

/* Lives as long as the program and events have it. */
struct stream {
    uint32_t holders;
    uint32_t waiting;
    struct device_memory_copy copies[MOST_WAITING];
    uint64_t done; /* how often everything was done */
    void *keeps;   /* the CPU's stream while a graph is captured */
};

/* Reached once the stream did everything more often than it had when the mark was put. */
struct event {
    struct stream *stream; /* NULL: nothing is waited for */
    uint64_t done;
};

void *device_memory_stream_keeps(void *stream)
{
    return stream != NULL ? ((struct stream *)stream)->keeps : NULL;
}

void device_memory_stream_keep(void *stream, void *cpu_stream)
{
    ((struct stream *)stream)->keeps = cpu_stream;
}

void *device_memory_catch_up(void *stream)
{
    struct stream *mine = stream;

    if (mine == NULL || mine->keeps != NULL)
        return device_memory_stream_keeps(stream);
    for (uint32_t i = 0; i < mine->waiting; i++)
        memcpy(mine->copies[i].to, mine->copies[i].from, mine->copies[i].size);
    mine->waiting = 0;
    mine->done++;
    return NULL;
}

void device_memory_stream_copy(void *stream, const struct device_memory_copy *copy)
{
    struct stream *mine = stream;

    if (mine == NULL) {
        memcpy(copy->to, copy->from, copy->size);
        return;
    }
    if (mine->waiting == MOST_WAITING)
        (void)device_memory_catch_up(mine);
    mine->copies[mine->waiting++] = *copy;
}

static void let_go(struct stream *stream)
{
    if (stream != NULL && --stream->holders == 0)
        free(stream);
}

int32_t device_memory_stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    struct stream *stream = calloc(1, sizeof *stream);

    (void)backend;
    (void)err;
    *out = stream;
    if (stream == NULL)
        return ATTN_E_MEMORY;
    stream->holders = 1;
    return ATTN_OK;
}

int32_t device_memory_stream_synchronize(struct attn_backend_impl *backend, void *stream,
                                         struct attn_error *err)
{
    (void)backend;
    (void)err;
    if (device_memory_fault != FAULT_STREAM)
        (void)device_memory_catch_up(stream);
    return ATTN_OK;
}

void device_memory_stream_destroy(struct attn_backend_impl *backend, void *stream)
{
    (void)backend;
    (void)device_memory_catch_up(stream);
    let_go(stream);
}

int32_t device_memory_event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    (void)backend;
    (void)err;
    *out = calloc(1, sizeof(struct event));
    return *out != NULL ? ATTN_OK : ATTN_E_MEMORY;
}

int32_t device_memory_event_record(struct attn_backend_impl *backend, void *event, void *stream,
                                   struct attn_error *err)
{
    struct event *mark = event;
    struct stream *mine = stream;

    (void)backend;
    (void)err;
    if (device_memory_stream_keeps(stream) != NULL)
        return ATTN_E_STATE;
    let_go(mark->stream);
    mark->stream = mine != NULL && mine->waiting > 0 ? mine : NULL;
    if (mark->stream != NULL) {
        mine->holders++;
        mark->done = mine->done;
    }
    return ATTN_OK;
}

int32_t device_memory_event_query(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    const struct event *mark = event;

    (void)backend;
    (void)err;
    return mark->stream != NULL && mark->stream->done == mark->done ? ATTN_E_BUSY : ATTN_OK;
}

int32_t device_memory_event_synchronize(struct attn_backend_impl *backend, void *event,
                                        struct attn_error *err)
{
    if (device_memory_event_query(backend, event, err) == ATTN_E_BUSY)
        (void)device_memory_catch_up(((struct event *)event)->stream);
    return ATTN_OK;
}

void device_memory_event_destroy(struct attn_backend_impl *backend, void *event)
{
    (void)backend;
    let_go(((struct event *)event)->stream);
    free(event);
}
