/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory, streams, events and graphs of the HIP runtime that stands in: those of the driver beneath. */
#include <stdlib.h>

#include "stand-in-entries.h"

/* A function of HIP that is one of CUDA. */
#define PLAIN(call_)                                                                                         \
    do {                                                                                                     \
        const hip_result result = stand_enter(__func__);                                                     \
        return result != HIP_SUCCESS ? result : stand_leave(stand_driver.call_);                             \
    } while (0)

/* One that lets go of something. */
#define RELEASE(call_)                                                                                       \
    do {                                                                                                     \
        hip_result failed;                                                                                   \
        const hip_result result = stand_enter_release(__func__, &failed);                                    \
        return result != HIP_SUCCESS ? result : stand_leave_release(stand_driver.call_, failed);             \
    } while (0)

static uint64_t address(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

/* ---------------------------------------------------------------- memory */

/* No bytes are a success and no memory. */
static hip_result take(const char *name, void **out, size_t size, bool ordered, void *stream)
{
    uint64_t at = 0;
    const hip_result result = stand_enter(name);

    *out = NULL;
    if (result != HIP_SUCCESS)
        return result;
    int cuda = 0;
    if (size > 0)
        cuda = ordered ? stand_driver.cuMemAllocAsync(&at, size, stream) : stand_driver.cuMemAlloc(&at, size);
    if (cuda == 0)
        *out = (void *)(uintptr_t)at;
    return stand_leave(cuda);
}

hip_result hipMalloc(void **out, size_t size)
{
    return take("hipMalloc", out, size, false, NULL);
}

hip_result hipMallocAsync(void **out, size_t size, void *stream)
{
    return take("hipMallocAsync", out, size, true, stream);
}

hip_result hipFree(void *memory)
{
    if (memory == NULL)
        return HIP_SUCCESS;
    RELEASE(cuMemFree(address(memory)));
}

hip_result hipFreeAsync(void *memory, void *stream)
{
    RELEASE(cuMemFreeAsync(address(memory), stream));
}

hip_result hipHostMalloc(void **out, size_t size, unsigned flags)
{
    PLAIN(cuMemHostAlloc(out, size, flags));
}

hip_result hipHostFree(void *memory)
{
    if (memory == NULL)
        return HIP_SUCCESS;
    RELEASE(cuMemFreeHost(memory));
}

hip_result hipMemcpyHtoDAsync(void *to, const void *from, size_t size, void *stream)
{
    PLAIN(cuMemcpyHtoDAsync(address(to), from, size, stream));
}

hip_result hipMemcpyDtoHAsync(void *to, void *from, size_t size, void *stream)
{
    PLAIN(cuMemcpyDtoHAsync(to, address(from), size, stream));
}

hip_result hipMemcpyDtoDAsync(void *to, void *from, size_t size, void *stream)
{
    PLAIN(cuMemcpyDtoDAsync(address(to), address(from), size, stream));
}

/* Of ROCm 7; its attributes are CUDA's. Addresses are as wide as pointers. */
hip_result hipMemcpyBatchAsync(void **to, void **from, size_t *sizes, size_t count, void *attributes,
                               size_t *first, size_t attribute_count, size_t *failed_at, void *stream)
{
    const hip_result result = stand_enter("hipMemcpyBatchAsync");

    *failed_at = SIZE_MAX;
    if (result != HIP_SUCCESS)
        return result;
    if (stand_driver.cuMemcpyBatchAsync == NULL)
        return stand_leave(HIP_NOT_SUPPORTED);
    return stand_leave(stand_driver.cuMemcpyBatchAsync((uint64_t *)(void *)to, (uint64_t *)(void *)from,
                                                       sizes, count, attributes, first, attribute_count,
                                                       failed_at, stream));
}

hip_result hipMemsetD8Async(void *to, unsigned char value, size_t size, void *stream)
{
    PLAIN(cuMemsetD8Async(address(to), value, size, stream));
}

/* ---------------------------------------------------------------- streams */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream {
    struct stream *next;
    void *handle;
    int device;
} * streams;

static void list_stream(void *handle)
{
    struct stream *stream = calloc(1, sizeof *stream);

    if (stream == NULL)
        abort();
    stream->handle = handle;
    stream->device = stand_device;
    pthread_mutex_lock(&lock);
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&lock);
}

/* One, or all of them if it is NULL. */
static void forget_stream(const void *handle)
{
    pthread_mutex_lock(&lock);
    for (struct stream **link = &streams, *stream; (stream = *link) != NULL;) {
        if (handle == NULL || stream->handle == handle) {
            *link = stream->next;
            free(stream);
        } else {
            link = &stream->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

void stand_forget_streams(void)
{
    forget_stream(NULL);
}

void stand_drain(void)
{
    pthread_mutex_lock(&lock);
    for (const struct stream *stream = streams; stream != NULL; stream = stream->next) {
        void *context, *popped;
        int captured = 0;
        if (stand_context(stream->device, &context) != 0 || stand_driver.cuCtxPushCurrent(context) != 0)
            continue;
        if (stand_driver.cuStreamIsCapturing(stream->handle, &captured) == 0 && captured == 0)
            (void)stand_driver.cuStreamSynchronize(stream->handle);
        (void)stand_driver.cuCtxPopCurrent(&popped);
    }
    pthread_mutex_unlock(&lock);
}

hip_result hipStreamCreateWithFlags(void **out, unsigned flags)
{
    const hip_result result = stand_enter("hipStreamCreateWithFlags");

    if (result != HIP_SUCCESS)
        return result;
    const int cuda = stand_driver.cuStreamCreate(out, flags);
    if (cuda == 0)
        list_stream(*out);
    return stand_leave(cuda);
}

hip_result hipStreamDestroy(void *stream)
{
    hip_result failed;
    const hip_result result = stand_enter_release("hipStreamDestroy", &failed);

    if (result != HIP_SUCCESS)
        return result;
    forget_stream(stream);
    return stand_leave_release(stand_driver.cuStreamDestroy(stream), failed);
}

hip_result hipStreamSynchronize(void *stream)
{
    PLAIN(cuStreamSynchronize(stream));
}

hip_result hipStreamBeginCapture(void *stream, int mode)
{
    PLAIN(cuStreamBeginCapture(stream, mode));
}

/* A capture whose end fails is over all the same, and nothing comes of it. */
hip_result hipStreamEndCapture(void *stream, void **out)
{
    hip_result failed;
    const hip_result result = stand_enter_release("hipStreamEndCapture", &failed);

    *out = NULL;
    if (result != HIP_SUCCESS)
        return result;
    const int cuda = stand_driver.cuStreamEndCapture(stream, out);
    if (cuda == 0 && failed != HIP_SUCCESS) {
        (void)stand_driver.cuGraphDestroy(*out);
        *out = NULL;
    }
    return stand_leave_release(cuda, failed);
}

hip_result hipStreamIsCapturing(void *stream, int *status)
{
    PLAIN(cuStreamIsCapturing(stream, status));
}

hip_result hipLaunchHostFunc(void *stream, void (*fn)(void *arg), void *arg)
{
    PLAIN(cuLaunchHostFunc(stream, fn, arg));
}

/* ---------------------------------------------------------------- events and graphs */

hip_result hipEventCreateWithFlags(void **out, unsigned flags)
{
    PLAIN(cuEventCreate(out, flags));
}

hip_result hipEventRecord(void *event, void *stream)
{
    PLAIN(cuEventRecord(event, stream));
}

hip_result hipEventQuery(void *event)
{
    PLAIN(cuEventQuery(event));
}

hip_result hipEventSynchronize(void *event)
{
    PLAIN(cuEventSynchronize(event));
}

hip_result hipEventDestroy(void *event)
{
    RELEASE(cuEventDestroy(event));
}

hip_result hipGraphInstantiateWithFlags(void **out, void *graph, unsigned long long flags)
{
    PLAIN(cuGraphInstantiateWithFlags(out, graph, flags));
}

hip_result hipGraphLaunch(void *exec, void *stream)
{
    PLAIN(cuGraphLaunch(exec, stream));
}

hip_result hipGraphExecDestroy(void *exec)
{
    RELEASE(cuGraphExecDestroy(exec));
}

hip_result hipGraphDestroy(void *graph)
{
    RELEASE(cuGraphDestroy(graph));
}
