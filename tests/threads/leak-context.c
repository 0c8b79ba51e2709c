/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A thousand contexts, each loading good and bad plugins, leave neither memory nor open files behind. */
#define _GNU_SOURCE
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "malformed.h"

#define WARM_UP  50
#define CONTEXTS 1000

static void one(const struct malformed *malformed)
{
    struct attn_report *report = NULL;
    struct attn_context *context = malformed_context(malformed, NULL);
    attn_context_load_all(context, NULL);
    attn_context_get_report(context, &report, NULL);
    attn_report_destroy(report);
    attn_context_inspect(context, malformed_path(malformed, "libattn-a.so"), &report, NULL);
    attn_report_destroy(report);
    attn_context_inspect(context, malformed_path(malformed, "other"), &report, NULL);
    attn_report_destroy(report);
    attn_context_rescan(context, NULL);
    attn_context_destroy(context);
}

static unsigned count_files(void)
{
    unsigned count = 0;
    DIR *directory = opendir("/proc/self/fd");
    if (directory == NULL)
        return 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

/* The allocator counts freed blocks in its per-thread cache as used: only without that cache are its figures
 * exact. */
static void restart_without_cache(char **arguments)
{
    if (getenv("GLIBC_TUNABLES") != NULL)
        return;
    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
    execv("/proc/self/exe", arguments);
    perror("execv");
    exit(99);
}

int main(int count, char **arguments)
{
    static const char *const kinds[] = {"good",   "many",        "no-note",      "too-new", "entry-fails",
                                        "no-run", "short-table", "needs-symbol", "second",  "mismatch"};
    struct malformed malformed;
    (void)count;
    restart_without_cache(arguments);
    malformed_create(&malformed);
    chmod(malformed.path, 0755);
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "libattn-%c.so", 'a' + (char)i);
        malformed_add(&malformed, kinds[i], name);
    }
    malformed_add(&malformed, "other", "other");
    for (int i = 0; i < WARM_UP; i++)
        one(&malformed);
    size_t before = mallinfo2().uordblks;
    unsigned files = count_files();
    for (int i = 0; i < CONTEXTS; i++)
        one(&malformed);
    size_t after = mallinfo2().uordblks;
    unsigned files_after = count_files();
    malformed_remove(&malformed);
    printf("%d contexts: %zu bytes before, %zu after; %u files before, %u after\n", CONTEXTS, before, after,
           files, files_after);
    return after != before || files_after != files;
}
