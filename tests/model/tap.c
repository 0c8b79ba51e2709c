/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Counts and prints TAP results. */
#include "tap.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int results;
static int failures;

void tap_result(bool ok, const char *format, ...)
{
    va_list args;
    printf("%sok %d - ", ok ? "" : "not ", ++results);
    failures += !ok;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

void tap_note(const char *format, ...)
{
    va_list args;
    printf("# ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

int tap_finish(void)
{
    printf("1..%d\n", results);
    return failures || !results ? 1 : 0;
}

int tap_skip(bool tap, const char *reason)
{
    printf("1..0 # SKIP %s\n", reason);
    return tap ? 0 : 77;
}

int model_open(struct engine *e, const char *path, bool *out_absent)
{
    struct failure err = {0};
    *e = (struct engine){0};
    if (!path)
        path = getenv("ATTN_MODEL");
    *out_absent = !path || !path[0];
    if (*out_absent)
        return -1;
    if (engine_load(e, path, 1, &err) == 0)
        return 0;
    *out_absent = e->file.missing;
    fprintf(stderr, "%s\n", err.text);
    engine_finish(e);
    return -1;
}
