/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What fuzz targets share: a check that holds in every build, and texts made of their input. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                   \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* The first bytes of the input as a text in a block of its own, for free(); a zero byte ends it early. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* Whether an array of characters holds a text that ends inside of it. */
static inline int fuzz_ends(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

#endif
