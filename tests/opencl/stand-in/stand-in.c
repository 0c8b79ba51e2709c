/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The functions of the OpenCL loader that stands in (stand-in.h). */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stand-in.h"

#define EXPORT  __attribute__((visibility("default")))
#define MOST    4096
#define COUNTED 128

/* A handle, as often as it was given. */
static struct {
    const void *handle;
    const char *from;
} references[MOST];
static struct {
    const char *name;
    uint64_t calls;
} counts[COUNTED];
static uint32_t reference_count;
static uint64_t calls, fail_at;
static int32_t fail_with;
static const char *failed_name = "", *fail_part = "";
static char wrong[128];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool poses(const char *word)
{
    const char *words = getenv("STAND_IN_POSE");

    return words != NULL && strstr(words, word) != NULL;
}

static void *find(const char *name)
{
    static void *library;
    const char *path = getenv("STAND_IN_LOADER");

    pthread_mutex_lock(&lock);
    if (library == NULL)
        library = dlopen(path != NULL ? path : "", RTLD_NOW | RTLD_LOCAL);
    pthread_mutex_unlock(&lock);
    void *found = library != NULL ? dlsym(library, name) : NULL;
    if (found == NULL) {
        fprintf(stderr, "the loader that stands in finds no %s in STAND_IN_LOADER\n", name);
        abort();
    }
    return found;
}

/* Counts a call; its result if it is to fail, or else CL_SUCCESS. */
static cl_int enter(const char *name)
{
    cl_int result = CL_SUCCESS;
    size_t i = 0;

    pthread_mutex_lock(&lock);
    while (i < COUNTED - 1 && counts[i].name != NULL && counts[i].name != name)
        i++;
    counts[i].name = name;
    counts[i].calls++;
    if (strstr(name, fail_part) != NULL && ++calls == fail_at) {
        failed_name = name;
        result = fail_with;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static void add(const char *name, const void *handle)
{
    pthread_mutex_lock(&lock);
    if (reference_count == MOST)
        abort();
    references[reference_count].handle = handle;
    references[reference_count++].from = name;
    pthread_mutex_unlock(&lock);
}

static void drop(const char *name, const void *handle)
{
    pthread_mutex_lock(&lock);
    uint32_t i = reference_count;
    while (i > 0 && references[i - 1].handle != handle)
        i--;
    if (i > 0)
        references[i - 1] = references[--reference_count];
    else if (wrong[0] == '\0')
        snprintf(wrong, sizeof wrong, "%s of something that is not there", name);
    pthread_mutex_unlock(&lock);
}

/* What a call did to the references. A release counts before it is made: the handle may be given again. */
static void leave(const char *name, const void *first, const void *made, const cl_event *event)
{
    if (strncmp(name, "clRetain", 8) == 0)
        add(name, first);
    else if (strncmp(name, "clCreate", 8) == 0 || strncmp(name, "clClone", 7) == 0)
        add(name, made);
    else if (event != NULL)
        add(name, *event);
}

static bool releases(const char *name)
{
    return strncmp(name, "clRelease", 9) == 0;
}

/* Waits for what a queue was given, if the call is of a queue: nobody else does so after a failure. */
static void finish(const char *name, const void *first)
{
    __typeof__(&clFinish) behind;
    void *address = find("clFinish");

    memcpy(&behind, &address, sizeof behind);
    if (strncmp(name, "clEnqueue", 9) == 0 || strcmp(name, "clFlush") == 0 || strcmp(name, "clFinish") == 0)
        behind((cl_command_queue)(uintptr_t)first);
}

/* What the machine lacks. */
static cl_int pose_clGetPlatformIDs(cl_uint capacity, cl_platform_id *platforms, cl_uint *count)
{
    (void)capacity, (void)platforms;
    while (poses("hangs"))
        pause();
    if (poses("crashes"))
        abort();
    if (!poses("no-platform"))
        return CL_SUCCESS;
    *count = 0;
    return CL_PLATFORM_NOT_FOUND_KHR;
}

static cl_int pose_clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint capacity,
                                  cl_device_id *devices, cl_uint *count)
{
    (void)platform, (void)type, (void)capacity, (void)devices, (void)count;
    return poses("no-device") ? CL_DEVICE_NOT_FOUND : CL_SUCCESS;
}

static cl_int pose_clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t size, void *value,
                                   size_t *out_size)
{
    (void)device, (void)size, (void)out_size;
    if (what == CL_DEVICE_COMPILER_AVAILABLE && poses("no-compiler"))
        *(cl_bool *)value = CL_FALSE;
    if (what == CL_DEVICE_ADDRESS_BITS && poses("narrow"))
        *(cl_uint *)value = 32;
    return CL_SUCCESS;
}

/* A release that fails has released all the same, and before a queue fails it does what it was given. */
#define FUNCTION(name, parameters, arguments, first, event, posed)                                           \
    EXPORT cl_int CL_API_CALL name parameters                                                                \
    {                                                                                                        \
        __typeof__(&name) behind;                                                                            \
        void *address = find(#name);                                                                         \
        const cl_int planned = enter(#name);                                                                 \
        memcpy(&behind, &address, sizeof behind);                                                            \
        if (planned != CL_SUCCESS)                                                                           \
            finish(#name, (const void *)(uintptr_t)first);                                                   \
        if (planned != CL_SUCCESS && !releases(#name))                                                       \
            return planned;                                                                                  \
        if (releases(#name))                                                                                 \
            drop(#name, (const void *)(uintptr_t)first);                                                     \
        const cl_int result = behind arguments;                                                              \
        if (result != CL_SUCCESS || planned != CL_SUCCESS)                                                   \
            return planned != CL_SUCCESS ? planned : result;                                                 \
        leave(#name, (const void *)(uintptr_t)first, NULL, event);                                           \
        return posed;                                                                                        \
    }
#define MAKER(type, name, parameters, arguments, event, code)                                                \
    EXPORT type CL_API_CALL name parameters                                                                  \
    {                                                                                                        \
        __typeof__(&name) behind;                                                                            \
        void *address = find(#name);                                                                         \
        const cl_int planned = enter(#name);                                                                 \
        cl_int *out = code;                                                                                  \
        memcpy(&behind, &address, sizeof behind);                                                            \
        if (planned != CL_SUCCESS && out != NULL)                                                            \
            *out = planned;                                                                                  \
        if (planned != CL_SUCCESS)                                                                           \
            return NULL;                                                                                     \
        type made = behind arguments;                                                                        \
        if (made != NULL)                                                                                    \
            leave(#name, NULL, made, event);                                                                 \
        return made;                                                                                         \
    }
#include "stand-in-functions.h"

static void fail(const char *part, uint64_t call, int32_t result)
{
    pthread_mutex_lock(&lock);
    calls = 0;
    fail_part = part;
    fail_at = call;
    fail_with = result;
    failed_name = "";
    pthread_mutex_unlock(&lock);
}

static const char *failed(void)
{
    return failed_name;
}

static uint32_t leaks(char *text, uint32_t size)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < reference_count; i++) {
        const size_t length = strlen(text);
        snprintf(text + length, size - length, "%s ", references[i].from);
    }
    return reference_count;
}

static const char *offence(void)
{
    return wrong;
}

static uint64_t calls_of(const char *name)
{
    for (size_t i = 0; i < COUNTED && counts[i].name != NULL; i++)
        if (strcmp(counts[i].name, name) == 0)
            return counts[i].calls;
    return 0;
}

EXPORT const struct stand_in *stand_in_get(void);
EXPORT const struct stand_in *stand_in_get(void)
{
    static const struct stand_in table = {fail, failed, leaks, offence, calls_of};

    return &table;
}
