/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Local time as text. The C library's functions take a lock that a fork does not wait for, on which the child
 * would hang for ever; so the offset of the time zone is kept, and read anew only where that is safe.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>

#include "base/env.h"

/* Offsets change at quarters of an hour. */
#define QUARTER 900

static _Atomic int64_t zone;       /* seconds east of UTC */
static _Atomic int64_t zone_until; /* when it has to be read again; 0 = it never was read */

static int64_t zone_at(time_t now)
{
    const int64_t until = atomic_load_explicit(&zone_until, memory_order_acquire);
    /* A child keeps what its parent read. */
    if (now < until || (until != 0 && attn__fork_generation() != 1))
        return atomic_load_explicit(&zone, memory_order_relaxed);
    struct tm local = {.tm_gmtoff = 0};
    attn__shared_lock(); /* a fork waits for it */
    if (localtime_r(&now, &local) != NULL)
        atomic_store_explicit(&zone, local.tm_gmtoff, memory_order_relaxed);
    attn__shared_unlock();
    atomic_store_explicit(&zone_until, (now / QUARTER + 1) * QUARTER, memory_order_release);
    return local.tm_gmtoff;
}

void attn__time_format(int64_t seconds, long nanoseconds, char *text, size_t size)
{
    const int64_t of_day = seconds % 86400;
    /* The day of a calendar whose years begin in March, so that a leap day ends a year; era = 400 years. */
    const int64_t day = seconds / 86400 + 719468, era = day / 146097, of_era = day % 146097;
    const int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const int64_t of_year = of_era - (365 * year + year / 4 - year / 100), march = (5 * of_year + 2) / 153;
    const int64_t month = march < 10 ? march + 3 : march - 9;
    snprintf(text, size, "%04lld-%02lld-%02lldT%02lld:%02lld:%02lld.%03ld",
             (long long)(year + era * 400 + (month <= 2)), (long long)month,
             (long long)(of_year - (153 * march + 2) / 5 + 1), (long long)(of_day / 3600),
             (long long)(of_day / 60 % 60), (long long)(of_day % 60), nanoseconds / 1000000);
}

void attn__time_text(char *text, size_t size)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    attn__time_format(now.tv_sec + zone_at(now.tv_sec), now.tv_nsec, text, size);
}
