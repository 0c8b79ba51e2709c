/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The prompts of a text file, one on each line. */
#ifndef ENGINE_PROMPTS_H
#define ENGINE_PROMPTS_H

#include <stdbool.h>
#include <stdint.h>

#include "failure.h"

struct prompt {
    const char *text;
    uint32_t line; /* of the file, from 1; 0: not from a file */
};

struct prompts {
    struct prompt *list;
    uint32_t count;
    char *memory;
    bool missing; /* the file could not be found */
};

enum { PROMPTS_MOST_BYTES = 64 << 20 };

/*
 * Lines without any character but blanks are left out, and so are a byte order mark and the carriage return
 * of a line end. A file without prompts, or one that is not UTF-8 text, is refused.
 */
int prompts_read(const char *path, struct prompts *out, struct failure *err);

/* The same text several times. */
int prompts_repeat(const char *text, uint32_t count, struct prompts *out, struct failure *err);
void prompts_finish(struct prompts *p);

#endif
