/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The CUDA driver of tests: devices, memory, streams, events, modules and graphs of this machine. */
#include "driver.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../../backends/cuda/driver.h"

/* Exported as the driver's own symbols. */
#define CUDA_ENTRY(name, symbol, optional, parameters)                                                       \
    __attribute__((visibility("default"))) cuda_result name parameters __asm__(symbol);
#include "../../backends/cuda/driver.def"
#undef CUDA_ENTRY

/* ---------------------------------------------------------------- work, done or kept */

enum kind { WORK_KERNEL, WORK_COPY, WORK_SET, WORK_CALL };

struct work {
    struct work *next;
    enum kind kind;
    const struct driver_kernel *kernel;
    struct fiber_grid grid;
    void *to;
    const void *from;
    size_t size;
    unsigned char value;
    void (*fn)(void *arg);
    void *arg;
    max_align_t argument[]; /* of a kernel */
};

/* A stream, or the work of a capture that ended. */
struct chain {
    bool captured;
    struct work *first, **last;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t launches;

static void work_do(const struct work *work)
{
    pthread_mutex_lock(&lock);
    struct fiber_grid grid = work->grid;
    switch (work->kind) {
    case WORK_KERNEL:
        grid.order = launches++;
        fiber_launch(work->kernel->call, work->argument, &grid);
        break;
    case WORK_COPY:
        memmove(work->to, work->from, work->size);
        break;
    case WORK_SET:
        memset(work->to, work->value, work->size);
        break;
    case WORK_CALL:
        break;
    }
    pthread_mutex_unlock(&lock);
    if (work->kind == WORK_CALL)
        work->fn(work->arg);
}

/* Does it, or keeps a copy of it for the stream's capture. */
static cuda_result work_give(cuda_handle stream, const struct work *work, const void *argument, size_t size)
{
    struct chain *chain = stream;
    struct work *copy = malloc(sizeof *copy + size);

    if (copy == NULL)
        return CUDA_OUT_OF_MEMORY;
    *copy = *work;
    copy->next = NULL;
    if (size > 0)
        memcpy(copy->argument, argument, size);
    if (chain != NULL && chain->captured) {
        *chain->last = copy;
        chain->last = &copy->next;
        return CUDA_SUCCESS;
    }
    work_do(copy);
    free(copy);
    return CUDA_SUCCESS;
}

static struct chain *chain_create(void)
{
    struct chain *chain = calloc(1, sizeof *chain);

    if (chain != NULL)
        chain->last = &chain->first;
    return chain;
}

static void chain_destroy(struct chain *chain)
{
    while (chain != NULL && chain->first != NULL) {
        struct work *next = chain->first->next;
        free(chain->first);
        chain->first = next;
    }
    free(chain);
}

/* ---------------------------------------------------------------- device and context */

static _Thread_local uint32_t depth;

cuda_result cuInit(unsigned flags)
{
    return flags == 0 ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}
cuda_result cuDriverGetVersion(int *version)
{
    *version = CUDA_DRIVER_LEAST;
    return CUDA_SUCCESS;
}
cuda_result cuGetErrorName(cuda_result error, const char **text)
{
    *text = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}
cuda_result cuGetErrorString(cuda_result error, const char **text)
{
    return cuGetErrorName(error, text);
}
cuda_result cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}
cuda_result cuDeviceGet(cuda_device *device, int ordinal)
{
    *device = 0;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}
cuda_result cuDeviceGetName(char *name, int size, cuda_device device)
{
    (void)device;
    strncpy(name, "fibers of the host", (size_t)size - 1);
    name[size - 1] = '\0';
    return CUDA_SUCCESS;
}
cuda_result cuDeviceGetAttribute(int *value, int attribute, cuda_device device)
{
    (void)device;
    *value = attribute == CUDA_DEVICE_MULTIPROCESSORS ? 3 : attribute == CUDA_DEVICE_MAJOR ? 9 : 0;
    return CUDA_SUCCESS;
}
cuda_result cuDeviceTotalMem(size_t *bytes, cuda_device device)
{
    (void)device;
    *bytes = (size_t)1 << 34;
    return CUDA_SUCCESS;
}
cuda_result cuDevicePrimaryCtxRetain(cuda_handle *context, cuda_device device)
{
    static int primary;

    (void)device;
    *context = &primary;
    return CUDA_SUCCESS;
}
cuda_result cuDevicePrimaryCtxRelease(cuda_device device)
{
    (void)device;
    return CUDA_SUCCESS;
}
cuda_result cuCtxPushCurrent(cuda_handle context)
{
    depth += context != NULL;
    return context != NULL ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}
cuda_result cuCtxPopCurrent(cuda_handle *context)
{
    if (depth == 0)
        return CUDA_INVALID_VALUE;
    depth--;
    return cuDevicePrimaryCtxRetain(context, 0);
}
cuda_result cuCtxGetDevice(cuda_device *device)
{
    *device = 0;
    return depth > 0 ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

/* ---------------------------------------------------------------- memory */

cuda_result cuMemAlloc(cuda_address *address, size_t size)
{
    void *memory = NULL;

    if (depth == 0 || posix_memalign(&memory, 256, size) != 0)
        return depth == 0 ? CUDA_INVALID_VALUE : CUDA_OUT_OF_MEMORY;
    memset(memory, 0xff, size);
    *address = (cuda_address)(uintptr_t)memory;
    return CUDA_SUCCESS;
}
cuda_result cuMemFree(cuda_address address)
{
    free((void *)(uintptr_t)address);
    return CUDA_SUCCESS;
}
/* A capture's memory lives as long as its graph: here it stays. */
cuda_result cuMemAllocAsync(cuda_address *address, size_t size, cuda_handle stream)
{
    (void)stream;
    return cuMemAlloc(address, size);
}
cuda_result cuMemFreeAsync(cuda_address address, cuda_handle stream)
{
    const struct chain *chain = stream;

    return chain != NULL && chain->captured ? CUDA_SUCCESS : cuMemFree(address);
}
cuda_result cuMemHostAlloc(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    return posix_memalign(memory, 256, size) == 0 ? CUDA_SUCCESS : CUDA_OUT_OF_MEMORY;
}
cuda_result cuMemFreeHost(void *memory)
{
    free(memory);
    return CUDA_SUCCESS;
}

static cuda_result copy(uint64_t to, uint64_t from, size_t size, cuda_handle stream)
{
    const struct work work = {
        .kind = WORK_COPY, .to = (void *)(uintptr_t)to, .from = (const void *)(uintptr_t)from, .size = size};

    return depth == 0 ? CUDA_INVALID_VALUE : work_give(stream, &work, NULL, 0);
}

cuda_result cuMemcpyHtoDAsync(cuda_address to, const void *from, size_t size, cuda_handle stream)
{
    return copy(to, (uint64_t)(uintptr_t)from, size, stream);
}
cuda_result cuMemcpyDtoHAsync(void *to, cuda_address from, size_t size, cuda_handle stream)
{
    return copy((uint64_t)(uintptr_t)to, from, size, stream);
}
cuda_result cuMemcpyDtoDAsync(cuda_address to, cuda_address from, size_t size, cuda_handle stream)
{
    return copy(to, from, size, stream);
}
cuda_result cuMemsetD8Async(cuda_address to, unsigned char value, size_t size, cuda_handle stream)
{
    const struct work work = {.kind = WORK_SET, .to = (void *)(uintptr_t)to, .value = value, .size = size};

    return work_give(stream, &work, NULL, 0);
}

/* ---------------------------------------------------------------- streams and events */

cuda_result cuStreamCreate(cuda_handle *stream, unsigned flags)
{
    (void)flags;
    *stream = chain_create();
    return *stream != NULL ? CUDA_SUCCESS : CUDA_OUT_OF_MEMORY;
}
cuda_result cuStreamDestroy(cuda_handle stream)
{
    chain_destroy(stream);
    return CUDA_SUCCESS;
}
cuda_result cuStreamSynchronize(cuda_handle stream)
{
    const struct chain *chain = stream;

    return chain != NULL && chain->captured ? CUDA_CAPTURE_FIRST : CUDA_SUCCESS;
}
cuda_result cuLaunchHostFunc(cuda_handle stream, void (*fn)(void *arg), void *arg)
{
    const struct work work = {.kind = WORK_CALL, .fn = fn, .arg = arg};

    return work_give(stream, &work, NULL, 0);
}
cuda_result cuEventCreate(cuda_handle *event, unsigned flags)
{
    (void)flags;
    *event = malloc(1);
    return *event != NULL ? CUDA_SUCCESS : CUDA_OUT_OF_MEMORY;
}
cuda_result cuEventRecord(cuda_handle event, cuda_handle stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}
cuda_result cuEventQuery(cuda_handle event)
{
    return event != NULL ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}
cuda_result cuEventSynchronize(cuda_handle event)
{
    return cuEventQuery(event);
}
cuda_result cuEventDestroy(cuda_handle event)
{
    free(event);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- graphs */

cuda_result cuStreamBeginCapture(cuda_handle stream, int mode)
{
    struct chain *chain = stream;

    (void)mode;
    if (chain == NULL || chain->captured)
        return CUDA_CAPTURE_FIRST;
    chain->captured = true;
    return CUDA_SUCCESS;
}
cuda_result cuStreamIsCapturing(cuda_handle stream, int *status)
{
    const struct chain *chain = stream;

    *status = chain != NULL && chain->captured;
    return CUDA_SUCCESS;
}
cuda_result cuStreamEndCapture(cuda_handle stream, cuda_handle *graph)
{
    struct chain *chain = stream, *kept = chain_create();

    if (kept == NULL)
        return CUDA_OUT_OF_MEMORY;
    if (chain->first != NULL) {
        kept->first = chain->first;
        kept->last = chain->last;
    }
    chain->captured = false;
    chain->first = NULL;
    chain->last = &chain->first;
    *graph = kept;
    return CUDA_SUCCESS;
}
cuda_result cuGraphInstantiateWithFlags(cuda_handle *exec, cuda_handle graph, unsigned long long flags)
{
    const struct chain *from = graph;
    struct chain *kept = chain_create();

    (void)flags;
    if (kept == NULL)
        return CUDA_OUT_OF_MEMORY;
    for (const struct work *work = from->first; work != NULL; work = work->next) {
        kept->captured = true;
        if (work_give(kept, work, work->argument, work->kernel != NULL ? work->kernel->size : 0) !=
            CUDA_SUCCESS) {
            chain_destroy(kept);
            return CUDA_OUT_OF_MEMORY;
        }
    }
    *exec = kept;
    return CUDA_SUCCESS;
}
cuda_result cuGraphLaunch(cuda_handle exec, cuda_handle stream)
{
    const struct chain *chain = exec;

    (void)stream;
    for (const struct work *work = chain->first; work != NULL; work = work->next)
        work_do(work);
    return CUDA_SUCCESS;
}
cuda_result cuGraphExecDestroy(cuda_handle exec)
{
    chain_destroy(exec);
    return CUDA_SUCCESS;
}
cuda_result cuGraphDestroy(cuda_handle graph)
{
    chain_destroy(graph);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- modules and launches */

cuda_result cuModuleLoadData(cuda_handle *module, const void *image)
{
    static int loaded;

    *module = &loaded;
    return image != NULL ? CUDA_SUCCESS : CUDA_INVALID_IMAGE;
}
cuda_result cuModuleUnload(cuda_handle module)
{
    (void)module;
    return CUDA_SUCCESS;
}
cuda_result cuModuleGetFunction(cuda_handle *function, cuda_handle module, const char *name)
{
    const struct driver_kernel *kernel = driver_find(name);

    (void)module;
    memcpy(function, &kernel, sizeof *function);
    return kernel != NULL ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}
cuda_result cuFuncGetAttribute(int *value, int attribute, cuda_handle function)
{
    (void)attribute, (void)function;
    *value = 0;
    return CUDA_SUCCESS;
}
cuda_result cuFuncSetAttribute(cuda_handle function, int attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return CUDA_SUCCESS;
}
cuda_result cuLaunchKernel(cuda_handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                           unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                           cuda_handle stream, void **arguments, void **extra)
{
    const struct driver_kernel *kernel = function;
    const struct work work = {
        .kind = WORK_KERNEL, .kernel = kernel, .grid = {grid_x, grid_y, grid_z, block_x, shared_bytes, 0}};

    if (depth == 0 || extra != NULL || block_y != 1 || block_z != 1 || grid_x == 0 || grid_y == 0)
        return CUDA_INVALID_VALUE;
    return work_give(stream, &work, arguments[0], kernel->size);
}
