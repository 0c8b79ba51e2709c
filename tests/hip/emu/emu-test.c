/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* TAP, images from files and memory for tests of the emulator. */
#define _GNU_SOURCE
#include "emu-test.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checks, failures;

bool check(bool good, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    printf("%s %d - ", good ? "ok" : "not ok", ++checks);
    vprintf(format, list);
    printf("\n");
    va_end(list);
    failures += !good;
    return good;
}

int checks_end(void)
{
    printf("1..%d\n", checks);
    return failures != 0;
}

struct emu_image *image_of(const char *file)
{
    char *bytes = NULL, part[4096], why[256];
    size_t size = 0, n;
    FILE *from = fopen(file, "rb"), *to = open_memstream(&bytes, &size);
    struct emu_image *image = NULL;
    if (from == NULL || to == NULL) {
        printf("Bail out! no %s\n", file);
        exit(1);
    }
    while ((n = fread(part, 1, sizeof part, from)) > 0)
        fwrite(part, 1, n, to);
    fclose(from);
    fclose(to);
    if (!emu_image_open(bytes, &image, why, sizeof why)) {
        printf("Bail out! %s: %s\n", file, why);
        exit(1);
    }
    free(bytes);
    return image;
}

static int by_address(const void *a, const void *b)
{
    const struct emu_range *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

void *memory_take(struct memory *m, size_t bytes, bool writable)
{
    void *p = m->count < TEST_RANGES ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    if (p == NULL) {
        printf("Bail out! no memory\n");
        exit(1);
    }
    memset(p, 0, bytes);
    m->ranges[m->count++] = (struct emu_range){(uintptr_t)p, (uintptr_t)p + bytes, writable};
    qsort(m->ranges, m->count, sizeof *m->ranges, by_address);
    return p;
}

void memory_drop(struct memory *m)
{
    for (size_t i = 0; i < m->count; i++)
        free((void *)(uintptr_t)m->ranges[i].begin);
    m->count = 0;
}
