/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* TAP on stdout: a line per case and target, how to repeat a failure, and a closing line even after a crash.
 */
#define _GNU_SOURCE
#include "conform.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Lies in memory that the parent process sees too, because it reports what the child cannot. */
struct tap {
    uint32_t passed, failed, skipped;
    bool reported; /* the child has said why it ends */
    char title[PROBLEM_TEXT + 256];
    char again[PROBLEM_TEXT + 256];
};

static struct tap *tap;

void tap_begin(const struct target *target, const char *kind, const char *text, uint64_t seed)
{
    snprintf(tap->title, sizeof tap->title, "%s %s %s: %s seed %llu", target->name, target->level, kind, text,
             (unsigned long long)seed);
    snprintf(tap->again, sizeof tap->again,
             "check-kernels --backend '%s' --level '%s' --kind %s --filter '%s' --seed %llu", target->name,
             target->level, kind, text, (unsigned long long)seed);
}

static uint32_t number(void)
{
    return tap->passed + tap->failed + tap->skipped;
}

void tap_pass(void)
{
    tap->passed++;
    printf("ok %u - %s\n", number(), tap->title);
}

void tap_skip(const char *why)
{
    tap->skipped++;
    printf("ok %u - %s # SKIP %s\n", number(), tap->title, why);
}

void tap_fail(const char *format, ...)
{
    va_list arguments;
    char text[1024];

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tap->failed++;
    printf("not ok %u - %s\n# %s\n# again: %s\n", number(), tap->title, text, tap->again);
    fflush(stdout);
}

int tap_finish(void)
{
    printf("1..%u\n%u passed, %u failed, %u skipped\n", number(), tap->passed, tap->failed, tap->skipped);
    fflush(stdout);
    tap->reported = true;
    return tap->failed == 0 && tap->passed > 0 ? 0 : 1;
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

static void catch_signals(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &action, NULL);
}

/* Reports the end of a child that could not do so itself: a thread that faults with signals blocked kills it.
 */
static int report_child(int status)
{
    if (!tap->reported && (WIFSIGNALED(status) || WEXITSTATUS(status) != 2)) {
        if (WIFSIGNALED(status))
            tap_fail("died of signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
        else
            tap_fail("the process was ended with status %d", WEXITSTATUS(status));
        printf("Bail out! the process is gone\n");
        return tap_finish();
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

void tap_start(void)
{
    int status = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    tap = mmap(NULL, sizeof *tap, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tap == MAP_FAILED) {
        fprintf(stderr, "check-kernels: out of memory\n");
        exit(2);
    }
    memset(tap, 0, sizeof *tap);
    pid_t child = fork();
    if (child == 0) {
        catch_signals();
        return;
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (child < 0) {
        fprintf(stderr, "check-kernels: no child process\n");
        exit(2);
    }
    exit(report_child(status));
}
