/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The library between the plugin and a driver: its functions and what is said to it. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim-state.h"

static struct cuda_driver behind;
static struct {
    cuda_result (*get_current)(cuda_handle *context);
    cuda_result (*create)(cuda_handle *context, unsigned flags, cuda_device device);
    cuda_result (*destroy)(cuda_handle context);
    const struct fake *(*fake)(void); /* NULL: the driver behind is a real one */
} more;
static cuda_handle own[8]; /* contexts of a caller */
static uint32_t own_count;

cuda_handle shim_current(void)
{
    cuda_handle context = NULL;

    if (more.get_current != NULL)
        (void)more.get_current(&context);
    return context;
}

/* What is under way ends, for who is told of a failure waits for nothing more. */
static void drain(const struct shim_object *object)
{
    const cuda_handle stream = (cuda_handle)(uintptr_t)object->handle;
    cuda_handle popped;
    int captured = 0;

    if (object->kind != SHIM_STREAM || behind.cuCtxPushCurrent(object->context) != CUDA_SUCCESS)
        return;
    if (behind.cuStreamIsCapturing(stream, &captured) == CUDA_SUCCESS && captured == 0)
        (void)behind.cuStreamSynchronize(stream);
    (void)behind.cuCtxPopCurrent(&popped);
}

void shim_drop_graph(uint64_t graph)
{
    (void)behind.cuGraphDestroy((cuda_handle)(uintptr_t)graph);
}

/* ---------------------------------------------------------------- the functions */

/* A release that is to fail is done all the same, as a driver does that tells of an earlier error. */
#define SHIM(name, symbol, parameters, arguments, first, second)                                             \
    static cuda_result shim_##name parameters                                                                \
    {                                                                                                        \
        const cuda_result failed = shim_enter(#name);                                                        \
        if (failed != CUDA_SUCCESS)                                                                          \
            shim_each(drain);                                                                                \
        if (failed != CUDA_SUCCESS && !shim_releases(#name))                                                 \
            return failed;                                                                                   \
        cuda_result result = shim_check(#name, (uint64_t)(uintptr_t)(first));                                \
        if (result == CUDA_SUCCESS)                                                                          \
            result = behind.name arguments;                                                                  \
        if (result == CUDA_SUCCESS)                                                                          \
            shim_leave(#name, (uint64_t)(uintptr_t)(first), (uint64_t)(uintptr_t)(second), failed);          \
        return failed != CUDA_SUCCESS ? failed : result;                                                     \
    }
#include "shim-entries.h"
#undef SHIM

FAKE_API cuda_result shim_lookup(const char *name, void **out, int version, uint64_t flags,
                                 int *status) __asm__("cuGetProcAddress_v2");

cuda_result shim_lookup(const char *name, void **out, int version, uint64_t flags, int *status)
{
#define SHIM(name, symbol, parameters, arguments, first, second)                                             \
    {#name, (void (*)(void))shim_##name, offsetof(struct cuda_driver, name)},
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
    return *out != NULL ? CUDA_SUCCESS : 500;
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
        behind.cuInit(0) != CUDA_SUCCESS || behind.cuDeviceGetCount(&devices) != CUDA_SUCCESS)
        return 0;
    return devices;
}

static void hold(int ordinal)
{
    cuda_handle context;

    (void)behind.cuDevicePrimaryCtxRetain(&context, ordinal);
}

static bool is_real(void)
{
    return more.fake == NULL;
}

/* ---------------------------------------------------------------- control */

/* A capture that was lost on the way ends here. */
static void release_stream(cuda_handle stream)
{
    cuda_handle graph = NULL;
    int captured = 0;

    if (behind.cuStreamIsCapturing(stream, &captured) == CUDA_SUCCESS && captured != 0 &&
        behind.cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && graph != NULL)
        (void)behind.cuGraphDestroy(graph);
    (void)behind.cuStreamDestroy(stream);
}

/* In the driver behind, whatever became of the object's context here. */
static void release(const struct shim_object *object)
{
    cuda_handle popped;

    if (object->kind == SHIM_PRIMARY) {
        (void)behind.cuDevicePrimaryCtxRelease((cuda_device)object->handle);
        return;
    }
    const cuda_handle handle = (cuda_handle)(uintptr_t)object->handle;
    if (behind.cuCtxPushCurrent(object->context) != CUDA_SUCCESS)
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

static cuda_handle current(uint32_t *depth)
{
    cuda_handle context = shim_current();

    *depth = context != NULL;
    return context;
}

static cuda_handle context_push(int ordinal)
{
    if (own_count == sizeof own / sizeof own[0] || more.create(&own[own_count], 0, ordinal) != CUDA_SUCCESS)
        return NULL;
    return own[own_count++];
}

static void context_pop(void)
{
    cuda_handle context;

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
