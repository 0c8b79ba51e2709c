/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Streams and events: the driver's own, so that they mix with those of any other user of the device. */
#include "host.h"

int32_t gpu_stream_is_captured(struct gpu_context *context, void *stream, bool *out, struct attn_error *err)
{
    int captured = 0;

    *out = false;
    if (stream == NULL) /* the default stream cannot be captured */
        return ATTN_OK;
    int32_t status = gpu_check(context, context->driver->stream_is_capturing(stream, &captured), "stream",
                               gpu_names.stream_is_capturing, err);
    *out = captured != 0;
    return status;
}

/* ATTN_E_STATE if the stream is captured. The context is current. */
static int32_t refuse_captured(struct gpu_context *context, void *stream, const char *text,
                               struct attn_error *err)
{
    bool captured;
    int32_t status = gpu_stream_is_captured(context, stream, &captured, err);

    if (status == ATTN_OK && captured)
        return attn__fail(err, ATTN_E_STATE, 0, "stream", "%s", text);
    return status;
}

int32_t gpu_stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    struct gpu_context *context = backend->context;
    int32_t status = gpu_enter(context, err);

    *out = NULL;
    if (status != ATTN_OK)
        return status;
    status = gpu_check(context, context->driver->stream_create(out, GPU_STREAM_NON_BLOCKING), "stream",
                       gpu_names.stream_create, err);
    if (status != ATTN_OK)
        *out = NULL;
    return gpu_leave(context, status);
}

int32_t gpu_stream_synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err)
{
    struct gpu_context *context = backend->context;
    int32_t status = gpu_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status = refuse_captured(context, stream, "nothing can be waited for while the stream is captured", err);
    if (status == ATTN_OK)
        status = gpu_check(context, context->driver->stream_synchronize(stream), "stream",
                           gpu_names.stream_synchronize, err);
    return gpu_leave(context, status);
}

void gpu_stream_destroy(struct attn_backend_impl *backend, void *stream)
{
    struct gpu_context *context = backend->context;

    if (stream == NULL || !gpu_enter_to_free(context))
        return;
    gpu_graph_forget_stream(backend, stream);
    if (!gpu_is_lost(context))
        (void)gpu_check(context, context->driver->stream_destroy(stream), "stream", gpu_names.stream_destroy,
                        NULL);
    (void)gpu_leave(context, ATTN_OK);
}

int32_t gpu_event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    struct gpu_context *context = backend->context;
    int32_t status = gpu_enter(context, err);

    *out = NULL;
    if (status != ATTN_OK)
        return status;
    status = gpu_check(context, context->driver->event_create(out, GPU_EVENT_DISABLE_TIMING), "event",
                       gpu_names.event_create, err);
    if (status != ATTN_OK)
        *out = NULL;
    return gpu_leave(context, status);
}

int32_t gpu_event_record(struct attn_backend_impl *backend, void *event, void *stream, struct attn_error *err)
{
    struct gpu_context *context = backend->context;
    int32_t status = gpu_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status = refuse_captured(context, stream, "an event cannot be recorded into a capture", err);
    if (status == ATTN_OK)
        status = gpu_check(context, context->driver->event_record(event, stream), "event",
                           gpu_names.event_record, err);
    return gpu_leave(context, status);
}

int32_t gpu_event_query(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    struct gpu_context *context = backend->context;
    int32_t status = gpu_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status = gpu_check(context, context->driver->event_query(event), "event", gpu_names.event_query, err);
    return gpu_leave(context, status);
}

int32_t gpu_event_synchronize(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    struct gpu_context *context = backend->context;
    int32_t status = gpu_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status = gpu_check(context, context->driver->event_synchronize(event), "event",
                       gpu_names.event_synchronize, err);
    return gpu_leave(context, status);
}

void gpu_event_destroy(struct attn_backend_impl *backend, void *event)
{
    struct gpu_context *context = backend->context;

    if (event == NULL || !gpu_enter_to_free(context))
        return;
    (void)gpu_check(context, context->driver->event_destroy(event), "event", gpu_names.event_destroy, NULL);
    (void)gpu_leave(context, ATTN_OK);
}
