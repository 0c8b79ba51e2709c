/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Streams and events: the driver's own, so that they mix with those of any other user of the device. */
#include "cuda.h"

int32_t cuda_stream_is_captured(struct cuda_context *context, void *stream, bool *out, struct attn_error *err)
{
    int captured = 0;

    *out = false;
    if (stream == NULL) /* the default stream cannot be */
        return ATTN_OK;
    int32_t status = cuda_check(context, context->driver->cuStreamIsCapturing(stream, &captured), "stream",
                                "cuStreamIsCapturing", err);
    *out = captured != 0;
    return status;
}

/* ATTN_E_STATE on a stream whose calls are kept. The context is current. */
static int32_t refuse_captured(struct cuda_context *context, void *stream, const char *text,
                               struct attn_error *err)
{
    bool captured;
    int32_t status = cuda_stream_is_captured(context, stream, &captured, err);

    if (status == ATTN_OK && captured)
        return cuda_fail(err, ATTN_E_STATE, 0, "stream", "%s", text);
    return status;
}

int32_t cuda_stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    struct cuda_context *context = backend->context;
    int32_t status = cuda_enter(context, err);

    *out = NULL;
    if (status != ATTN_OK)
        return status;
    status = cuda_check(context, context->driver->cuStreamCreate(out, CUDA_STREAM_NON_BLOCKING), "stream",
                        "cuStreamCreate", err);
    if (status != ATTN_OK)
        *out = NULL;
    return cuda_leave(context, status);
}

int32_t cuda_stream_synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err)
{
    struct cuda_context *context = backend->context;
    int32_t status = cuda_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status = refuse_captured(context, stream, "nothing can be waited for while the stream is captured", err);
    if (status == ATTN_OK)
        status = cuda_check(context, context->driver->cuStreamSynchronize(stream), "stream",
                            "cuStreamSynchronize", err);
    return cuda_leave(context, status);
}

void cuda_stream_destroy(struct attn_backend_impl *backend, void *stream)
{
    struct cuda_context *context = backend->context;

    if (stream == NULL || !cuda_enter_to_free(context))
        return;
    cuda_graph_forget_stream(backend, stream);
    if (!cuda_is_lost(context))
        (void)cuda_check(context, context->driver->cuStreamDestroy(stream), "stream", "cuStreamDestroy",
                         NULL);
    (void)cuda_leave(context, ATTN_OK);
}

int32_t cuda_event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    struct cuda_context *context = backend->context;
    int32_t status = cuda_enter(context, err);

    *out = NULL;
    if (status != ATTN_OK)
        return status;
    status = cuda_check(context, context->driver->cuEventCreate(out, CUDA_EVENT_DISABLE_TIMING), "event",
                        "cuEventCreate", err);
    if (status != ATTN_OK)
        *out = NULL;
    return cuda_leave(context, status);
}

int32_t cuda_event_record(struct attn_backend_impl *backend, void *event, void *stream,
                          struct attn_error *err)
{
    struct cuda_context *context = backend->context;
    int32_t status = cuda_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status = refuse_captured(context, stream, "an event cannot be recorded into a capture", err);
    if (status == ATTN_OK)
        status =
            cuda_check(context, context->driver->cuEventRecord(event, stream), "event", "cuEventRecord", err);
    return cuda_leave(context, status);
}

int32_t cuda_event_query(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    struct cuda_context *context = backend->context;
    int32_t status = cuda_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status = cuda_check(context, context->driver->cuEventQuery(event), "event", "cuEventQuery", err);
    return cuda_leave(context, status);
}

int32_t cuda_event_synchronize(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    struct cuda_context *context = backend->context;
    int32_t status = cuda_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status =
        cuda_check(context, context->driver->cuEventSynchronize(event), "event", "cuEventSynchronize", err);
    return cuda_leave(context, status);
}

void cuda_event_destroy(struct attn_backend_impl *backend, void *event)
{
    struct cuda_context *context = backend->context;

    if (event == NULL || !cuda_enter_to_free(context))
        return;
    (void)cuda_check(context, context->driver->cuEventDestroy(event), "event", "cuEventDestroy", NULL);
    (void)cuda_leave(context, ATTN_OK);
}
