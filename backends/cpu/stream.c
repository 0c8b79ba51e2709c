/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Streams and events. A call has completed when it returns, so that a stream only identifies a capture, and
 * an event is reached as soon as it is recorded.
 */
#include <stdlib.h>

#include "graph.h"

int32_t cpu_stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    struct attn_cpu_executor *executor = malloc(sizeof *executor);

    (void)backend;
    *out = executor;
    if (executor == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "stream", "no memory for a stream");
    ATTN_INIT(executor);
    executor->kind = ATTN_EXECUTOR_POOL;
    return ATTN_OK;
}

int32_t cpu_stream_synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err)
{
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status == ATTN_OK && executor.recording != NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "stream", "nothing can be waited for while it is captured");
    return status;
}

void cpu_stream_destroy(struct attn_backend_impl *backend, void *stream)
{
    struct attn_cpu_executor *executor = stream;

    (void)backend;
    if (executor != NULL && executor->recording != NULL)
        executor->recording->executor = NULL; /* the end of that capture will fail */
    free(executor);
}

int32_t cpu_event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    (void)backend;
    *out = malloc(1); /* an event has no state, only a unique address */
    return *out != NULL ? ATTN_OK : attn__fail(err, ATTN_E_MEMORY, 0, "event", "no memory for an event");
}

int32_t cpu_event_record(struct attn_backend_impl *backend, void *event, void *stream, struct attn_error *err)
{
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    (void)event;
    if (status == ATTN_OK && executor.recording != NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "stream", "an event cannot be recorded into a capture");
    return status;
}

int32_t cpu_event_done(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    (void)backend;
    (void)event;
    (void)err;
    return ATTN_OK;
}

void cpu_event_destroy(struct attn_backend_impl *backend, void *event)
{
    (void)backend;
    free(event);
}
