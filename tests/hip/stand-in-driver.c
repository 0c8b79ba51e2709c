/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The driver beneath the HIP runtime that stands in, and how each of its calls begins and ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stand-in.h"

struct stand_driver stand_driver;

static const struct {
    const char *name, *symbol;
    size_t offset;
    bool optional;
} entries[] = {
#define STAND_ENTRY(name_, symbol_, optional_, parameters_)                                                  \
    {#name_, symbol_, offsetof(struct stand_driver, name_), (optional_) != 0},
#include "stand-in-driver.def"
#undef STAND_ENTRY
};

/* The interface that cuGetProcAddress_v2 is asked for, with the classic default stream. */
enum { DRIVER_VERSION = 12000, LEGACY_STREAM = 1 };

typedef int (*lookup_fn)(const char *name, void **out, int version, uint64_t flags, int *status);

static bool find_entries(void *from)
{
    lookup_fn lookup = NULL;
    void *address = dlsym(from, "cuGetProcAddress_v2");

    memcpy(&lookup, &address, sizeof address);
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        address = NULL;
        if (lookup == NULL || lookup(entries[i].name, &address, DRIVER_VERSION, LEGACY_STREAM, NULL) != 0)
            address = dlsym(from, entries[i].symbol);
        if (address == NULL && !entries[i].optional) {
            fprintf(stderr, "the HIP runtime that stands in: the driver beneath has no %s\n",
                    entries[i].symbol);
            return false;
        }
        memcpy((char *)&stand_driver + entries[i].offset, &address, sizeof address);
    }
    return true;
}

static void *library;

static void open_library(void)
{
    const char *path = getenv("FAKE_HIP_DRIVER");

    library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

void *stand_library(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, open_library);
    return library;
}

static bool found;

static void find_all(void)
{
    found = stand_library() != NULL && find_entries(library);
}

bool stand_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_all);
    return found;
}

const char *stand_word(const char *word)
{
    const char *words = getenv("FAKE_HIP");
    const size_t length = strlen(word);

    for (const char *at = words; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0)
            return at + length;
    }
    return NULL;
}

hip_result stand_result(int cuda)
{
    static const struct {
        int first, last;
        hip_result result;
    } others[] = {{34, 34, HIP_UNKNOWN},         {226, 226, HIP_LAUNCH_FAILURE}, {220, 225, HIP_UNKNOWN},
                  {221, 221, HIP_INVALID_IMAGE}, {714, 718, HIP_LAUNCH_FAILURE}, {803, 899, HIP_UNKNOWN}};

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (cuda >= others[i].first && cuda <= others[i].last)
            return others[i].result;
    return cuda;
}

hip_result stand_enter_bare(const char *name)
{
    return stand_count() > 0 ? stand_count_call(name) : HIP_NO_DEVICE;
}

/* Not for a device that is lost, which the caller was told. */
static hip_result push(const char *name)
{
    const hip_result lost = stand_lost(stand_device, name);
    void *context;

    if (lost != HIP_SUCCESS)
        return lost;
    int cuda = stand_context(stand_device, &context);
    if (cuda == 0)
        cuda = stand_driver.cuCtxPushCurrent(context);
    return stand_result(cuda);
}

hip_result stand_enter(const char *name)
{
    hip_result result = stand_enter_bare(name);

    if (result == HIP_SUCCESS)
        return push(name);
    stand_lose(stand_device, result);
    return result;
}

hip_result stand_enter_release(const char *name, hip_result *out_failed)
{
    *out_failed = HIP_SUCCESS;
    if (stand_count() == 0)
        return HIP_NO_DEVICE;
    *out_failed = stand_count_call(name);
    const hip_result result = push(name);
    stand_lose(stand_device, *out_failed);
    return result;
}

hip_result stand_leave(int cuda)
{
    void *popped;
    const int result = stand_driver.cuCtxPopCurrent(&popped);

    return stand_result(cuda != 0 ? cuda : result);
}

hip_result stand_leave_release(int cuda, hip_result failed)
{
    const hip_result result = stand_leave(cuda);

    return failed != HIP_SUCCESS ? failed : result;
}
