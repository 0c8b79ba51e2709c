/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes trouble when the plugin that it is linked into is loaded; -DTROUBLE=... says which. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SEGFAULT = 1,
    ABORT,
    EXIT,
    HANG,
    FORK,
    PRINT,
    THREAD,
    DESCRIPTOR,
    ENVIRONMENT,
    SIGNALS,
    HUNGRY,
    SPIN,
    STOP,
    FLOOD,
    CLOSE,
    SESSION,
    GROUP,
    EXECUTE,
    HANDLER,
    UMASK,
    DAEMON,
    VFORK,
    TOUCH,
    PARENT
};

/* Something of this file. */
static const char here[] = "trouble";

static void *wait_for_ever(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static void start_thread(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, wait_for_ever, NULL) == 0)
        pthread_detach(thread);
}

static void block_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGRTMAX); /* the last one is looked at too */
    sigprocmask(SIG_BLOCK, &set, NULL);
}

/* A child that outlives the constructor and keeps every descriptor open. */
static void leave_child(void)
{
    if (fork() == 0) {
        alarm(10); /* of a test that forgets it */
        wait_for_ever(NULL);
    }
}

/* More memory than any plugin needs for being loaded. */
static void eat(void)
{
    const size_t piece = (size_t)1 << 30;

    for (int i = 0; i < 16; i++)
        if (mmap(NULL, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            abort();
}

/* A child that leaves the process group, so that a kill of the group does not reach it. */
static void leave_session(void)
{
    if (fork() == 0) {
        (void)setsid();
        alarm(10);
        wait_for_ever(NULL);
    }
}

/* A grandchild of another session, whose parent is gone. */
static void leave_daemon(void)
{
    pid_t child = fork();

    if (child == 0) {
        (void)setsid();
        if (fork() == 0) {
            alarm(10);
            wait_for_ever(NULL);
        }
        _exit(0);
    }
    (void)waitpid(child, NULL, 0);
}

/* Waits without a right to be interrupted, longer than a probe may take, as for a slow disk. */
static void wait_for_disk(void)
{
    const struct timespec time = {2, 700000000};
    pid_t child = vfork();

    if (child == 0) {
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
        _exit(0);
    }
    (void)waitpid(child, NULL, 0);
}

/* Its own file gets another time, as if somebody replaced it just now. */
static void touch(void)
{
    Dl_info info;

    if (dladdr(here, &info) != 0)
        (void)utimensat(AT_FDCWD, info.dli_fname, NULL, 0);
}

/* Text without end. */
static void flood(void)
{
    static char text[1 << 16];

    memset(text, 'x', sizeof text);
    while (write(STDOUT_FILENO, text, sizeof text) > 0)
        continue;
    wait_for_ever(NULL);
}

static void close_all(void)
{
    for (int fd = 0; fd < 256; fd++)
        (void)close(fd);
}

static void execute(void)
{
    char *const arguments[] = {(char *)(uintptr_t) "true", NULL};

    (void)execv("/bin/true", arguments);
}

static void spin(void)
{
    for (volatile int i = 0;; i++)
        continue;
}

__attribute__((constructor)) static void make_trouble(void)
{
    switch (TROUBLE) {
    case SEGFAULT:
        (void)raise(SIGSEGV);
        break;
    case ABORT:
        abort();
    case EXIT:
        _exit(0);
    case HANG:
        wait_for_ever(NULL);
        break;
    case FORK:
        leave_child();
        break;
    case PRINT:
        puts(here);
        fflush(stdout);
        break;
    case THREAD:
        start_thread();
        break;
    case DESCRIPTOR:
        (void)!open("/dev/null", O_RDONLY);
        break;
    case ENVIRONMENT:
        setenv("MOCK_TROUBLE", "1", 1);
        break;
    case SIGNALS:
        block_signals();
        break;
    case HUNGRY:
        eat();
        break;
    case SPIN:
        spin();
        break;
    case STOP:
        (void)raise(SIGSTOP);
        break;
    case FLOOD:
        flood();
        break;
    case CLOSE:
        close_all();
        break;
    case SESSION:
        leave_session();
        break;
    case GROUP:
        (void)kill(0, SIGKILL);
        break;
    case EXECUTE:
        execute();
        break;
    case HANDLER:
        (void)signal(SIGUSR2, SIG_IGN);
        break;
    case UMASK:
        (void)umask(0);
        break;
    case DAEMON:
        leave_daemon();
        break;
    case VFORK:
        wait_for_disk();
        break;
    case TOUCH:
        touch();
        break;
    case PARENT:
        (void)kill(getppid(), SIGKILL);
        wait_for_ever(NULL);
        break;
    }
}
