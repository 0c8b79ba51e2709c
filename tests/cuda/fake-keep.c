/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The fake driver as other programs meet it. FAKE_CUDA is a list of words: devices=N, arch=NN, version=N,
 * memory=MIB and units=N (multiprocessors) describe the machine; `keeps` leaves descriptors and threads in
 * the process once, as a real driver does; `leaks-descriptor` and `leaks-thread` leave one for every context
 * that is opened, as a fault of a plugin would; `strict` ends the program at the first offence, for nobody
 * asks there.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake-state.h"

enum { KEPT_DESCRIPTORS = 5, KEPT_THREADS = 2 };

static bool says(const char *word)
{
    const char *words = getenv("FAKE_CUDA");

    return words != NULL && strstr(words, word) != NULL;
}

static int number(const char *key, int fallback)
{
    const char *words = getenv("FAKE_CUDA"), *at = words != NULL ? strstr(words, key) : NULL;

    return at != NULL ? atoi(at + strlen(key)) : fallback;
}

__attribute__((constructor)) static void read_variable(void)
{
    fake_machine.devices = number("devices=", fake_machine.devices);
    fake_machine.version = number("version=", fake_machine.version);
    fake_machine.memory = (uint64_t)number("memory=", 1024) << 20;
    fake_machine.units = number("units=", 0);
    const int arch = number("arch=", 10 * fake_machine.major + fake_machine.minor);
    fake_machine.major = arch / 10;
    fake_machine.minor = arch % 10;
}

static void keep_descriptor(void)
{
    if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 0)
        fake_offend("no descriptor to keep");
}

static void *sleep_on(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static void keep_thread(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, sleep_on, NULL) != 0 || pthread_detach(thread) != 0)
        fake_offend("no thread to keep");
}

void fake_keep_at_start(void)
{
    static bool started;

    if (started || !says("keeps"))
        return;
    started = true;
    for (int i = 0; i < KEPT_DESCRIPTORS; i++)
        keep_descriptor();
    for (int i = 0; i < KEPT_THREADS; i++)
        keep_thread();
}

bool fake_is_strict(void)
{
    return says("strict");
}

void fake_keep_at_open(void)
{
    if (says("leaks-descriptor"))
        keep_descriptor();
    if (says("leaks-thread"))
        keep_thread();
}
