/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Traits that belong to the process or to the calling thread. */
#define _GNU_SOURCE
#include <errno.h>
#include <fenv.h>
#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "trace.h"

static void read_environment(char *text, size_t size)
{
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++)
        add_line(text, size, "%s", *variable);
}

static void read_locale(char *text, size_t size)
{
    const char *name = setlocale(LC_ALL, NULL);

    add_line(text, size, "locale %s", name != NULL ? name : "none");
    add_line(text, size, "thread's locale %s", uselocale((locale_t)0) == LC_GLOBAL_LOCALE ? "global" : "own");
}

/* Rounding, flushing of small numbers, and which exceptions trap; not the flags that every sum may raise. */
static void read_float(char *text, size_t size)
{
    add_line(text, size, "rounding %d", fegetround());
#if defined(__x86_64__)
    uint16_t x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    add_line(text, size, "MXCSR %04x, x87 %04x", _mm_getcsr() & 0xffc0U, (unsigned)x87);
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    add_line(text, size, "FPCR %08llx", (unsigned long long)fpcr);
#endif
}

static void read_umask(char *text, size_t size)
{
    mode_t mask = umask(077);

    umask(mask);
    add_line(text, size, "umask %03o", (unsigned)mask);
}

static void read_directory(char *text, size_t size)
{
    char path[4096];

    add_line(text, size, "directory %s", getcwd(path, sizeof path) != NULL ? path : "unknown");
}

/* Of the kernel's interface, set by the C library as it likes. */
#define FLAG_RESTORER 0x04000000U

/* Signals that the C library keeps for itself cannot be asked for. */
static void read_handlers(char *text, size_t size)
{
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        uint64_t address = 0;
        if (sigaction(number, NULL, &action) != 0)
            continue;
        memcpy(&address, &action.sa_handler, sizeof action.sa_handler);
        add_line(text, size, "signal %d: handler %llx flags %x", number, (unsigned long long)address,
                 (unsigned)action.sa_flags & ~FLAG_RESTORER);
    }
}

static void read_mask(char *text, size_t size)
{
    sigset_t blocked, pending;

    sigemptyset(&blocked);
    sigemptyset(&pending);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    sigpending(&pending);
    for (int number = 1; number < NSIG; number++) {
        if (sigismember(&blocked, number) == 1)
            add_line(text, size, "signal %d is blocked", number);
        if (sigismember(&pending, number) == 1)
            add_line(text, size, "signal %d is pending", number);
    }
}

static void read_signal_stack(char *text, size_t size)
{
    stack_t stack = {0};

    sigaltstack(NULL, &stack);
    add_line(text, size, "stack %p of %zu bytes, flags %d", stack.ss_sp, stack.ss_size, stack.ss_flags);
}

/* Set or not: the rest of a running timer is another one each time. */
static void read_timers(char *text, size_t size)
{
    static const int timers[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};

    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        struct itimerval value = {0};
        getitimer((__itimer_which_t)timers[i], &value);
        bool running = value.it_value.tv_sec != 0 || value.it_value.tv_usec != 0;
        add_line(text, size, "timer %zu: %s", i, running ? "running" : "off");
    }
}

static void read_limits(char *text, size_t size)
{
    for (int number = 0; number < RLIM_NLIMITS; number++) {
        struct rlimit limit = {0, 0};
        getrlimit((__rlimit_resource_t)number, &limit);
        add_line(text, size, "limit %d: %llu of %llu", number, (unsigned long long)limit.rlim_cur,
                 (unsigned long long)limit.rlim_max);
    }
}

static void read_priority(char *text, size_t size)
{
    struct sched_param parameter = {0};
    cpu_set_t set;

    CPU_ZERO(&set);
    errno = 0;
    add_line(text, size, "nice value %d", getpriority(PRIO_PROCESS, 0));
    sched_getparam(0, &parameter);
    add_line(text, size, "scheduler %d priority %d", sched_getscheduler(0), parameter.sched_priority);
    sched_getaffinity(0, sizeof set, &set);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            add_line(text, size, "may run on CPU %zu", cpu);
}

static void read_process(char *text, size_t size)
{
    char name[17] = "";
    int on_death = -1;

    prctl(PR_GET_NAME, name);
    prctl(PR_GET_PDEATHSIG, &on_death);
    add_line(text, size, "name %s", name);
    add_line(text, size, "signal on the parent's death %d", on_death);
    add_line(text, size, "dumpable %d", prctl(PR_GET_DUMPABLE));
    add_line(text, size, "timer slack %d", prctl(PR_GET_TIMERSLACK));
    add_line(text, size, "no new privileges %d", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    add_line(text, size, "personality %x", (unsigned)personality(0xffffffff));
    add_line(text, size, "user %u %u, group %u %u", getuid(), geteuid(), getgid(), getegid());
    add_line(text, size, "process group %d, session %d", getpgrp(), getsid(0));
}

static void read_children(char *text, size_t size)
{
    siginfo_t info;

    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0)
        add_line(text, size, "there are child processes");
}

const struct trait process_traits[] = {
    {"standard output", TRAIT_STAGE, read_output},
    {"standard error", TRAIT_STAGE, read_errors},
    {"standard input", TRAIT_STAGE, read_input},
    {"environment", TRAIT_WITHIN, read_environment},
    {"locale", TRAIT_WITHIN, read_locale},
    {"floating-point control", TRAIT_STAGE, read_float},
    {"umask", TRAIT_WITHIN, read_umask},
    {"working directory", TRAIT_WITHIN, read_directory},
    {"signal handlers", TRAIT_WITHIN, read_handlers},
    {"signal mask", TRAIT_STAGE, read_mask},
    {"signal stack", TRAIT_STAGE, read_signal_stack},
    {"timers", TRAIT_WITHIN, read_timers},
    {"limits", TRAIT_WITHIN, read_limits},
    {"priority", TRAIT_STAGE, read_priority},
    {"process attributes", TRAIT_WITHIN, read_process},
    {"child processes", TRAIT_STAGE, read_children},
    {"descriptors", TRAIT_END, read_descriptors},
    {"threads", TRAIT_END, read_threads},
};
const uint32_t process_trait_count = sizeof process_traits / sizeof process_traits[0];
