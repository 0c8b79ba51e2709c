/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* TAP. */
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>

struct attn_error err;
static uint32_t passed, failed;

void check(bool good, const char *what, const char *detail)
{
    printf("%s %u - %s%s%s\n", good ? "ok" : "not ok", ++passed, what, detail[0] != 0 ? ": " : "", detail);
    if (!good)
        printf("# %s: %s\n", err.field, err.message);
    failed += !good;
}

void must(int32_t status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "%s: %s\n", err.field, err.message);
    exit(1);
}

int finish_checks(void)
{
    printf("1..%u\n", passed);
    return failed != 0;
}
