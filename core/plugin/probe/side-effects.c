/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Measures and compares what no plugin may change in its process. */
#define _GNU_SOURCE
#include "plugin/probe/side-effects.h"

#include <dirent.h>
#include <fenv.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static uint64_t hash(uint64_t start, const void *bytes, size_t size)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < size; i++)
        start = (start ^ p[i]) * UINT64_C(0x100000001b3);
    return start;
}

static uint64_t hash_text(uint64_t start, const char *text)
{
    return text != NULL ? hash(start, text, strlen(text) + 1) : start;
}

static uint64_t count_entries(const char *path)
{
    uint64_t count = 0;
    DIR *directory = opendir(path);
    while (directory != NULL && readdir(directory) != NULL)
        count++;
    if (directory != NULL)
        closedir(directory);
    return count;
}

static uint64_t read_output(void)
{
    struct stat status;
    fflush(stdout);
    return fstat(STDOUT_FILENO, &status) == 0 ? (uint64_t)status.st_size : 0;
}

static uint64_t read_threads(void)
{
    return count_entries("/proc/self/task");
}

static uint64_t read_descriptors(void)
{
    return count_entries("/proc/self/fd");
}

static uint64_t read_environment(void)
{
    uint64_t value = 0;
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++)
        value = hash_text(value + 1, *variable);
    return value;
}

static uint64_t read_signal_mask(void)
{
    sigset_t mask;
    uint64_t value = 0;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int i = 1; i < 64; i++)
        value |= (uint64_t)(sigismember(&mask, i) == 1) << i;
    return value;
}

static uint64_t read_signal_handlers(void)
{
    struct sigaction action;
    uint64_t value = 0;
    for (int i = 1; i <= 64; i++)
        if (sigaction(i, NULL, &action) == 0)
            value = hash(value + 1, &action.sa_handler, sizeof action.sa_handler);
    return value;
}

static uint64_t read_umask(void)
{
    const mode_t mask = umask(0);
    umask(mask);
    return mask;
}

/* Rounding, traps, flush to zero, denormals are zero; not the flags of what happened. */
static uint64_t read_floating_point(void)
{
    uint64_t control = 0;
#if defined(__x86_64__)
    control = __builtin_ia32_stmxcsr() & 0x8040U;
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
#endif
    return control ^ (uint64_t)fegetround() << 32 ^ (uint64_t)fegetexcept() << 48;
}

static uint64_t read_locale(void)
{
    return hash_text(0, setlocale(LC_ALL, NULL));
}

static uint64_t read_directory(void)
{
    char path[PATH_MAX];
    return hash_text(0, getcwd(path, sizeof path));
}

static const struct {
    const char *text;
    uint64_t (*read)(void);
    bool may_shrink; /* only more than before is an effect */
} effects[] = {
    {"prints", read_output, true},
    {"keeps threads after finish", read_threads, true},
    {"leaks descriptors", read_descriptors, true},
    {"changes the environment", read_environment, false},
    {"changes the signal mask", read_signal_mask, false},
    {"leaves a signal handler", read_signal_handlers, false},
    {"changes the umask", read_umask, false},
    {"changes the floating-point mode", read_floating_point, false},
    {"changes the locale", read_locale, false},
    {"changes the working directory", read_directory, false},
};
enum { EFFECTS = sizeof effects / sizeof effects[0] };

static uint64_t before[EFFECTS];

static bool is_effect(int index)
{
    const uint64_t now = effects[index].read();
    return effects[index].may_shrink ? now > before[index] : now != before[index];
}

void side_effects_begin(void)
{
    const int output = memfd_create("output", MFD_CLOEXEC);
    (void)dup2(output, STDOUT_FILENO);
    (void)dup2(output, STDERR_FILENO);
    for (int i = 0; i < EFFECTS; i++)
        before[i] = effects[i].read();
}

void side_effects_end(void (*say)(const char *text))
{
    const struct timespec moment = {0, 1000000};
    for (int i = 0; i < EFFECTS; i++) {
        /* A thread that was joined is in /proc for a moment still. */
        for (int wait = 0; effects[i].read == read_threads && wait < 20 && is_effect(i); wait++)
            nanosleep(&moment, NULL);
        if (is_effect(i))
            say(effects[i].text);
    }
}
