/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Many times in little memory: counts of nanoseconds in classes that are at most 1/256 wide. */
#ifndef SERVE_TIMES_H
#define SERVE_TIMES_H

#include <stdint.h>

enum { TIMES_FINE = 256, TIMES_CLASSES = TIMES_FINE * 58 };

struct times {
    uint32_t classes[TIMES_CLASSES];
    uint64_t count;
    uint64_t least, most;
};

/* Monotonic nanoseconds. */
uint64_t times_now(void);
void times_add(struct times *times, uint64_t nanoseconds);
/* The time, in microseconds, that a share of all does not exceed; NAN of none. */
double times_quantile(const struct times *times, double share);

#endif
