/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The fake driver's memory, streams, events, graphs and modules. */
#include <stdlib.h>
#include <string.h>

#include "fake-state.h"

/* A fault of a kernel loses the context. */
static gpu_result do_work(struct fake_work *work)
{
    gpu_result result = GPU_SUCCESS;

    if (work->what == FAKE_COPY)
        memcpy(work->to, work->from, work->size);
    else if (work->what == FAKE_SET)
        memset(work->to, work->value, work->size);
    else if (work->what == FAKE_LAUNCH)
        result = fake_kernel_run(work);
    else
        work->host(work->arg);
    if (result != GPU_SUCCESS)
        fake_context()->lost = result;
    return result;
}

gpu_result fake_submit(const char *name, gpu_handle handle, const struct fake_work *work)
{
    struct fake_object *stream = handle != NULL ? fake_take(handle, FAKE_STREAM, name) : NULL;

    if (handle != NULL && stream == NULL)
        return GPU_INVALID_VALUE;
    if (stream != NULL && stream->context != fake_context())
        fake_offend("%s on a stream of another context", name);
    struct fake_work *copy = malloc(sizeof *copy);
    if (copy == NULL)
        abort();
    *copy = *work;
    if (stream != NULL && stream->capture != NULL) {
        copy->next = NULL;
        *stream->capture->last_work = copy;
        stream->capture->last_work = &copy->next;
        return GPU_SUCCESS;
    }
    const gpu_result result = do_work(copy);
    free(copy);
    return result;
}

/* ---------------------------------------------------------------- memory */

static gpu_result alloc(const char *name, enum fake_kind kind, size_t size, void **out)
{
    gpu_result result = fake_enter(name, true);

    if (result != GPU_SUCCESS)
        return result;
    if (size > (size_t)1 << 28 || (kind == FAKE_MEMORY && size > fake_machine.memory - fake_taken()))
        return GPU_OUT_OF_MEMORY;
    if (posix_memalign(out, 256, size) != 0)
        abort();
    memset(*out, 0xa5, size);
    (void)fake_new(kind, *out, size);
    return GPU_SUCCESS;
}

static gpu_result release(const char *name, enum fake_kind kind, void *memory)
{
    gpu_result result = fake_enter(name, true);
    struct fake_object *object = fake_find_memory(memory, kind);

    if (object == NULL) {
        fake_offend("%s of memory that is not allocated", name);
        return GPU_INVALID_VALUE;
    }
    memset(object->memory, 0x5a, object->size);
    fake_drop(object);
    return result;
}

gpu_result cuMemAlloc(gpu_pointer *address, size_t size)
{
    void *memory = NULL;
    gpu_result result = alloc("cuMemAlloc", FAKE_MEMORY, size, &memory);

    *address = (gpu_pointer)(uintptr_t)memory;
    return result;
}

gpu_result cuMemFree(gpu_pointer address)
{
    return release("cuMemFree", FAKE_MEMORY, (void *)(uintptr_t)address);
}

gpu_result cuMemAllocAsync(gpu_pointer *address, size_t size, gpu_handle stream)
{
    void *memory = NULL;
    gpu_result result = alloc("cuMemAllocAsync", FAKE_MEMORY, size, &memory);

    (void)stream;
    *address = (gpu_pointer)(uintptr_t)memory;
    return result;
}

/* What a graph frees is free when the graph is gone. */
gpu_result cuMemFreeAsync(gpu_pointer address, gpu_handle handle)
{
    struct fake_object *stream = handle;

    if (stream == NULL || stream->capture == NULL)
        return release("cuMemFreeAsync", FAKE_MEMORY, (void *)(uintptr_t)address);
    gpu_result result = fake_enter("cuMemFreeAsync", true);
    struct fake_object *object = fake_find_memory((void *)(uintptr_t)address, FAKE_MEMORY);
    if (object == NULL)
        fake_offend("cuMemFreeAsync of memory that is not allocated");
    else
        object->capture = stream->capture;
    return result;
}

gpu_result cuMemHostAlloc(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    return alloc("cuMemHostAlloc", FAKE_PINNED, size, memory);
}

gpu_result cuMemFreeHost(void *memory)
{
    return release("cuMemFreeHost", FAKE_PINNED, memory);
}

static gpu_result submit_copy(const char *name, void *to, const void *from, size_t size, gpu_handle stream)
{
    const struct fake_work work = {.what = FAKE_COPY, .to = to, .from = from, .size = size};

    return to == NULL || from == NULL ? GPU_INVALID_VALUE : fake_submit(name, stream, &work);
}

gpu_result cuMemcpyHtoDAsync(gpu_pointer to, const void *from, size_t size, gpu_handle stream)
{
    gpu_result result = fake_enter("cuMemcpyHtoDAsync", true);

    return result != GPU_SUCCESS ? result
                                 : submit_copy("cuMemcpyHtoDAsync", fake_reach(to, size, "cuMemcpyHtoDAsync"),
                                               from, size, stream);
}

gpu_result cuMemcpyDtoHAsync(void *to, gpu_pointer from, size_t size, gpu_handle stream)
{
    gpu_result result = fake_enter("cuMemcpyDtoHAsync", true);

    return result != GPU_SUCCESS ? result
                                 : submit_copy("cuMemcpyDtoHAsync", to,
                                               fake_reach(from, size, "cuMemcpyDtoHAsync"), size, stream);
}

gpu_result cuMemcpyDtoDAsync(gpu_pointer to, gpu_pointer from, size_t size, gpu_handle stream)
{
    gpu_result result = fake_enter("cuMemcpyDtoDAsync", true);

    return result != GPU_SUCCESS ? result
                                 : submit_copy("cuMemcpyDtoDAsync", fake_reach(to, size, "cuMemcpyDtoDAsync"),
                                               fake_reach(from, size, "cuMemcpyDtoDAsync"), size, stream);
}

/* Last first: the order of a batch is nobody's. */
gpu_result cuMemcpyBatchAsync(gpu_pointer *to, gpu_pointer *from, size_t *sizes, size_t count,
                              struct gpu_copy_attributes *attributes, size_t *first, size_t attribute_count,
                              size_t *failed, gpu_handle stream)
{
    gpu_result result = fake_enter("cuMemcpyBatchAsync", true);

    *failed = SIZE_MAX;
    if (stream == NULL || count == 0 || attribute_count != 1 || first[0] != 0 ||
        attributes->source_order != GPU_COPY_IN_STREAM_ORDER)
        fake_offend("cuMemcpyBatchAsync with arguments that it does not take");
    for (size_t i = count; i-- > 0 && result == GPU_SUCCESS;)
        result = submit_copy("cuMemcpyBatchAsync", (void *)(uintptr_t)to[i], (const void *)(uintptr_t)from[i],
                             sizes[i], stream);
    return result;
}

gpu_result cuMemsetD8Async(gpu_pointer to, unsigned char value, size_t size, gpu_handle stream)
{
    gpu_result result = fake_enter("cuMemsetD8Async", true);
    struct fake_work work = {.what = FAKE_SET, .size = size, .value = value};

    if (result != GPU_SUCCESS)
        return result;
    work.to = fake_reach(to, size, "cuMemsetD8Async");
    return work.to == NULL ? GPU_INVALID_VALUE : fake_submit("cuMemsetD8Async", stream, &work);
}

/* ---------------------------------------------------------------- things with handles */

static gpu_result create(const char *name, enum fake_kind kind, gpu_handle *out)
{
    gpu_result result = fake_enter(name, true);

    if (result == GPU_SUCCESS)
        *out = fake_new(kind, NULL, 0);
    return result;
}

static gpu_result destroy(const char *name, enum fake_kind kind, gpu_handle handle)
{
    gpu_result result = fake_enter(name, true);
    struct fake_object *object = fake_take(handle, kind, name);

    if (object == NULL)
        return GPU_INVALID_VALUE;
    if (object->capture != NULL)
        fake_offend("%s of a stream that is captured", name);
    fake_drop(object);
    return result;
}

/* A call that only looks at a handle. */
static gpu_result look(const char *name, enum fake_kind kind, gpu_handle handle, struct fake_object **out)
{
    gpu_result result = fake_enter(name, true);

    *out = NULL;
    if (result != GPU_SUCCESS || handle == NULL)
        return result;
    *out = fake_take(handle, kind, name);
    return *out != NULL ? GPU_SUCCESS : GPU_INVALID_VALUE;
}

gpu_result cuStreamCreate(gpu_handle *stream, unsigned flags)
{
    (void)flags;
    return create("cuStreamCreate", FAKE_STREAM, stream);
}

gpu_result cuStreamDestroy(gpu_handle stream)
{
    return destroy("cuStreamDestroy", FAKE_STREAM, stream);
}

gpu_result cuStreamSynchronize(gpu_handle stream)
{
    struct fake_object *object;
    gpu_result result = look("cuStreamSynchronize", FAKE_STREAM, stream, &object);

    if (object != NULL && object->capture != NULL)
        fake_offend("a stream is waited for while it is captured");
    return result;
}

gpu_result cuStreamIsCapturing(gpu_handle stream, int *status)
{
    struct fake_object *object;
    gpu_result result = look("cuStreamIsCapturing", FAKE_STREAM, stream, &object);

    *status = object != NULL && object->capture != NULL;
    return result;
}

gpu_result cuStreamBeginCapture(gpu_handle stream, int mode)
{
    struct fake_object *object;
    gpu_result result = look("cuStreamBeginCapture", FAKE_STREAM, stream, &object);

    (void)mode;
    if (object == NULL)
        return result != GPU_SUCCESS ? result : GPU_CAPTURE_FIRST;
    if (object->capture != NULL)
        fake_offend("a capture begins on a stream that is captured");
    object->capture = fake_new(FAKE_GRAPH, NULL, 0);
    return result;
}

gpu_result cuStreamEndCapture(gpu_handle stream, gpu_handle *graph)
{
    gpu_result result = fake_enter("cuStreamEndCapture", true);
    struct fake_object *object = fake_take(stream, FAKE_STREAM, "cuStreamEndCapture");

    *graph = NULL;
    if (object == NULL || object->capture == NULL) {
        fake_offend("a capture ends that did not begin");
        return GPU_CAPTURE_FIRST;
    }
    if (result == GPU_SUCCESS)
        *graph = object->capture;
    else
        fake_drop(object->capture);
    object->capture = NULL;
    return result;
}

gpu_result cuLaunchHostFunc(gpu_handle stream, void (*fn)(void *arg), void *arg)
{
    const struct fake_work work = {.what = FAKE_HOST, .host = fn, .arg = arg};
    gpu_result result = fake_enter("cuLaunchHostFunc", true);

    return result != GPU_SUCCESS ? result : fake_submit("cuLaunchHostFunc", stream, &work);
}

gpu_result cuGraphInstantiateWithFlags(gpu_handle *exec, gpu_handle graph, unsigned long long flags)
{
    struct fake_object *from;
    gpu_result result = look("cuGraphInstantiateWithFlags", FAKE_GRAPH, graph, &from);

    (void)flags;
    if (result != GPU_SUCCESS)
        return result;
    struct fake_object *object = fake_new(FAKE_EXEC, NULL, 0);
    for (const struct fake_work *work = from->works; work != NULL; work = work->next) {
        struct fake_work *copy = malloc(sizeof *copy);
        if (copy == NULL)
            abort();
        *copy = *work;
        copy->next = NULL;
        *object->last_work = copy;
        object->last_work = &copy->next;
    }
    *exec = object;
    return GPU_SUCCESS;
}

gpu_result cuGraphLaunch(gpu_handle exec, gpu_handle stream)
{
    struct fake_object *object;
    gpu_result result = look("cuGraphLaunch", FAKE_EXEC, exec, &object);

    for (struct fake_work *work = object != NULL ? object->works : NULL; work != NULL; work = work->next) {
        result = fake_submit("cuGraphLaunch", stream, work);
        if (result != GPU_SUCCESS)
            break;
    }
    return result;
}

gpu_result cuGraphExecDestroy(gpu_handle exec)
{
    return destroy("cuGraphExecDestroy", FAKE_EXEC, exec);
}

gpu_result cuGraphDestroy(gpu_handle graph)
{
    return destroy("cuGraphDestroy", FAKE_GRAPH, graph);
}

gpu_result cuEventCreate(gpu_handle *event, unsigned flags)
{
    (void)flags;
    return create("cuEventCreate", FAKE_EVENT, event);
}

gpu_result cuEventRecord(gpu_handle event, gpu_handle stream)
{
    struct fake_object *object;
    gpu_result result = look("cuEventRecord", FAKE_EVENT, event, &object);

    if (result == GPU_SUCCESS && stream != NULL)
        return fake_take(stream, FAKE_STREAM, "cuEventRecord") != NULL ? GPU_SUCCESS : GPU_INVALID_VALUE;
    return result;
}

gpu_result cuEventQuery(gpu_handle event)
{
    struct fake_object *object;

    return look("cuEventQuery", FAKE_EVENT, event, &object);
}

gpu_result cuEventSynchronize(gpu_handle event)
{
    struct fake_object *object;

    return look("cuEventSynchronize", FAKE_EVENT, event, &object);
}

gpu_result cuEventDestroy(gpu_handle event)
{
    return destroy("cuEventDestroy", FAKE_EVENT, event);
}
