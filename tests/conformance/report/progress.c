/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the run is at, on a terminal: the kind of checks, cases so far, failures and the time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "output.h"
#include "tap.h"

enum { LINE_SIZE = 256, USUAL_COLUMNS = 80 };
/* To the beginning of the line, and nothing after it. */
#define CLEAR "\r\033[K"

static bool shown; /* to a terminal */
static struct timespec began;

void progress_init(void)
{
    const char *terminal = getenv("TERM");

    shown = isatty(STDERR_FILENO) && terminal != NULL && terminal[0] != '\0' && strcmp(terminal, "dumb") != 0;
    clock_gettime(CLOCK_MONOTONIC, &began);
    /* Lines of TAP on the same terminal take the place of what the parent process last wrote there. */
    if (shown && isatty(fileno(output_stream())))
        snprintf(tap->clear, sizeof tap->clear, "%s", CLEAR);
}

void progress_show(void)
{
    char line[LINE_SIZE], what[64] = "loading the plugin";
    struct winsize size;
    struct timespec now;

    if (!shown || tap->trying)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const unsigned long long seconds = (unsigned long long)(now.tv_sec - began.tv_sec);
    if (tap->kinds_begun > 0)
        snprintf(what, sizeof what, "%s, kind %u of %u", tap->now.kind, tap->kinds_begun, tap->kinds_wanted);
    int length = snprintf(line, sizeof line, "%s: %u cases, %u failed, %llu:%02llu", what, tap_number(),
                          tap->count[STATE_FAILED], seconds / 60, seconds % 60);
    /* A line that the terminal would break could not be written over. */
    int columns =
        ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : USUAL_COLUMNS;
    fprintf(stderr, "%s%.*s", CLEAR, length < columns ? length : columns - 1, line);
    fflush(stderr);
}

void progress_end(void)
{
    if (shown)
        fputs(CLEAR, stderr);
    tap->clear[0] = '\0';
}
