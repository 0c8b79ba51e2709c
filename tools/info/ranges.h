/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranges of numbers, joined to as few as say the same. */
#ifndef RANGES_H
#define RANGES_H

#include <stdint.h>

#include "key-values.h"

struct range {
    int64_t first;
    int64_t last;
    int64_t step;
};

struct ranges {
    struct range *items;
    unsigned count;
};

void ranges_add(struct ranges *ranges, int64_t first, int64_t last, int64_t step);
/* Joins ranges as far as they can be, adds each to `out` as "1-1024" or "16-256/16" behind `before`, and
 * frees them. */
void ranges_finish(struct ranges *ranges, const char *before, struct words *out);

#endif
