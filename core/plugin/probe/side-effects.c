/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Takes and compares the state of a process that no plugin may change. */
#define _GNU_SOURCE
#include "plugin/probe/side-effects.h"

#include <dirent.h>
#include <fenv.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static uint32_t count_entries(const char *directory)
{
    DIR *entries = opendir(directory);
    uint32_t count = 0;

    if (entries == NULL)
        return 0;
    while (readdir(entries) != NULL)
        count++;
    closedir(entries);
    return count;
}

/* A thread that was joined is in /proc for a moment still. */
static uint32_t count_threads(uint32_t expected)
{
    static const char tasks[] = "/proc/self/task";
    const struct timespec moment = {0, 1000000};
    uint32_t count = count_entries(tasks);

    for (int i = 0; i < 20 && count > expected && expected > 0; i++) {
        nanosleep(&moment, NULL);
        count = count_entries(tasks);
    }
    return count;
}

static uint64_t hash_environment(void)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (char **variable = environ; variable != NULL && *variable != NULL; variable++)
        for (const char *p = *variable;; p++) {
            hash = (hash ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
            if (*p == '\0')
                break;
        }
    return hash;
}

static unsigned control_word(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & 0x8040u; /* flush to zero, denormals are zero */
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return (unsigned)control;
#else
    return 0;
#endif
}

static void read_state(struct side_effects *state, uint32_t threads)
{
    const char *locale = setlocale(LC_ALL, NULL);

    state->threads = count_threads(threads);
    state->descriptors = count_entries("/proc/self/fd");
    state->environment = hash_environment();
    sigprocmask(SIG_SETMASK, NULL, &state->mask);
    for (int i = 1; i < SIDE_EFFECTS_SIGNALS; i++) {
        struct sigaction action;
        state->handlers[i] = sigaction(i, NULL, &action) == 0 ? action.sa_handler : SIG_DFL;
    }
    state->umask = umask(0);
    umask(state->umask);
    state->rounding = fegetround();
    state->exceptions = fegetexcept();
    state->control = control_word();
    snprintf(state->locale, sizeof state->locale, "%s", locale != NULL ? locale : "");
    if (getcwd(state->directory, sizeof state->directory) == NULL)
        state->directory[0] = '\0';
}

void side_effects_begin(struct side_effects *state)
{
    memset(state, 0, sizeof *state);
    state->output = memfd_create("output", MFD_CLOEXEC);
    if (state->output >= 0) {
        (void)dup2(state->output, STDOUT_FILENO);
        (void)dup2(state->output, STDERR_FILENO);
    }
    read_state(state, 0);
}

static void tell_output(const struct side_effects *before, side_effects_tell_fn tell, void *user)
{
    char text[96], start[49];
    struct stat status;

    fflush(stdout);
    if (before->output < 0 || fstat(before->output, &status) != 0 || status.st_size == 0)
        return;
    ssize_t count = pread(before->output, start, sizeof start - 1, 0);
    start[count > 0 ? count : 0] = '\0';
    for (char *p = start; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
            *p = ' ';
    snprintf(text, sizeof text, "prints \"%s\"", start);
    tell(user, text);
}

static void tell_signals(const struct side_effects *before, const struct side_effects *now,
                         side_effects_tell_fn tell, void *user)
{
    char text[64];

    for (int i = 1; i < SIDE_EFFECTS_SIGNALS; i++) {
        if (sigismember(&before->mask, i) != sigismember(&now->mask, i)) {
            snprintf(text, sizeof text, "changes the signal mask (signal %d)", i);
            tell(user, text);
            break;
        }
    }
    for (int i = 1; i < SIDE_EFFECTS_SIGNALS; i++) {
        if (before->handlers[i] != now->handlers[i]) {
            snprintf(text, sizeof text, "leaves a handler of signal %d", i);
            tell(user, text);
            break;
        }
    }
}

void side_effects_end(const struct side_effects *before, side_effects_tell_fn tell, void *user)
{
    struct side_effects now;
    char text[96];

    memset(&now, 0, sizeof now);
    tell_output(before, tell, user);
    read_state(&now, before->threads);
    if (now.threads > before->threads) {
        snprintf(text, sizeof text, "keeps %u threads after finish", now.threads - before->threads);
        tell(user, text);
    }
    if (waitpid(-1, NULL, WNOHANG) == 0)
        tell(user, "leaves a child process");
    if (now.descriptors > before->descriptors) {
        snprintf(text, sizeof text, "leaks %u descriptors", now.descriptors - before->descriptors);
        tell(user, text);
    }
    if (now.environment != before->environment)
        tell(user, "changes the environment");
    tell_signals(before, &now, tell, user);
    if (now.umask != before->umask)
        tell(user, "changes the umask");
    if (now.rounding != before->rounding || now.exceptions != before->exceptions ||
        now.control != before->control)
        tell(user, "changes the floating-point mode");
    if (strcmp(now.locale, before->locale) != 0)
        tell(user, "changes the locale");
    if (strcmp(now.directory, before->directory) != 0)
        tell(user, "changes the working directory");
}
