/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A line of text that grows by appending. */
#include <stdio.h>

#include "select/select.h"

void attn__line_append(struct attn__line *line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(line->text + line->used, line->size - line->used, format, args);
    va_end(args);
    if (length > 0) {
        line->used += (size_t)length;
        line->used = line->used < line->size ? line->used : line->size - 1;
    }
}
