/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Counts cases and prints a line for each that fails. */
#include <stdarg.h>
#include <stdio.h>

#include "golden.h"

void golden_begin(struct golden *g, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(g->name, sizeof g->name, format, args);
    va_end(args);
    g->bad = false;
}

void golden_differ(struct golden *g, const char *format, ...)
{
    va_list args;

    if (g->bad)
        return;
    g->bad = true;
    printf("FAILED %s %s: ", g->file, g->name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

void golden_end(struct golden *g)
{
    if (g->bad)
        g->failed++;
    else
        g->passed++;
}

void golden_broken(struct golden *g, const char *format, ...)
{
    va_list args;

    printf("FAILED %s: ", g->file);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    g->failed++;
}
