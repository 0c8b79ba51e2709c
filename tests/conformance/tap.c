/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* TAP on stdout: a line per case and target, how to repeat a failure, and a closing line even after a crash.
 */
#define _GNU_SOURCE
#include "conform.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint32_t passed, failed, skipped;
static char title[PROBLEM_TEXT + 256];
static char again[PROBLEM_TEXT + 256];

void tap_begin(const struct target *target, const char *kind, const char *text, uint64_t seed)
{
    snprintf(title, sizeof title, "%s %s %s: %s seed %llu", target->name, target->level, kind, text,
             (unsigned long long)seed);
    snprintf(again, sizeof again,
             "check-kernels --backend '%s' --level '%s' --kind %s --filter '%s' --seed %llu", target->name,
             target->level, kind, text, (unsigned long long)seed);
}

static uint32_t number(void)
{
    return passed + failed + skipped;
}

void tap_pass(void)
{
    passed++;
    printf("ok %u - %s\n", number(), title);
}

void tap_skip(const char *why)
{
    skipped++;
    printf("ok %u - %s # SKIP %s\n", number(), title, why);
}

void tap_fail(const char *format, ...)
{
    va_list arguments;
    char text[1024];

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    failed++;
    printf("not ok %u - %s\n# %s\n# again: %s\n", number(), title, text, again);
    fflush(stdout);
}

int tap_finish(void)
{
    printf("1..%u\n%u passed, %u failed, %u skipped\n", number(), passed, failed, skipped);
    fflush(stdout);
    return failed == 0 && passed > 0 ? 0 : 1;
}

/* The process is lost: say which case and which buffer, close the report, end. */
static void on_signal(int signal, siginfo_t *info, void *context)
{
    static atomic_flag entered = ATOMIC_FLAG_INIT;

    while (atomic_flag_test_and_set(&entered))
        pause(); /* several threads may fault at once, and the first one reports */
    alarm(10);   /* in case the report faults too */
    const char *name = arena_find(info->si_addr);
    bool memory = signal == SIGSEGV || signal == SIGBUS;

    (void)context;
    tap_fail("signal %d (%s)%s%s", signal, strsignal(signal),
             memory ? ": forbidden access at or next to " : "",
             memory ? (name != NULL ? name : "an address that no buffer has") : "");
    printf("Bail out! the process cannot go on after the signal\n");
    tap_finish();
    _exit(1);
}

void tap_catch_signals(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &action, NULL);
}
