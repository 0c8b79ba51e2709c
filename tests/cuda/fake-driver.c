/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The fake driver's control, devices, contexts and objects. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake-state.h"

#define NAMES_MAX 64
#define STACK_MAX 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_machine machine = {.devices = 1, .major = 9, .version = 13000};
static struct fake_object *objects;
static struct fake_object *primary[FAKE_DEVICES_MAX];
static uint32_t retained[FAKE_DEVICES_MAX];
static uint64_t calls, fail_at;
static cuda_result fail_with;
static const char *failed_name;
static char offence[256];
static struct {
    const char *name;
    uint64_t count;
} counts[NAMES_MAX];
static _Thread_local struct fake_object *stack[STACK_MAX];
static _Thread_local uint32_t depth;

void fake_offend(const char *format, ...)
{
    va_list args;

    if (offence[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(offence, sizeof offence, format, args);
    va_end(args);
}

static void count(const char *name)
{
    uint32_t i = 0;

    while (i < NAMES_MAX - 1 && counts[i].name != NULL && strcmp(counts[i].name, name) != 0)
        i++;
    counts[i].name = name;
    counts[i].count++;
}

/* Errors after which a context answers nothing else. */
static bool is_sticky(cuda_result result)
{
    return result >= CUDA_ILLEGAL_ADDRESS && result <= CUDA_LAUNCH_FAILED;
}

cuda_result fake_enter(const char *name, bool needs_context)
{
    cuda_result result = CUDA_SUCCESS;

    pthread_mutex_lock(&lock);
    calls++;
    count(name);
    if (calls == fail_at) {
        failed_name = name;
        result = fail_with;
        if (is_sticky(result) && depth > 0)
            stack[depth - 1]->lost = result;
    } else if (needs_context && depth > 0 && stack[depth - 1]->lost != CUDA_SUCCESS) {
        fake_offend("%s is called though the context is lost", name);
        result = stack[depth - 1]->lost;
    } else if (needs_context && depth == 0) {
        fake_offend("%s is called without a context", name);
        result = 201;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

struct fake_object *fake_context(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

struct fake_object *fake_new(enum fake_kind kind, void *memory, size_t size)
{
    struct fake_object *object = calloc(1, sizeof *object);

    if (object == NULL)
        abort();
    object->kind = kind;
    object->memory = memory;
    object->size = size;
    object->context = fake_context();
    object->last_work = &object->works;
    pthread_mutex_lock(&lock);
    object->next = objects;
    objects = object;
    pthread_mutex_unlock(&lock);
    return object;
}

static const char *kind_name(enum fake_kind kind)
{
    static const char *const names[] = {"",      "context", "memory", "pinned memory", "stream",
                                        "event", "graph",   "exec",   "module",        "function"};

    return names[kind];
}

struct fake_object *fake_take(cuda_handle handle, enum fake_kind kind, const char *name)
{
    struct fake_object *object;

    pthread_mutex_lock(&lock);
    for (object = objects; object != NULL && (cuda_handle)object != handle; object = object->next)
        continue;
    pthread_mutex_unlock(&lock);
    if (object != NULL && object->kind == kind)
        return object;
    fake_offend("%s of a %s that does not exist", name, kind_name(kind));
    return NULL;
}

void *fake_reach(cuda_address address, size_t size, const char *name)
{
    char *at = (char *)(uintptr_t)address;
    struct fake_object *object;

    pthread_mutex_lock(&lock);
    for (object = objects; object != NULL; object = object->next) {
        char *memory = object->memory;
        if (object->kind == FAKE_MEMORY && at >= memory && at + size <= memory + object->size)
            break;
    }
    pthread_mutex_unlock(&lock);
    if (object == NULL)
        fake_offend("%s reaches %zu bytes outside of device memory", name, size);
    return object != NULL ? at : NULL;
}

struct fake_object *fake_find_memory(const void *memory, enum fake_kind kind)
{
    struct fake_object *object;

    pthread_mutex_lock(&lock);
    for (object = objects; object != NULL; object = object->next) {
        if (object->kind == kind && object->memory == memory)
            break;
    }
    pthread_mutex_unlock(&lock);
    return object;
}

void fake_drop(struct fake_object *object)
{
    struct fake_object **link = &objects;

    pthread_mutex_lock(&lock);
    while (*link != object)
        link = &(*link)->next;
    *link = object->next;
    pthread_mutex_unlock(&lock);
    fake_release_works(object);
    free(object->memory);
    free(object);
}

void fake_release_works(struct fake_object *object)
{
    for (struct fake_work *work = object->works, *next; work != NULL; work = next) {
        next = work->next;
        free(work);
    }
    object->works = NULL;
}

/* ---------------------------------------------------------------- control */

static void reset(const struct fake_machine *to)
{
    for (struct fake_object *object = objects, *next; object != NULL; object = next) {
        next = object->next;
        fake_release_works(object);
        free(object->memory);
        free(object);
    }
    objects = NULL;
    machine = *to;
    memset(primary, 0, sizeof primary);
    memset(retained, 0, sizeof retained);
    memset(counts, 0, sizeof counts);
    calls = fail_at = 0;
    fail_with = CUDA_SUCCESS;
    failed_name = "";
    offence[0] = '\0';
    depth = 0;
}

static void fail(uint64_t call, cuda_result result)
{
    fail_at = call;
    fail_with = result;
}

static uint64_t get_calls(void)
{
    return calls;
}

static uint64_t calls_of(const char *name)
{
    for (uint32_t i = 0; i < NAMES_MAX && counts[i].name != NULL; i++) {
        if (strcmp(counts[i].name, name) == 0)
            return counts[i].count;
    }
    return 0;
}

static const char *failed(void)
{
    return failed_name;
}

static const char *get_offence(void)
{
    return offence;
}

static uint32_t leaks(char *text, size_t size)
{
    uint32_t found = 0;

    text[0] = '\0';
    for (const struct fake_object *object = objects; object != NULL; object = object->next) {
        const size_t length = strlen(text);
        /* What a graph frees went with it. */
        if (object->kind == FAKE_CONTEXT || object->kind == FAKE_FUNCTION ||
            (object->kind == FAKE_MEMORY && object->capture != NULL))
            continue;
        found++;
        snprintf(text + length, size - length, "%s ", kind_name(object->kind));
    }
    for (int i = 0; i < FAKE_DEVICES_MAX; i++) {
        const size_t length = strlen(text);
        if (retained[i] == 0)
            continue;
        found++;
        snprintf(text + length, size - length, "primary context of %d ", i);
    }
    return found;
}

static cuda_handle current(uint32_t *out_depth)
{
    *out_depth = depth;
    return fake_context();
}

static cuda_handle context_push(int ordinal)
{
    struct fake_object *context = fake_new(FAKE_CONTEXT, NULL, (size_t)ordinal);

    stack[depth++] = context;
    return context;
}

static void context_pop(void)
{
    depth--;
}

FAKE_API const struct fake *fake_get(void);
const struct fake *fake_get(void)
{
    static const struct fake table = {reset,       fail,  get_calls, calls_of,     failed,
                                      get_offence, leaks, current,   context_push, context_pop};

    return &table;
}

/* ---------------------------------------------------------------- the driver: lookup and errors */

FAKE_API cuda_result fake_lookup(const char *name, void **out, int version, uint64_t flags,
                                 int *status) __asm__("cuGetProcAddress_v2");

cuda_result fake_lookup(const char *name, void **out, int version, uint64_t flags, int *status)
{
#define CUDA_ENTRY(name_, symbol_, optional_, parameters_) {#name_, (void (*)(void))name_},
    static const struct {
        const char *name;
        void (*function)(void);
    } entries[] = {
#include "driver.def"
    };
#undef CUDA_ENTRY
    (void)version, (void)flags, (void)status;
    *out = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0] && !machine.no_lookup; i++) {
        if (strcmp(entries[i].name, name) == 0)
            memcpy(out, &entries[i].function, sizeof *out);
    }
    return *out != NULL ? CUDA_SUCCESS : 500;
}

cuda_result cuGetErrorName(cuda_result error, const char **text)
{
    *text = error == CUDA_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : error == CUDA_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                          : "CUDA_ERROR_OF_THE_FAKE";
    return CUDA_SUCCESS;
}

cuda_result cuGetErrorString(cuda_result error, const char **text)
{
    *text = error == CUDA_OUT_OF_MEMORY ? "out of memory" : "a sentence about it";
    return CUDA_SUCCESS;
}

cuda_result cuDriverGetVersion(int *version)
{
    cuda_result result = fake_enter("cuDriverGetVersion", false);

    *version = machine.version;
    return result;
}

cuda_result cuInit(unsigned flags)
{
    cuda_result result = fake_enter("cuInit", false);

    (void)flags;
    return result != CUDA_SUCCESS ? result : machine.init;
}

/* ---------------------------------------------------------------- devices */

cuda_result cuDeviceGetCount(int *devices)
{
    cuda_result result = fake_enter("cuDeviceGetCount", false);

    *devices = machine.devices;
    return result;
}

cuda_result cuDeviceGet(cuda_device *device, int ordinal)
{
    cuda_result result = fake_enter("cuDeviceGet", false);

    *device = ordinal;
    return result;
}

cuda_result cuDeviceGetName(char *name, int size, cuda_device device)
{
    cuda_result result = fake_enter("cuDeviceGetName", false);

    snprintf(name, (size_t)size, "Fake GPU %d", device);
    return result;
}

cuda_result cuDeviceGetAttribute(int *value, int attribute, cuda_device device)
{
    cuda_result result = fake_enter("cuDeviceGetAttribute", false);

    (void)device;
    *value = attribute == CUDA_DEVICE_MAJOR             ? machine.major
             : attribute == CUDA_DEVICE_MINOR           ? machine.minor
             : attribute == CUDA_DEVICE_MULTIPROCESSORS ? 4
                                                        : 0;
    return result;
}

cuda_result cuDeviceTotalMem(size_t *bytes, cuda_device device)
{
    cuda_result result = fake_enter("cuDeviceTotalMem", false);

    (void)device;
    *bytes = (size_t)1 << 30;
    return result;
}

/* ---------------------------------------------------------------- contexts */

cuda_result cuDevicePrimaryCtxRetain(cuda_handle *context, cuda_device device)
{
    cuda_result result = fake_enter("cuDevicePrimaryCtxRetain", false);

    if (result != CUDA_SUCCESS)
        return result;
    struct fake_object *fresh = fake_new(FAKE_CONTEXT, NULL, (size_t)device);
    pthread_mutex_lock(&lock);
    primary[device] = primary[device] == NULL ? fresh : primary[device];
    retained[device]++;
    pthread_mutex_unlock(&lock);
    *context = primary[device];
    return CUDA_SUCCESS;
}

cuda_result cuDevicePrimaryCtxRelease(cuda_device device)
{
    cuda_result result = fake_enter("cuDevicePrimaryCtxRelease", false);

    pthread_mutex_lock(&lock);
    const bool held = retained[device] > 0;
    retained[device] -= held;
    pthread_mutex_unlock(&lock);
    if (!held)
        fake_offend("a primary context is released once too often");
    return result;
}

cuda_result cuCtxPushCurrent(cuda_handle context)
{
    cuda_result result = fake_enter("cuCtxPushCurrent", false);

    if (result != CUDA_SUCCESS)
        return result;
    if (fake_take(context, FAKE_CONTEXT, "cuCtxPushCurrent") == NULL)
        return CUDA_INVALID_VALUE;
    if (depth == STACK_MAX)
        fake_offend("contexts are pushed and not popped");
    else
        stack[depth++] = context;
    return CUDA_SUCCESS;
}

cuda_result cuCtxPopCurrent(cuda_handle *context)
{
    cuda_result result = fake_enter("cuCtxPopCurrent", false);

    *context = fake_context();
    if (depth == 0)
        fake_offend("a context is popped that was not pushed");
    else
        depth--;
    return result;
}

cuda_result cuCtxGetDevice(cuda_device *device)
{
    cuda_result result = fake_enter("cuCtxGetDevice", true);

    if (result == CUDA_SUCCESS)
        *device = (cuda_device)fake_context()->size;
    return result;
}
