/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The side effects of plugins: each act is called at every stage of a plugin's life and does its mischief at
 * one. The linker drops all acts but that of variant.c, so that the others leave no trace in the file.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "hostile.h"

/* variant.c declares the one that it wants. */
#define ACT(name)                                                                                            \
    act_fn name;                                                                                             \
    bool name(enum stage stage __attribute__((unused)), const struct attn_host *host __attribute__((unused)))

ACT(behave)
{
    return true;
}

ACT(print)
{
    return stage != AT_RUN || write(STDOUT_FILENO, "running\n", 8) != 0;
}

ACT(complain)
{
    return stage != AT_OPEN || write(STDERR_FILENO, "opening\n", 8) != 0;
}

ACT(read_input)
{
    char byte;
    return stage != AT_ENTRY || read(STDIN_FILENO, &byte, 1) != 2;
}

ACT(set_environment)
{
    return stage != AT_DEVICES || setenv("HOSTILE", "1", 1) == 0;
}

ACT(set_locale)
{
    if (stage == AT_QUERY)
        uselocale(newlocale(LC_NUMERIC_MASK, "C", (locale_t)0));
    return true;
}

ACT(round_down)
{
    return stage != AT_RUN || fesetround(FE_DOWNWARD) == 0;
}

ACT(set_umask)
{
    if (stage == AT_OPEN)
        umask(0);
    return true;
}

ACT(change_directory)
{
    return stage != AT_OPEN || chdir("/proc") == 0;
}

static void on_hostile_signal(int number)
{
    (void)number;
}

static bool handle(int number, void (*handler)(int))
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    return sigaction(number, &action, NULL) == 0;
}

ACT(handle_signals)
{
    return stage != AT_OPEN || handle(SIGUSR1, on_hostile_signal);
}

/* Put back before the call returns. */
ACT(handle_within)
{
    if (stage == AFTER_TASKS)
        return handle(SIGUSR1, SIG_DFL);
    return stage != AT_RUN || handle(SIGUSR1, on_hostile_signal);
}

ACT(block_signals)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return stage != AT_OPEN || pthread_sigmask(SIG_BLOCK, &set, NULL) == 0;
}

ACT(set_signal_stack)
{
    static char memory[65536];
    const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};

    return stage != AT_OPEN || sigaltstack(&stack, NULL) == 0;
}

ACT(set_timer)
{
    if (stage == AT_OPEN)
        alarm(1000);
    return true;
}

ACT(set_limit)
{
    struct rlimit limit;

    if (stage != AT_ENTRY || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return true;
    limit.rlim_cur -= 1;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

ACT(set_priority)
{
    return stage != AT_OPEN || setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 1) == 0;
}

ACT(set_name)
{
    return stage != AT_ENTRY || prctl(PR_SET_NAME, "hostile") == 0;
}

ACT(leave_child)
{
    char program[] = "true", *arguments[] = {program, NULL}, *none[] = {NULL};
    pid_t child;

    return stage != AT_DEVICES || posix_spawn(&child, "/bin/true", NULL, NULL, arguments, none) == 0;
}

ACT(leave_descriptor)
{
    return stage != AT_OPEN || open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0;
}

static void *sleep_long(void *arg)
{
    const struct timespec hour = {3600, 0};

    nanosleep(&hour, NULL);
    return arg;
}

ACT(leave_thread)
{
    pthread_t thread;

    return stage != AT_OPEN || pthread_create(&thread, NULL, sleep_long, NULL) == 0;
}

ACT(leave_memory)
{
    static void *volatile left;

    if (stage == AT_OPEN)
        left = malloc(64);
    return stage != AT_OPEN || left != NULL;
}

ACT(leave_mapping)
{
    return stage != AT_OPEN || mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

/* Of the first instance for all: its page is gone when the next one uses it. */
ACT(keep_host)
{
    static const struct attn_host *kept;

    if (kept == NULL)
        kept = host;
    if (stage == AT_OPEN)
        kept->log(kept->ctx, ATTN_LOG_DEBUG, "", "opened");
    return true;
}

/* A copy is no better: it is the functions that must not be called. */
ACT(copy_host)
{
    static struct attn_host copy;

    if (copy.ctx == NULL)
        copy = *host;
    if (stage == AT_OPEN)
        copy.log(copy.ctx, ATTN_LOG_DEBUG, "", "opened");
    return true;
}

static void *log_late(void *arg)
{
    const struct timespec moment = {0, 5000000};
    struct attn_host host = *(const struct attn_host *)arg;

    free(arg);
    nanosleep(&moment, NULL);
    host.log(host.ctx, ATTN_LOG_DEBUG, "", "late");
    return NULL;
}

ACT(log_after_finish)
{
    pthread_t thread;

    if (stage != AT_FINISH)
        return true;
    struct attn_host *copy = malloc(sizeof *copy);
    if (copy == NULL)
        return false;
    *copy = *host;
    return pthread_create(&thread, NULL, log_late, copy) == 0 && pthread_detach(thread) == 0;
}

static void at_exit(void)
{
}

ACT(handle_exit)
{
    return stage != AT_ENTRY || atexit(at_exit) == 0;
}

ACT(handle_fork)
{
    return stage != AT_OPEN || pthread_atfork(at_exit, NULL, NULL) == 0;
}

/* Never does: that it could is enough. */
ACT(ask_environment)
{
    return stage != AT_OPEN || host != NULL || getenv("HOSTILE") == NULL;
}

ACT(may_abort)
{
    if (stage == AT_OPEN && host == NULL)
        abort();
    return true;
}

ACT(end_process)
{
    if (stage == AT_CLOSE)
        _exit(0);
    return true;
}

ACT(crash)
{
    return stage != AT_FINISH || kill(getpid(), SIGSEGV) == 0;
}

ACT(need_output)
{
    return stage != AT_ENTRY || fcntl(STDOUT_FILENO, F_GETFD) >= 0;
}

/* The first instance that ends takes away what all of them need. */
ACT(share_state)
{
    static bool there;

    if (stage == AT_ENTRY || stage == AT_FINISH)
        there = stage == AT_ENTRY;
    return there || stage != AT_RUN;
}
