/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Measures and compares what no plugin may change in its process. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "plugin/probe/probe.h"
#include "plugin/probe/worker.h"

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
    uint64_t value = 1;
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++)
        value = attn__hash(value, *variable, strlen(*variable) + 1);
    return value;
}

static uint64_t read_signals(void)
{
    struct sigaction action;
    sigset_t mask;
    uint64_t value = 1;
    sigemptyset(&mask);
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int i = 1; i <= 64; i++) {
        value = value * 2 + (sigismember(&mask, i) == 1);
        if (sigaction(i, NULL, &action) == 0)
            value = attn__hash(value, &action.sa_handler, sizeof action.sa_handler);
    }
    return value;
}

static uint64_t read_umask(void)
{
    const mode_t mask = umask(0);
    umask(mask);
    return mask;
}

/* Rounding mode, traps, flush-to-zero and denormals-are-zero, but not the sticky exception flags. */
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
    const char *locale = setlocale(LC_ALL, NULL);
    return locale != NULL ? attn__hash(1, locale, strlen(locale)) : 0;
}

static const struct {
    const char *text;
    uint64_t (*read)(void);
} effects[] = {
    {"prints to stdout or stderr", read_output},
    {"keeps threads after finish", read_threads},
    {"leaks descriptors", read_descriptors},
    {"changes the environment", read_environment},
    {"changes the signal mask or handlers", read_signals},
    {"changes the umask", read_umask},
    {"changes the floating-point mode", read_floating_point},
    {"changes the locale", read_locale},
};
enum { THREADS = 1, EFFECTS = sizeof effects / sizeof effects[0] };

static uint64_t before[EFFECTS];

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
    /* A thread that was joined is in /proc for a moment still. */
    for (int i = 0; i < 20 && read_threads() != before[THREADS]; i++)
        nanosleep(&moment, NULL);
    for (int i = 0; i < EFFECTS; i++)
        if (effects[i].read() != before[i])
            say(effects[i].text);
}
