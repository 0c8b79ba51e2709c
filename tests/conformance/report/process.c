/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Judges in a child process, so that a report comes to its end whatever a plugin does to its process. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "output.h"
#include "tap.h"

/* Far above any case, even under an emulator. */
enum { PATIENCE_SECONDS = 300 };

/* The process is lost: say which case and which buffer, and end. */
static void on_signal(int signal, siginfo_t *info, void *context)
{
    static atomic_flag entered = ATOMIC_FLAG_INIT;

    while (atomic_flag_test_and_set(&entered))
        pause(); /* several threads may fault at once, and the first one reports */
    alarm(10);   /* in case the report faults too */
    const char *name = arena_find(info->si_addr);
    bool memory = signal == SIGSEGV || signal == SIGBUS;

    (void)context;
    if (tap->trying)
        _exit(EXIT_NO);
    tap_fail("signal %d (%s)%s%s", signal, strsignal(signal),
             memory ? ": forbidden access at or next to " : "",
             memory ? (name != NULL ? name : "an address that no buffer has") : "");
    fflush(output_stream());
    tap->reported = true;
    _exit(EXIT_NO);
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

/* Kills a child that stands still, and itself with the child where the user wants the end. */
static int wait_for(pid_t child, const sigset_t *watched)
{
    const struct timespec second = {1, 0};
    uint64_t beats = 0;
    int status = 0, still = 0;

    while (waitpid(child, &status, WNOHANG) != child) {
        progress_show();
        int signal = sigtimedwait(watched, NULL, &second);
        if (signal > 0 && signal != SIGCHLD) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            progress_end();
            plugin_path_remove();
            exit(128 + signal);
        }
        still = tap->beats == beats && signal < 0 ? still + 1 : signal < 0 ? 0 : still;
        beats = tap->beats;
        if (still == PATIENCE_SECONDS) {
            tap_fail("no answer within %d seconds", PATIENCE_SECONDS);
            tap->reported = true;
            kill(child, SIGKILL);
        }
    }
    return status;
}

bool process_run(int (*work)(void *arg), void *arg)
{
    sigset_t watched, before;

    tap->finished = false;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGTERM);
    sigaddset(&watched, SIGHUP);
    sigprocmask(SIG_BLOCK, &watched, &before);
    pid_t parent = getpid(), child = fork();
    if (child < 0) {
        complain("no child process: %s", strerror(errno));
        tap->code = EXIT_NO;
    } else if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(EXIT_NO);
        catch_signals();
        tap->code = work(arg);
        tap->finished = true;
        exit(0);
    }
    int status = child > 0 ? wait_for(child, &watched) : 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (tap->reported || child < 0)
        return false;
    if (tap->trying)
        return tap->code == 0;
    if (tap->finished && status == 0)
        return tap->code == 0;
    /* A thread that faults with signals blocked kills the process at once. */
    if (tap->finished)
        tap_begin(NULL, "end", "", 0);
    if (WIFSIGNALED(status))
        tap_fail("died of signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        tap_fail("the process was ended with status %d", WEXITSTATUS(status));
    return false;
}

bool process_try(int (*work)(void *arg), void *arg)
{
    tap->trying = true;
    bool good = process_run(work, arg);
    tap->trying = false;
    return good;
}
