/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What tests say to the HIP runtime that stands in: the interface of the CUDA driver for tests (fake.h), with
 * calls counted and failed as those of HIP, and the rest answered by the driver beneath.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "shim.h"
#include "stand-in.h"

enum { NAMES_MAX = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t calls, fail_at;
static hip_result fail_with, lost[STAND_DEVICES];
static const char *failed_name = "";
static char offence[256];
static struct {
    const char *name;
    uint64_t count;
} counts[NAMES_MAX];

hip_result stand_count_call(const char *name)
{
    hip_result result = HIP_SUCCESS;
    uint32_t i = 0;

    pthread_mutex_lock(&lock);
    while (i < NAMES_MAX - 1 && counts[i].name != NULL && strcmp(counts[i].name, name) != 0)
        i++;
    counts[i].name = name;
    counts[i].count++;
    if (++calls == fail_at) {
        failed_name = name;
        result = fail_with;
    }
    pthread_mutex_unlock(&lock);
    if (result != HIP_SUCCESS)
        stand_drain();
    return result;
}

static void offend(const char *format, ...)
{
    const char *words = getenv("FAKE_CUDA");
    va_list args;

    if (offence[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(offence, sizeof offence, format, args);
    va_end(args);
    if (words != NULL && strstr(words, "strict") != NULL) {
        fprintf(stderr, "the HIP runtime that stands in: %s\n", offence);
        abort();
    }
}

static bool is_sticky(hip_result result)
{
    return (result >= HIP_ILLEGAL_ADDRESS && result <= HIP_LAUNCH_FAILURE) || result == HIP_UNKNOWN;
}

void stand_lose(int device, hip_result result)
{
    pthread_mutex_lock(&lock);
    if (is_sticky(result) && lost[device] == HIP_SUCCESS)
        lost[device] = result;
    pthread_mutex_unlock(&lock);
}

hip_result stand_lost(int device, const char *name)
{
    pthread_mutex_lock(&lock);
    const hip_result result = lost[device];
    if (result != HIP_SUCCESS)
        offend("%s is called though device %d is lost", name, device);
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---------------------------------------------------------------- the driver beneath */

static const void *beneath(const char *symbol)
{
    const void *(*get)(void) = NULL;
    void *found = stand_library() != NULL ? dlsym(stand_library(), symbol) : NULL;

    memcpy(&get, &found, sizeof get);
    return get != NULL ? get() : NULL;
}

static const struct fake *fake_beneath(void)
{
    const struct fake *fake = beneath("fake_get");

    if (fake == NULL)
        abort(); /* nobody asks over a driver that is no test's */
    return fake;
}

/* ---------------------------------------------------------------- control */

static void reset(const struct fake_machine *machine)
{
    stand_forget_streams();
    stand_release_contexts();
    fake_beneath()->reset(machine);
    pthread_mutex_lock(&lock);
    memset(counts, 0, sizeof counts);
    memset(lost, 0, sizeof lost);
    calls = fail_at = 0;
    fail_with = HIP_SUCCESS;
    failed_name = "";
    offence[0] = '\0';
    pthread_mutex_unlock(&lock);
    stand_device = 0;
}

static void fail(uint64_t call, hip_result result)
{
    pthread_mutex_lock(&lock);
    fail_at = call;
    fail_with = result;
    pthread_mutex_unlock(&lock);
}

static uint64_t get_calls(void)
{
    pthread_mutex_lock(&lock);
    const uint64_t count = calls;
    pthread_mutex_unlock(&lock);
    return count;
}

/* By HIP's names, or by those that CUDA has beneath. */
static uint64_t calls_of(const char *name)
{
    if (strncmp(name, "cu", 2) == 0)
        return fake_beneath()->calls_of(name);
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
    return offence[0] != '\0' ? offence : fake_beneath()->offence();
}

/* The runtime's own contexts are nobody's leak. */
static uint32_t leaks(char *text, size_t size)
{
    stand_release_contexts();
    return fake_beneath()->leaks(text, size);
}

/* What a thread has is a device, and the first one is what it begins with. */
static void *current(uint32_t *depth)
{
    *depth = (uint32_t)stand_device;
    return NULL;
}

/* A caller is on a device, where one of CUDA has a context. */
static void *context_push(int ordinal)
{
    stand_device = ordinal;
    return NULL;
}

static void context_pop(void)
{
    stand_device = 0;
}

HIP_API const struct fake *fake_get(void);
const struct fake *fake_get(void)
{
    static const struct fake table = {.reset = reset,
                                      .fail = fail,
                                      .calls = get_calls,
                                      .calls_of = calls_of,
                                      .failed = failed,
                                      .offence = get_offence,
                                      .leaks = leaks,
                                      .current = current,
                                      .context_push = context_push,
                                      .context_pop = context_pop};

    return &table;
}

/* That of the library between this one and a driver, if it is there. */
HIP_API const struct shim *shim_get(void);
const struct shim *shim_get(void)
{
    return beneath("shim_get");
}
