/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The library between the plugin and a driver: its functions and what is said to it. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim-state.h"

/* The driver's functions. */
static struct behind {
#define SHIM(name, symbol, parameters, arguments, first, second) gpu_result(*name) parameters;
#include "shim-entries.h"
#undef SHIM
} behind;
static struct {
    gpu_result (*get_current)(gpu_handle *context);
    gpu_result (*create)(gpu_handle *context, unsigned flags, gpu_ordinal device);
    gpu_result (*destroy)(gpu_handle context);
    const struct fake *(*fake)(void); /* NULL: the driver behind is a real one */
} more;
static gpu_handle own[8]; /* contexts of a caller */
static uint32_t own_count;

gpu_handle shim_current(void)
{
    gpu_handle context = NULL;

    if (more.get_current != NULL)
        (void)more.get_current(&context);
    return context;
}

/* What is under way ends, for who is told of a failure waits for nothing more. */
static void drain(const struct shim_object *object)
{
    const gpu_handle stream = (gpu_handle)(uintptr_t)object->handle;
    gpu_handle popped;
    int captured = 0;

    if (object->kind != SHIM_STREAM || behind.cuCtxPushCurrent(object->context) != GPU_SUCCESS)
        return;
    if (behind.cuStreamIsCapturing(stream, &captured) == GPU_SUCCESS && captured == 0)
        (void)behind.cuStreamSynchronize(stream);
    (void)behind.cuCtxPopCurrent(&popped);
}

void shim_drop_graph(uint64_t graph)
{
    (void)behind.cuGraphDestroy((gpu_handle)(uintptr_t)graph);
}

/* ---------------------------------------------------------------- the functions */

/* A release that is to fail is done all the same, as a driver does that tells of an earlier error. */
#define SHIM(name, symbol, parameters, arguments, first, second)                                             \
    static gpu_result shim_##name parameters                                                                 \
    {                                                                                                        \
        const gpu_result failed = shim_enter(#name);                                                         \
        if (failed != GPU_SUCCESS)                                                                           \
            shim_each(drain);                                                                                \
        if (failed != GPU_SUCCESS && !shim_releases(#name))                                                  \
            return failed;                                                                                   \
        gpu_result result = shim_check(#name, (uint64_t)(uintptr_t)(first));                                 \
        if (result == GPU_SUCCESS)                                                                           \
            result = behind.name arguments;                                                                  \
        if (result == GPU_SUCCESS)                                                                           \
            shim_leave(#name, (uint64_t)(uintptr_t)(first), (uint64_t)(uintptr_t)(second), failed);          \
        return failed != GPU_SUCCESS ? failed : result;                                                      \
    }
#include "shim-entries.h"
#undef SHIM

FAKE_API gpu_result shim_lookup(const char *name, void **out, int version, uint64_t flags,
                                int *status) __asm__("cuGetProcAddress_v2");

gpu_result shim_lookup(const char *name, void **out, int version, uint64_t flags, int *status)
{
#define SHIM(name, symbol, parameters, arguments, first, second)                                             \
    {#name, (void (*)(void))shim_##name, offsetof(struct behind, name)},
    static const struct {
        const char *name;
        void (*function)(void);
        size_t offset;
    } entries[] = {
#include "shim-entries.h"
    };
#undef SHIM
    void *there = NULL;

    (void)version, (void)flags, (void)status;
    *out = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        memcpy(&there, (const char *)&behind + entries[i].offset, sizeof there);
        if (strcmp(entries[i].name, name) == 0 && there != NULL)
            memcpy(out, &entries[i].function, sizeof *out);
    }
    return *out != NULL ? GPU_SUCCESS : 500;
}

/* ---------------------------------------------------------------- the library behind */

static void find(void *library, const char *symbol, void *out)
{
    void *found = dlsym(library, symbol);

    memcpy(out, &found, sizeof found);
}

static int use(const char *path)
{
    void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int devices = 0;

    if (library == NULL)
        return 0;
#define SHIM(name, symbol, parameters, arguments, first, second) find(library, symbol, &behind.name);
#include "shim-entries.h"
#undef SHIM
    find(library, "cuCtxGetCurrent", &more.get_current);
    find(library, "cuCtxCreate_v2", &more.create);
    find(library, "cuCtxDestroy_v2", &more.destroy);
    find(library, "fake_get", &more.fake);
    if (more.get_current == NULL || more.create == NULL || more.destroy == NULL || behind.cuInit == NULL ||
        behind.cuInit(0) != GPU_SUCCESS || behind.cuDeviceGetCount(&devices) != GPU_SUCCESS)
        return 0;
    return devices;
}

static void hold(int ordinal)
{
    gpu_handle context;

    (void)behind.cuDevicePrimaryCtxRetain(&context, ordinal);
}

static bool is_real(void)
{
    return more.fake == NULL;
}

/* ---------------------------------------------------------------- control */

/* A capture that was lost on the way ends here. */
static void release_stream(gpu_handle stream)
{
    gpu_handle graph = NULL;
    int captured = 0;

    if (behind.cuStreamIsCapturing(stream, &captured) == GPU_SUCCESS && captured != 0 &&
        behind.cuStreamEndCapture(stream, &graph) == GPU_SUCCESS && graph != NULL)
        (void)behind.cuGraphDestroy(graph);
    (void)behind.cuStreamDestroy(stream);
}

/* In the driver behind, whatever became of the object's context here. */
static void release(const struct shim_object *object)
{
    gpu_handle popped;

    if (object->kind == SHIM_PRIMARY) {
        (void)behind.cuDevicePrimaryCtxRelease((gpu_ordinal)object->handle);
        return;
    }
    const gpu_handle handle = (gpu_handle)(uintptr_t)object->handle;
    if (behind.cuCtxPushCurrent(object->context) != GPU_SUCCESS)
        return;
    if (object->kind == SHIM_MEMORY)
        (void)behind.cuMemFree(object->handle);
    else if (object->kind == SHIM_PINNED)
        (void)behind.cuMemFreeHost(handle);
    else if (object->kind == SHIM_STREAM)
        release_stream(handle);
    else if (object->kind == SHIM_EVENT)
        (void)behind.cuEventDestroy(handle);
    else if (object->kind == SHIM_GRAPH)
        (void)behind.cuGraphDestroy(handle);
    else if (object->kind == SHIM_EXEC)
        (void)behind.cuGraphExecDestroy(handle);
    else if (object->kind == SHIM_MODULE)
        (void)behind.cuModuleUnload(handle);
    (void)behind.cuCtxPopCurrent(&popped);
}

static void reset(const struct fake_machine *machine)
{
    (void)machine;
    shim_forget(release);
    while (own_count > 0)
        (void)more.destroy(own[--own_count]);
}

static const char *offence(void)
{
    return *shim_offence() != '\0' || is_real() ? shim_offence() : more.fake()->offence();
}

static gpu_handle current(uint32_t *depth)
{
    gpu_handle context = shim_current();

    *depth = context != NULL;
    return context;
}

static gpu_handle context_push(int ordinal)
{
    if (own_count == sizeof own / sizeof own[0] || more.create(&own[own_count], 0, ordinal) != GPU_SUCCESS)
        return NULL;
    return own[own_count++];
}

static void context_pop(void)
{
    gpu_handle context;

    (void)behind.cuCtxPopCurrent(&context);
}

FAKE_API const struct fake *fake_get(void);
const struct fake *fake_get(void)
{
    static const struct fake table = {.reset = reset,
                                      .fail = shim_fail,
                                      .calls = shim_calls,
                                      .calls_of = shim_calls_of,
                                      .failed = shim_failed,
                                      .offence = offence,
                                      .leaks = shim_leaks,
                                      .current = current,
                                      .context_push = context_push,
                                      .context_pop = context_pop};

    return &table;
}

FAKE_API const struct shim *shim_get(void);
const struct shim *shim_get(void)
{
    static const struct shim table = {
        .use = use, .hold = hold, .living = shim_living, .primary = shim_primary, .real = is_real};

    return &table;
}
