/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Clock, caches, memory and CPUs, from the kernel's files. */
#define _GNU_SOURCE
#include "machine.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "output.h"

enum { CACHES = 16 };

double machine_now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A number, with K or M behind it, of a file of one cache. */
static uint64_t cache_number(unsigned index, const char *name)
{
    char path[96];
    uint64_t number = 0;
    char unit = '\0';

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%u/%s", index, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%" SCNu64 "%c", &number, &unit) < 1)
        number = 0;
    fclose(file);
    return number << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
}

uint64_t machine_cache(void)
{
    uint64_t size = 0, best = 0;

    for (unsigned i = 0; i < CACHES; i++) {
        uint64_t level = cache_number(i, "level");
        if (level >= best && level > 0) {
            best = level;
            size = cache_number(i, "size");
        }
    }
    return size;
}

uint64_t machine_memory(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    uint64_t kilobytes = 0;
    char line[128];

    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %" SCNu64, &kilobytes) == 1)
            break;
    fclose(file);
    return kilobytes << 10;
}

uint32_t machine_cpus(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    return (uint32_t)CPU_COUNT(&set);
}

static uint64_t asked_cold_set;

void machine_set_cold_set(uint64_t bytes)
{
    asked_cold_set = bytes;
}

uint64_t machine_cold_set(void)
{
    static bool said;

    if (asked_cold_set != 0)
        return asked_cold_set;
    uint64_t wanted = 4 * machine_cache(), memory = machine_memory();

    if (wanted < UINT64_C(256) << 20)
        wanted = UINT64_C(256) << 20;
    if (memory == 0 || wanted <= memory / 4)
        return wanted;
    if (!said)
        complain("only %" PRIu64 " MiB of memory are available: sets of %" PRIu64
                 " MiB are read instead of %" PRIu64 " MiB, and the cache may serve a part of them",
                 memory >> 20, memory >> 22, wanted >> 20);
    said = true;
    return memory / 4;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double median(double *values, uint32_t count)
{
    if (count == 0)
        return NAN;
    qsort(values, count, sizeof *values, compare);
    return count % 2 != 0 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}
