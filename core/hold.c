/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Holds off writers of a file with a lease: their open waits for the release. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "own-image.h"

/*
 * Tells that somebody waits. Nobody needs to know, for the release comes at once; and by default it does
 * nothing, should it get out of here.
 */
#define WAITED SIGURG

/* A writer may be at its end: that long it is waited for. */
enum { TRIES = 50 };

/* The signal goes to this thread, which does not take it. */
static void hold_back(struct attn__hold *hold)
{
    const struct f_owner_ex owner = {F_OWNER_TID, gettid()};
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, WAITED);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    hold->blocked = sigismember(&before, WAITED) == 1;
    sigpending(&set);
    hold->pending = sigismember(&set, WAITED) == 1;
    (void)fcntl(hold->fd, F_SETOWN_EX, &owner);
    (void)fcntl(hold->fd, F_SETSIG, WAITED);
}

static void let_go(const struct attn__hold *hold)
{
    static const struct timespec no_time;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, WAITED);
    if (!hold->pending) /* else it belongs to the program */
        while (sigtimedwait(&set, NULL, &no_time) < 0 && errno == EINTR)
            continue;
    /* Only that: what a plugin does to the other signals is to be seen. */
    if (!hold->blocked)
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

bool attn__hold_file(struct attn__hold *hold, int fd)
{
    static const struct timespec moment = {0, 1000000};
    int error = EAGAIN;
    *hold = (struct attn__hold){.fd = fd};
    hold_back(hold);
    for (int i = 0; i < TRIES && error == EAGAIN; i++) {
        error = fcntl(fd, F_SETLEASE, F_RDLCK) == 0 ? 0 : errno;
        if (error == EAGAIN)
            nanosleep(&moment, NULL);
    }
    hold->leased = error == 0;
    if (error == EAGAIN)
        let_go(hold);
    return error != EAGAIN;
}

void attn__release_file(struct attn__hold *hold)
{
    if (hold->leased)
        (void)fcntl(hold->fd, F_SETLEASE, F_UNLCK);
    let_go(hold);
}
