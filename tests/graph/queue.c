/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The queue of the one stream that is late, in front of a backend's tables. */
#include "queue.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "core.h"

enum { MOST = 256 };

/* What waits on the stream. */
struct work {
    enum { COPY = 1, LAUNCH, MARK } kind;
    uint32_t copy_kind;
    struct attn_buffer to;
    struct attn_buffer from;
    uint64_t size;
    struct attn_graph_impl *graph;
    struct event *event;
};

/* Reached if nothing of it waits. */
struct event {
    uint32_t waiting;
};

static struct {
    struct attn__backend plain; /* the tables as they are */
    struct attn_backend_impl *backend;
    bool late;
    bool capturing;
    struct work work[MOST];
    uint32_t count;
    struct queue_counts counts;
    uint32_t fail_copies;
    bool refuse_plans;
    int32_t status;
} queue;

static void drain(void)
{
    struct attn_error err;

    for (uint32_t i = 0; i < queue.count; i++) {
        const struct work *w = &queue.work[i];
        int32_t status = ATTN_OK;
        ATTN_INIT(&err);
        if (w->kind == COPY)
            status =
                queue.plain.memory.copy(queue.backend, &w->to, &w->from, w->size, w->copy_kind, NULL, &err);
        else if (w->kind == LAUNCH)
            status = queue.plain.memory.graph_launch(w->graph, NULL, &err);
        else
            w->event->waiting--;
        if (status != ATTN_OK && queue.status == ATTN_OK) {
            printf("# %s: %s\n", err.field, err.message);
            queue.status = status;
        }
    }
    queue.count = 0;
}

static void add(struct work work)
{
    if (queue.count == MOST)
        drain();
    queue.work[queue.count++] = work;
}

static bool waits(const void *stream)
{
    return queue.late && stream != NULL && !queue.capturing;
}

/* ---------------------------------------------------------------- memory */

static int32_t copy(struct attn_backend_impl *backend, const struct attn_buffer *to,
                    const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                    struct attn_error *err)
{
    queue.counts.to_device += kind == ATTN_COPY_TO_DEVICE;
    queue.counts.to_host += kind == ATTN_COPY_TO_HOST;
    queue.counts.on_device += kind == ATTN_COPY_ON_DEVICE;
    queue.counts.bytes += kind == ATTN_COPY_TO_DEVICE ? size : 0;
    if (kind == ATTN_COPY_TO_DEVICE && queue.fail_copies > 0 && queue.fail_copies--)
        return ATTN_E_DEVICE;
    if (!waits(stream))
        return queue.plain.memory.copy(backend, to, from, size, kind, stream, err);
    add((struct work){.kind = COPY, .copy_kind = kind, .to = *to, .from = *from, .size = size});
    return ATTN_OK;
}

static int32_t synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err)
{
    if (waits(stream))
        drain();
    return queue.plain.memory.stream_synchronize(backend, stream, err);
}

static int32_t event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    (void)backend;
    (void)err;
    *out = calloc(1, sizeof(struct event));
    return *out != NULL ? ATTN_OK : ATTN_E_MEMORY;
}

static void event_destroy(struct attn_backend_impl *backend, void *event)
{
    (void)backend;
    free(event);
}

static int32_t event_record(struct attn_backend_impl *backend, void *event, void *stream,
                            struct attn_error *err)
{
    struct event *mine = event;

    (void)backend;
    (void)err;
    if (queue.capturing && stream != NULL)
        return ATTN_E_STATE;
    if (!waits(stream))
        return ATTN_OK;
    mine->waiting++;
    add((struct work){.kind = MARK, .event = mine});
    return ATTN_OK;
}

static int32_t event_query(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    (void)backend;
    (void)err;
    return ((const struct event *)event)->waiting > 0 ? ATTN_E_BUSY : ATTN_OK;
}

static int32_t event_synchronize(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    (void)backend;
    (void)err;
    if (((const struct event *)event)->waiting > 0)
        drain();
    return ATTN_OK;
}

/* ---------------------------------------------------------------- graphs */

static int32_t graph_begin(struct attn_backend_impl *backend, void *stream, struct attn_graph_impl **out,
                           struct attn_error *err)
{
    const int32_t status = queue.plain.memory.graph_begin(backend, stream, out, err);

    queue.capturing = status == ATTN_OK;
    return status;
}

static int32_t graph_end(struct attn_graph_impl *graph, struct attn_error *err)
{
    queue.capturing = false;
    return queue.plain.memory.graph_end(graph, err);
}

static int32_t graph_launch(struct attn_graph_impl *graph, void *stream, struct attn_error *err)
{
    queue.counts.launches++;
    if (!waits(stream))
        return queue.plain.memory.graph_launch(graph, stream, err);
    add((struct work){.kind = LAUNCH, .graph = graph});
    return ATTN_OK;
}

/* ---------------------------------------------------------------- plans and caches */

/* What is called outside of a graph is done at once, after all that waits. */
static void catch_up(const void *stream)
{
    if (waits(stream))
        drain();
}

static int32_t prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                       const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                       struct attn_error *err)
{
    queue.counts.prepares++;
    catch_up(stream);
    if (queue.refuse_plans && batch->host == NULL)
        return ATTN_E_UNSUPPORTED;
    return queue.plain.plan.prepare(plan, batch, schedule, staging, stream, err);
}

static int32_t run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                   const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                   const struct attn_kv_desc *desc, const struct attn_span *schedule,
                   const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    queue.counts.runs++;
    catch_up(stream);
    return queue.plain.plan.run(plan, batch, tensors, kv, desc, schedule, scratch, stream, err);
}

static int32_t kv_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                        const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                        struct attn_error *err)
{
    queue.counts.writes++;
    catch_up(stream);
    return queue.plain.kv.write(backend, args, kv, desc, stream, err);
}

/* ---------------------------------------------------------------- outside */

void queue_init(struct attn_backend *backend, int late)
{
    struct attn__backend *entry = backend->entry;

    memset(&queue, 0, sizeof queue);
    queue.plain = *entry;
    queue.backend = backend->impl;
    queue.late = late != 0;
    entry->memory.copy = copy;
    entry->memory.stream_synchronize = synchronize;
    entry->memory.event_create = event_create;
    entry->memory.event_destroy = event_destroy;
    entry->memory.event_record = event_record;
    entry->memory.event_query = event_query;
    entry->memory.event_synchronize = event_synchronize;
    entry->memory.graph_begin = graph_begin;
    entry->memory.graph_end = graph_end;
    entry->memory.graph_launch = graph_launch;
    entry->plan.prepare = prepare;
    entry->plan.prepare_many = NULL;
    entry->plan.run = run;
    entry->kv.write = kv_write;
}

void queue_finish(struct attn_backend *backend)
{
    backend->entry->memory = queue.plain.memory;
    backend->entry->plan = queue.plain.plan;
    backend->entry->kv = queue.plain.kv;
}

void queue_clear(void)
{
    memset(&queue.counts, 0, sizeof queue.counts);
}

struct queue_counts queue_counts(void)
{
    return queue.counts;
}

void queue_fail_copies(uint32_t count)
{
    queue.fail_copies = count;
}

void queue_refuse_device_plans(int refuse)
{
    queue.refuse_plans = refuse != 0;
}

int32_t queue_status(void)
{
    return queue.status;
}
