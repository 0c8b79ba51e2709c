/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The fake driver's control and objects, and its lookup of functions. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake-state.h"

#define NAMES_MAX 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct fake_machine fake_machine = {.devices = 1, .major = 9, .version = 13000, .memory = FAKE_MEMORY_BYTES};
static struct fake_object *objects;
static uint64_t calls, fail_at;
static gpu_result fail_with;
static const char *failed_name;
static char offence[256];
static struct {
    const char *name;
    uint64_t count;
} counts[NAMES_MAX];

void fake_offend(const char *format, ...)
{
    va_list args;

    if (offence[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(offence, sizeof offence, format, args);
    va_end(args);
    if (fake_is_strict()) {
        fprintf(stderr, "the CUDA driver that stands in: %s\n", offence);
        abort();
    }
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
static bool is_sticky(gpu_result result)
{
    return result >= GPU_ILLEGAL_ADDRESS && result <= GPU_LAUNCH_FAILED;
}

gpu_result fake_enter(const char *name, bool needs_context)
{
    gpu_result result = GPU_SUCCESS;

    struct fake_object *context = fake_context();

    pthread_mutex_lock(&lock);
    calls++;
    count(name);
    if (calls == fail_at) {
        failed_name = name;
        result = fail_with;
        if (is_sticky(result) && context != NULL)
            context->lost = result;
    } else if (needs_context && context != NULL && context->lost != GPU_SUCCESS) {
        fake_offend("%s is called though the context is lost", name);
        result = context->lost;
    } else if (needs_context && context == NULL) {
        fake_offend("%s is called without a context", name);
        result = 201;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static struct fake_object *make(enum fake_kind kind, void *memory, size_t size)
{
    struct fake_object *object = calloc(1, sizeof *object);

    if (object == NULL)
        abort();
    object->kind = kind;
    object->memory = memory;
    object->size = size;
    object->context = fake_context();
    object->last_work = &object->works;
    return object;
}

static struct fake_object *list(struct fake_object *object)
{
    pthread_mutex_lock(&lock);
    object->next = objects;
    objects = object;
    pthread_mutex_unlock(&lock);
    return object;
}

struct fake_object *fake_new(enum fake_kind kind, void *memory, size_t size)
{
    return list(make(kind, memory, size));
}

struct fake_object *fake_new_function(const struct driver_kernel *kernel, const void *code,
                                      struct fake_object *module)
{
    struct fake_object *object = make(FAKE_FUNCTION, NULL, 0);

    object->kernel = kernel; /* before others find it */
    object->code = code;
    object->capture = module;
    return list(object);
}

static const char *kind_name(enum fake_kind kind)
{
    static const char *const names[] = {"",      "context", "memory", "pinned memory", "stream",
                                        "event", "graph",   "exec",   "module",        "function"};

    return names[kind];
}

struct fake_object *fake_take(gpu_handle handle, enum fake_kind kind, const char *name)
{
    struct fake_object *object;

    pthread_mutex_lock(&lock);
    for (object = objects; object != NULL && (gpu_handle)object != handle; object = object->next)
        continue;
    pthread_mutex_unlock(&lock);
    if (object != NULL && object->kind == kind) {
        if (kind != FAKE_CONTEXT && object->context != fake_context())
            fake_offend("%s of a %s of another context", name, kind_name(kind));
        return object;
    }
    fake_offend("%s of a %s that does not exist", name, kind_name(kind));
    return NULL;
}

void *fake_reach(gpu_pointer address, size_t size, const char *name)
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
    else if (object->context != fake_context())
        fake_offend("%s reaches memory of another context", name);
    return object != NULL ? at : NULL;
}

struct fake_object *fake_find_memory(const void *memory, enum fake_kind kind)
{
    struct fake_object *object;

    pthread_mutex_lock(&lock);
    for (object = objects; object != NULL; object = object->next)
        if (object->kind == kind && object->memory == memory)
            break;
    pthread_mutex_unlock(&lock);
    return object;
}

size_t fake_list_memory(size_t room, struct fake_extent *out)
{
    size_t count = 0;

    pthread_mutex_lock(&lock);
    for (const struct fake_object *object = objects; object != NULL; object = object->next) {
        const uint64_t begin = (uint64_t)(uintptr_t)object->memory;
        if ((object->kind != FAKE_MEMORY && object->kind != FAKE_PINNED) || object->context != fake_context())
            continue;
        if (count < room)
            out[count] = (struct fake_extent){begin, begin + object->size};
        count++;
    }
    pthread_mutex_unlock(&lock);
    return count;
}

uint64_t fake_taken(void)
{
    uint64_t sum = 0;

    pthread_mutex_lock(&lock);
    for (const struct fake_object *object = objects; object != NULL; object = object->next)
        sum += object->kind == FAKE_MEMORY ? object->size : 0;
    pthread_mutex_unlock(&lock);
    return sum;
}

static void drop_image(struct fake_object *object)
{
    if (object->image != NULL)
        fake_emulator_close(object->image);
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
    drop_image(object);
    free(object->memory);
    free(object);
}

void fake_drop_functions(const struct fake_object *module)
{
    struct fake_object *function;

    do {
        pthread_mutex_lock(&lock);
        for (function = objects; function != NULL; function = function->next)
            if (function->kind == FAKE_FUNCTION && function->capture == module)
                break;
        pthread_mutex_unlock(&lock);
        if (function != NULL)
            fake_drop(function);
    } while (function != NULL);
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
        drop_image(object);
        free(object->memory);
        free(object);
    }
    objects = NULL;
    fake_machine = *to;
    if (to->memory == 0)
        fake_machine.memory = FAKE_MEMORY_BYTES;
    fake_devices_reset();
    memset(counts, 0, sizeof counts);
    calls = fail_at = 0;
    fail_with = GPU_SUCCESS;
    failed_name = "";
    offence[0] = '\0';
}

static void fail(uint64_t call, gpu_result result)
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
    for (uint32_t i = 0; i < NAMES_MAX && counts[i].name != NULL; i++)
        if (strcmp(counts[i].name, name) == 0)
            return counts[i].count;
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
        if (fake_retained(i) == 0)
            continue;
        found++;
        snprintf(text + length, size - length, "primary context of %d ", i);
    }
    return found;
}

FAKE_API const struct fake *fake_get(void);
const struct fake *fake_get(void)
{
    static const struct fake table = {reset,       fail,  get_calls,    calls_of,          failed,
                                      get_offence, leaks, fake_current, fake_context_push, fake_context_pop};

    return &table;
}

/* ---------------------------------------------------------------- the driver: lookup and errors */

FAKE_API gpu_result fake_lookup(const char *name, void **out, int version, uint64_t flags,
                                int *status) __asm__("cuGetProcAddress_v2");

gpu_result fake_lookup(const char *name, void **out, int version, uint64_t flags, int *status)
{
#define GPU_ENTRY(name_, call_, symbol_, optional_, parameters_) {#call_, (void (*)(void))call_},
    static const struct {
        const char *name;
        void (*function)(void);
    } entries[] = {
#include "driver.def"
    };
    (void)version, (void)flags, (void)status;
    *out = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0] && !fake_machine.no_lookup; i++)
        if (strcmp(entries[i].name, name) == 0)
            memcpy(out, &entries[i].function, sizeof *out);
    return *out != NULL ? GPU_SUCCESS : 500;
}

gpu_result cuGetErrorName(gpu_result error, const char **text)
{
    *text = error == GPU_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : error == GPU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                         : "CUDA_ERROR_OF_THE_FAKE";
    return GPU_SUCCESS;
}

gpu_result cuGetErrorString(gpu_result error, const char **text)
{
    *text = error == GPU_OUT_OF_MEMORY ? "out of memory" : "a sentence about it";
    return GPU_SUCCESS;
}

gpu_result cuDriverGetVersion(int *version)
{
    gpu_result result = fake_enter("cuDriverGetVersion", false);

    *version = fake_machine.version;
    return result;
}

gpu_result cuInit(unsigned flags)
{
    gpu_result result = fake_enter("cuInit", false);

    (void)flags;
    fake_keep_at_start();
    return result != GPU_SUCCESS ? result : fake_machine.init;
}
