/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests how many threads a process gets, with the files of the system in a directory of its own. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu.h"

static char root[64];

static void make_root(void)
{
    snprintf(root, sizeof root, "%s", "/tmp/attn-processors-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
    (void)status;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_root(void)
{
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(processors, .init = make_root, .fini = remove_root);

/* Writes a file below the root, and the directories that lead to it. */
static void put(const char *name, const char *text)
{
    char path[512];

    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

static void put_siblings(size_t cpu, const char *list)
{
    char name[128];

    snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", cpu);
    put(name, list);
}

static uint32_t allowed(void)
{
    cpu_set_t set;

    cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
    return (uint32_t)CPU_COUNT(&set);
}

Test(processors, nothing_known)
{
    cr_assert_eq(cpu_quota(root), UINT32_MAX);
    cr_assert_eq(cpu_available(root), allowed());
}

Test(processors, hyperthreads_are_one_core)
{
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        put_siblings(cpu, "0-1023\n");
    cr_assert_eq(cpu_available(root), 1);
}

Test(processors, hyperthreads_far_apart)
{
    cpu_set_t set;
    size_t first = CPU_SETSIZE, last = 0;

    cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set))
            continue;
        char own[32];
        snprintf(own, sizeof own, "%zu\n", cpu);
        put_siblings(cpu, own);
        first = first < cpu ? first : cpu;
        last = cpu;
    }
    cr_assert_eq(cpu_available(root), allowed());
    char pair[64];
    snprintf(pair, sizeof pair, "%zu,%zu\n", first, last);
    put_siblings(first, pair);
    put_siblings(last, pair);
    cr_assert_eq(cpu_available(root), allowed() - (first != last));
}

Test(processors, unified_groups)
{
    put("/proc/self/cgroup", "0::/pods/one\n");
    put("/sys/fs/cgroup/pods/one/cpu.max", "max 100000\n");
    cr_assert_eq(cpu_quota(root), UINT32_MAX);
    put("/sys/fs/cgroup/pods/one/cpu.max", "650000 100000\n");
    cr_assert_eq(cpu_quota(root), 6, "rounded down");
    put("/sys/fs/cgroup/pods/cpu.max", "400000 100000\n");
    cr_assert_eq(cpu_quota(root), 4, "the least of all groups about it");
    put("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    cr_assert_eq(cpu_quota(root), 3, "the root that a container sees");
    put("/sys/fs/cgroup/cpu.max", "20000 100000\n");
    cr_assert_eq(cpu_quota(root), 1, "never none");
    cr_assert_eq(cpu_available(root), 1);
}

Test(processors, groups_of_version_1)
{
    put("/proc/self/cgroup", "5:memory:/docker/x\n4:cpuset:/\n3:cpuacct,cpu:/docker/x\n0::/\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    cr_assert_eq(cpu_quota(root), UINT32_MAX);
    put("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "250000\n");
    cr_assert_eq(cpu_quota(root), UINT32_MAX, "without a period");
    put("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "50000\n");
    cr_assert_eq(cpu_quota(root), 5);
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
    cr_assert_eq(cpu_quota(root), 2);
}

Test(processors, a_group_outside)
{
    put("/proc/self/cgroup", "0::/../../elsewhere\n");
    put("/cpu.max", "100000 100000\n");
    put("/sys/fs/cgroup/cpu.max", "800000 100000\n");
    cr_assert_eq(cpu_quota(root), 8);
}

Test(processors, damaged_files)
{
    static const char *const limits[] = {"",           "\n",          "nonsense\n", "5\n",
                                         "100000 0\n", "-5 100000\n", "5 -1\n"};

    put("/proc/self/cgroup", "\nnonsense\n7\n0:\n0::/a\n");
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        put("/sys/fs/cgroup/a/cpu.max", limits[i]);
        cr_assert_eq(cpu_quota(root), UINT32_MAX, "\"%s\"", limits[i]);
    }
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        put_siblings(cpu, "x,-3,999999999999999999999\n");
    cr_assert_eq(cpu_available(root), allowed());
}
