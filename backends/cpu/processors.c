/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * How many threads are worth having: one for each core that the affinity mask allows, whose hyperthreads
 * share the arithmetic and the way to memory, and no more than the CPU time that control groups allow. A
 * thread beyond that quota would stop the whole process until the next period.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cpu.h"

/* Reads the first line of a file, without its end; false if there is none. */
static bool read_line(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "re");

    if (file == NULL)
        return false;
    const bool read = fgets(out, (int)size, file) != NULL;
    fclose(file);
    if (read)
        out[strcspn(out, "\n")] = '\0';
    return read;
}

/* Adds a list such as "0-3,64" to a set. */
static void add_list(const char *list, cpu_set_t *set)
{
    for (;;) {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (end == list)
            return;
        if (*end == '-') {
            list = end + 1;
            last = strtoul(list, &end, 10);
        }
        for (; first <= last && first < CPU_SETSIZE; first++)
            CPU_SET(first, set);
        if (*end != ',')
            return;
        list = end + 1;
    }
}

/* CPUs of a set of which no two are hyperthreads of one core. */
static uint32_t count_cores(const char *root, const cpu_set_t *allowed)
{
    cpu_set_t seen;
    uint32_t cores = 0;

    CPU_ZERO(&seen);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        char path[256], list[256];
        if (!CPU_ISSET(cpu, allowed) || CPU_ISSET(cpu, &seen))
            continue;
        cores++;
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", root,
                 cpu);
        if (read_line(path, list, sizeof list))
            add_list(list, &seen);
    }
    return cores;
}

/* Quota and period of a group in microseconds, of either version; false if there is no limit. */
static bool read_quota(const char *group, bool unified, int64_t *quota, int64_t *period)
{
    char path[1024], text[64];

    *quota = *period = 0;
    snprintf(path, sizeof path, "%s/%s", group, unified ? "cpu.max" : "cpu.cfs_quota_us");
    if (!read_line(path, text, sizeof text))
        return false;
    if (unified)
        return sscanf(text, "%" SCNd64 " %" SCNd64, quota, period) == 2 && *quota > 0 && *period > 0;
    *quota = strtoll(text, NULL, 10);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", group);
    if (!read_line(path, text, sizeof text))
        return false;
    *period = strtoll(text, NULL, 10);
    return *quota > 0 && *period > 0;
}

/* The least whole number of CPUs, but 1, that a group and those about it allow; UINT32_MAX without a limit.
 */
static uint32_t least_quota(const char *mount, const char *group, bool unified)
{
    char path[768];
    uint32_t least = UINT32_MAX;
    int64_t quota, period;

    /* A group outside of what the process sees of the tree: its root is the process's own. */
    snprintf(path, sizeof path, "%s%s", mount, strstr(group, "..") == NULL ? group : "");
    for (;;) {
        if (read_quota(path, unified, &quota, &period)) {
            int64_t cpus = quota / period > 0 ? quota / period : 1;
            least = cpus < least ? (uint32_t)cpus : least;
        }
        char *slash = strrchr(path, '/');
        if (slash == NULL || (size_t)(slash - path) < strlen(mount))
            return least;
        *slash = '\0';
    }
}

/* Whether a list of controllers such as "cpu,cpuacct" has the one of CPU time. */
static bool has_cpu(const char *controllers)
{
    for (; controllers != NULL; controllers = strchr(controllers, ',')) {
        controllers += *controllers == ',';
        if (strncmp(controllers, "cpu", 3) == 0 && (controllers[3] == '\0' || controllers[3] == ','))
            return true;
    }
    return false;
}

uint32_t cpu_quota(const char *root)
{
    char path[256], line[512];
    uint32_t least = UINT32_MAX;

    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return least;
    /* Lines are NUMBER:CONTROLLERS:GROUP; the unified hierarchy, version 2, has no controllers. */
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *controllers++ = '\0';
        *group++ = '\0';
        const bool unified = *controllers == '\0';
        if (!unified && !has_cpu(controllers))
            continue;
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s", root, unified ? "" : "/cpu");
        const uint32_t quota = least_quota(path, group, unified);
        least = quota < least ? quota : least;
    }
    fclose(file);
    return least;
}

uint32_t cpu_available(const char *root)
{
    const uint32_t quota = cpu_quota(root);
    cpu_set_t allowed;
    uint32_t cores;

    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 0) {
        cores = count_cores(root, &allowed);
    } else { /* there are more CPUs than cpu_set_t holds */
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        cores = online > 0 ? (uint32_t)online : 1;
    }
    return cores < quota ? cores : quota;
}
