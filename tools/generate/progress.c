/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One line on standard error, written over itself. */
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool wanted;
static bool shown;
static double last;

bool progress_begin(void)
{
    const char *terminal = getenv("TERM");
    wanted = isatty(STDERR_FILENO) == 1 && terminal && terminal[0] && strcmp(terminal, "dumb") != 0;
    return wanted;
}

void progress_show(const struct batch_progress *p)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    double now = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
    if (!wanted || (last > 0 && now - last < 0.1))
        return;
    last = now;
    shown = true;
    fprintf(stderr, "\r\033[K%u done, %u running, %u waiting; %.1f tokens/s; cache %.0f %%", p->done,
            p->running, p->waiting, p->seconds > 0 ? p->made_tokens / p->seconds : 0.0,
            p->blocks ? 100.0 * (double)p->used / (double)p->blocks : 0.0);
    fflush(stderr);
}

void progress_clear(void)
{
    if (!shown)
        return;
    shown = false;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}
