/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Streams, which are command queues, and events, which are markers in them. */
#include "opencl.h"

/* An event. OpenCL makes one when it is recorded. */
struct event {
    pthread_mutex_t lock;
    cl_event marker; /* NULL: never recorded */
};

int32_t opencl_stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    cl_int result = CL_SUCCESS;

    *out = backend->cl->clCreateCommandQueue(backend->context, backend->device->device, 0, &result);
    return opencl_check(result, "stream", "clCreateCommandQueue", err);
}

int32_t opencl_stream_synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err)
{
    cl_command_queue queue = opencl_queue(backend, stream);
    int32_t status =
        opencl_graph_refuse(backend, stream, "nothing can be waited for while the stream is captured", err);

    /* Rusticl of Mesa 22.3 waits for nothing where all commands were flushed: the marker was not. */
    if (status == ATTN_OK)
        status = opencl_check(backend->cl->clEnqueueMarkerWithWaitList(queue, 0, NULL, NULL), "stream",
                              "clEnqueueMarkerWithWaitList", err);
    return status == ATTN_OK ? opencl_check(backend->cl->clFinish(queue), "stream", "clFinish", err) : status;
}

void opencl_stream_destroy(struct attn_backend_impl *backend, void *stream)
{
    opencl_graph_forget(backend, stream);
    if (stream != NULL)
        backend->cl->clReleaseCommandQueue((cl_command_queue)stream);
}

int32_t opencl_event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    struct event *event = calloc(1, sizeof *event);

    (void)backend;
    *out = event;
    if (event == NULL)
        return opencl_fail(err, ATTN_E_MEMORY, 0, "event", "no memory for the event");
    pthread_mutex_init(&event->lock, NULL);
    return ATTN_OK;
}

int32_t opencl_event_record(struct attn_backend_impl *backend, void *event, void *stream,
                            struct attn_error *err)
{
    cl_command_queue queue = opencl_queue(backend, stream);
    struct event *own = event;
    cl_event marker = NULL, old;
    int32_t status = opencl_graph_refuse(backend, stream, "an event cannot be recorded into a capture", err);

    if (status == ATTN_OK)
        status = opencl_check(backend->cl->clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker), "event",
                              "clEnqueueMarkerWithWaitList", err);
    if (status != ATTN_OK)
        return status;
    pthread_mutex_lock(&own->lock);
    old = own->marker;
    own->marker = marker;
    pthread_mutex_unlock(&own->lock);
    if (old != NULL)
        backend->cl->clReleaseEvent(old);
    /* Whoever asks for the event waits for work that has begun. */
    return opencl_check(backend->cl->clFlush(queue), "event", "clFlush", err);
}

int32_t opencl_event_query(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    struct event *own = event;
    cl_int state = CL_COMPLETE, result = CL_SUCCESS;

    pthread_mutex_lock(&own->lock);
    if (own->marker != NULL)
        result = backend->cl->clGetEventInfo(own->marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state,
                                             &state, NULL);
    pthread_mutex_unlock(&own->lock);
    const int32_t status = opencl_check(result, "event", "clGetEventInfo", err);
    if (status != ATTN_OK)
        return status;
    if (state < 0)
        return opencl_check(state, "event", "work before the event", err);
    if (state != CL_COMPLETE)
        return opencl_fail(err, ATTN_E_BUSY, 0, "event", "the event has not come yet");
    return ATTN_OK;
}

int32_t opencl_event_synchronize(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    struct event *own = event;
    cl_event marker;
    cl_int result;

    pthread_mutex_lock(&own->lock);
    marker = own->marker;
    result = marker != NULL ? backend->cl->clRetainEvent(marker) : CL_SUCCESS;
    pthread_mutex_unlock(&own->lock);
    if (result != CL_SUCCESS || marker == NULL)
        return opencl_check(result, "event", "clRetainEvent", err);
    result = backend->cl->clWaitForEvents(1, &marker);
    backend->cl->clReleaseEvent(marker);
    return opencl_check(result, "event", "clWaitForEvents", err);
}

void opencl_event_destroy(struct attn_backend_impl *backend, void *event)
{
    struct event *own = event;

    if (own == NULL)
        return;
    if (own->marker != NULL)
        backend->cl->clReleaseEvent(own->marker);
    pthread_mutex_destroy(&own->lock);
    free(own);
}
