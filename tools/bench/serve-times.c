/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Classes of times: exact below 512 ns, then 256 for each doubling. */
#include "serve-times.h"

#include <math.h>
#include <time.h>

uint64_t times_now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

/* Doublings above the exact ones, and the first nine bits. */
static uint32_t class_of(uint64_t nanoseconds)
{
    uint32_t shift = 0;

    while (nanoseconds >> shift >= 2 * TIMES_FINE)
        shift++;
    return shift * TIMES_FINE + (uint32_t)(nanoseconds >> shift);
}

/* The largest time of a class. */
static double end_of(uint32_t class)
{
    const uint32_t shift = class < 2 * TIMES_FINE ? 0 : class / TIMES_FINE - 1;

    return ldexp((double)(class - shift * TIMES_FINE + 1), (int)shift) - 1;
}

void times_add(struct times *times, uint64_t nanoseconds)
{
    times->classes[class_of(nanoseconds)]++;
    times->least = times->count == 0 || nanoseconds < times->least ? nanoseconds : times->least;
    times->most = nanoseconds > times->most ? nanoseconds : times->most;
    times->count++;
}

double times_quantile(const struct times *times, double share)
{
    const double wanted = ceil(share * (double)times->count);
    uint64_t seen = 0;

    if (times->count == 0)
        return NAN;
    for (uint32_t i = 0; i < TIMES_CLASSES; i++) {
        seen += times->classes[i];
        if (seen > 0 && (double)seen >= wanted)
            return 1e-3 * fmin(end_of(i), (double)times->most);
    }
    return 1e-3 * (double)times->most;
}
