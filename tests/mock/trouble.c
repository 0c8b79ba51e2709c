/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes trouble when the plugin that it is linked into is loaded; -DTROUBLE=... says which. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SEGFAULT = 1, ABORT, EXIT, HANG, FORK, PRINT, THREAD, DESCRIPTOR, ENVIRONMENT, SIGNALS, HUNGRY };

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
    sigaddset(&set, SIGUSR1);
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
        puts("trouble");
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
    }
}
