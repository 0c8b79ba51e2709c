/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks the signals that a write can raise, and discards those that it raised. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/quiet.h"

static const int raised[] = {SIGPIPE, SIGXFSZ};
enum { RAISED = sizeof raised / sizeof raised[0] };

void attn__quiet_begin(struct attn__quiet *quiet)
{
    sigset_t set;
    int saved = errno;
    sigemptyset(&set);
    for (int i = 0; i < RAISED; i++)
        sigaddset(&set, raised[i]);
    pthread_sigmask(SIG_BLOCK, &set, &quiet->before);
    sigpending(&quiet->pending);
    errno = saved;
}

void attn__quiet_end(const struct attn__quiet *quiet)
{
    static const struct timespec no_time;
    sigset_t now, own;
    int saved = errno;
    sigpending(&now);
    sigemptyset(&own);
    /* Signals that were pending before are the program's. */
    for (int i = 0; i < RAISED; i++)
        if (sigismember(&now, raised[i]) == 1 && sigismember(&quiet->pending, raised[i]) == 0)
            sigaddset(&own, raised[i]);
    if (!sigisemptyset(&own))
        while (sigtimedwait(&own, NULL, &no_time) > 0 || errno == EINTR)
            continue;
    pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
    errno = saved;
}
