/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Counts cases and prints a line for each that fails. */
#include <stdarg.h>
#include <stdio.h>

#include "golden.h"

static void begin(struct golden *g, bool model, const char *format, va_list args)
{
    vsnprintf(g->name, sizeof g->name, format, args);
    g->bad = false;
    g->model = model;
}

void golden_begin(struct golden *g, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    begin(g, false, format, args);
    va_end(args);
}

void golden_begin_model(struct golden *g, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    begin(g, true, format, args);
    va_end(args);
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
    if (g->bad) {
        g->failed++;
        g->model_failed += g->model;
    } else {
        g->passed++;
        g->model_passed += g->model;
    }
}

void golden_print_counts(const struct golden *g)
{
    printf("judged by libattn: %lu passed, %lu failed\n", g->passed - g->model_passed,
           g->failed - g->model_failed);
    printf("judged by the test's own model of the original: %lu passed, %lu failed\n", g->model_passed,
           g->model_failed);
    printf("%lu passed, %lu failed\n", g->passed, g->failed);
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
