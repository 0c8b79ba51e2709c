/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the library between the plugin and a driver keeps: calls, objects, contexts that are lost. */
#include "shim-state.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMES = 96, MOST_LOST = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shim_object *objects;
static uint64_t calls, fail_at;
static gpu_result fail_with;
static const char *failed_name = "";
static char offence[256];
static gpu_handle last_primary;
static struct {
    const char *name;
    uint64_t count;
} counts[MOST_NAMES];
static struct {
    gpu_handle context;
    gpu_result error;
} lost[MOST_LOST];
static uint32_t lost_count;

/* Which calls make things, at which of their arguments, and which release them. */
static const struct maker {
    const char *name;
    enum shim_kind kind;
    bool second;
} makers[] = {
    {"cuMemAlloc", SHIM_MEMORY, false},
    {"cuMemAllocAsync", SHIM_MEMORY, false},
    {"cuMemHostAlloc", SHIM_PINNED, false},
    {"cuStreamCreate", SHIM_STREAM, false},
    {"cuEventCreate", SHIM_EVENT, false},
    {"cuStreamEndCapture", SHIM_GRAPH, true},
    {"cuGraphInstantiateWithFlags", SHIM_EXEC, false},
    {"cuModuleLoadData", SHIM_MODULE, false},
};
static const struct maker releasers[] = {
    {"cuMemFree", SHIM_MEMORY, false},        {"cuMemFreeAsync", SHIM_MEMORY, false},
    {"cuMemFreeHost", SHIM_PINNED, false},    {"cuStreamDestroy", SHIM_STREAM, false},
    {"cuEventDestroy", SHIM_EVENT, false},    {"cuGraphDestroy", SHIM_GRAPH, false},
    {"cuGraphExecDestroy", SHIM_EXEC, false}, {"cuModuleUnload", SHIM_MODULE, false},
};

static void offend(const char *name, const char *what)
{
    if (offence[0] == '\0')
        snprintf(offence, sizeof offence, "%s %s", name, what);
}

static const struct maker *find_maker(const struct maker *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

static struct shim_object **find_object(enum shim_kind kind, uint64_t handle)
{
    struct shim_object **link = &objects;

    while (*link != NULL && ((*link)->kind != kind || (*link)->handle != handle))
        link = &(*link)->next;
    return link;
}

/* Calls that a thread without a context may make. */
static bool needs_context(const char *name)
{
    static const char *const without[] = {"cuInit", "cuDriverGet", "cuDevice", "cuCtxPush", "cuCtxPop"};

    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++)
        if (strncmp(name, without[i], strlen(without[i])) == 0)
            return false;
    return true;
}

static bool is_sticky(gpu_result result)
{
    return result >= GPU_ILLEGAL_ADDRESS && result <= GPU_LAUNCH_FAILED;
}

static gpu_result lost_with(gpu_handle context)
{
    for (uint32_t i = 0; i < lost_count; i++)
        if (lost[i].context == context)
            return lost[i].error;
    return GPU_SUCCESS;
}

static void count(const char *name)
{
    uint32_t i = 0;

    while (i < MOST_NAMES - 1 && counts[i].name != NULL && strcmp(counts[i].name, name) != 0)
        i++;
    counts[i].name = name;
    counts[i].count++;
}

gpu_result shim_enter(const char *name)
{
    gpu_handle context = shim_current();
    gpu_result result = GPU_SUCCESS;

    if (strncmp(name, "cuGetError", 10) == 0)
        return GPU_SUCCESS;
    pthread_mutex_lock(&lock);
    calls++;
    count(name);
    if (calls == fail_at) {
        failed_name = name;
        result = fail_with;
        if (is_sticky(result) && context != NULL && lost_count < MOST_LOST) {
            lost[lost_count].context = context;
            lost[lost_count++].error = result;
        }
    } else if (needs_context(name) && context == NULL) {
        offend(name, "is called without a context");
    } else if (needs_context(name) && lost_with(context) != GPU_SUCCESS) {
        offend(name, "is called though the context is lost");
        result = lost_with(context);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

gpu_result shim_check(const char *name, uint64_t first)
{
    const struct maker *releaser = find_maker(releasers, sizeof releasers / sizeof releasers[0], name);
    const bool stream = strncmp(name, "cuStream", 8) == 0 && strcmp(name, "cuStreamCreate") != 0;
    gpu_result result = GPU_SUCCESS;

    if (releaser == NULL && (!stream || first == 0))
        return GPU_SUCCESS;
    pthread_mutex_lock(&lock);
    const struct shim_object *object = *find_object(releaser != NULL ? releaser->kind : SHIM_STREAM, first);
    if (object == NULL) {
        offend(name, "of something that is not there");
        result = GPU_INVALID_VALUE;
    } else if (object->context != shim_current()) {
        offend(name, "of something of another context");
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static void add(enum shim_kind kind, uint64_t handle, gpu_handle context)
{
    struct shim_object *object = calloc(1, sizeof *object);

    if (object == NULL)
        abort();
    object->kind = kind;
    object->handle = handle;
    object->context = context;
    object->next = objects;
    objects = object;
}

static void drop(enum shim_kind kind, uint64_t handle)
{
    struct shim_object **link = find_object(kind, handle), *object = *link;

    if (object == NULL) {
        offend("a release", "of something that is not there");
        return;
    }
    *link = object->next;
    free(object);
}

bool shim_releases(const char *name)
{
    return find_maker(releasers, sizeof releasers / sizeof releasers[0], name) != NULL ||
           strcmp(name, "cuCtxPopCurrent") == 0 || strcmp(name, "cuDevicePrimaryCtxRelease") == 0 ||
           strcmp(name, "cuStreamEndCapture") == 0;
}

void shim_leave(const char *name, uint64_t first, uint64_t second, gpu_result failed)
{
    const struct maker *maker = find_maker(makers, sizeof makers / sizeof makers[0], name);
    const struct maker *releaser = find_maker(releasers, sizeof releasers / sizeof releasers[0], name);
    gpu_handle context = shim_current();
    uint64_t handle = 0;

    pthread_mutex_lock(&lock);
    if (maker != NULL) {
        memcpy(&handle, (const void *)(uintptr_t)(maker->second ? second : first), sizeof handle);
        if (failed == GPU_SUCCESS)
            add(maker->kind, handle, context);
        else
            shim_drop_graph(handle);
    } else if (releaser != NULL) {
        drop(releaser->kind, first);
    } else if (strcmp(name, "cuDevicePrimaryCtxRetain") == 0) {
        memcpy(&last_primary, (const void *)(uintptr_t)first, sizeof last_primary);
        add(SHIM_PRIMARY, second, NULL);
    } else if (strcmp(name, "cuDevicePrimaryCtxRelease") == 0) {
        drop(SHIM_PRIMARY, first);
    }
    pthread_mutex_unlock(&lock);
}

void shim_each(void (*fn)(const struct shim_object *object))
{
    pthread_mutex_lock(&lock);
    for (const struct shim_object *object = objects; object != NULL; object = object->next)
        fn(object);
    pthread_mutex_unlock(&lock);
}

void shim_forget(void (*release)(const struct shim_object *object))
{
    /* Newest first: what is on a context goes before it. */
    for (struct shim_object *object; (object = objects) != NULL; free(object)) {
        release(object);
        objects = object->next;
    }
    memset(counts, 0, sizeof counts);
    lost_count = 0;
    calls = fail_at = 0;
    fail_with = GPU_SUCCESS;
    failed_name = "";
    offence[0] = '\0';
}

void shim_fail(uint64_t call, gpu_result result)
{
    fail_at = call;
    fail_with = result;
}

uint64_t shim_calls(void)
{
    return calls;
}

uint64_t shim_calls_of(const char *name)
{
    for (uint32_t i = 0; i < MOST_NAMES && counts[i].name != NULL; i++)
        if (strcmp(counts[i].name, name) == 0)
            return counts[i].count;
    return 0;
}

const char *shim_failed(void)
{
    return failed_name;
}

const char *shim_offence(void)
{
    return offence;
}

uint32_t shim_leaks(char *text, size_t size)
{
    static const char *const names[] = {"",      "memory", "pinned memory", "stream",         "event",
                                        "graph", "exec",   "module",        "primary context"};
    uint32_t found = 0;

    text[0] = '\0';
    for (const struct shim_object *object = objects; object != NULL; object = object->next, found++) {
        const size_t length = strlen(text);
        snprintf(text + length, size - length, "%s ", names[object->kind]);
    }
    return found;
}

uint32_t shim_living(gpu_handle context)
{
    uint32_t found = 0;

    for (const struct shim_object *object = objects; object != NULL; object = object->next)
        found += object->context == context && object->kind != SHIM_PRIMARY;
    return found;
}

gpu_handle shim_primary(void)
{
    return last_primary;
}
