/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ten thousand contexts, some of which compute, leave nothing behind: memory, mappings, descriptors, threads.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "process.h"

enum { CONTEXTS = 10000, SANITIZED = 1000, COMPUTING = 100, WARM_UP = 300 };

struct held {
    size_t heap;
    unsigned mappings, descriptors, threads;
};

static unsigned count_entries(const char *path)
{
    unsigned count = 0;
    DIR *directory = opendir(path);
    while (directory != NULL && readdir(directory) != NULL)
        count++;
    if (directory != NULL)
        closedir(directory);
    return count;
}

static unsigned count_lines(const char *path)
{
    unsigned count = 0;
    FILE *file = fopen(path, "re");
    for (int c; file != NULL && (c = getc(file)) != EOF;)
        count += c == '\n';
    if (file != NULL)
        fclose(file);
    return count;
}

/* A joined thread stands in /proc for a moment. */
static unsigned count_threads(void)
{
    unsigned count = count_entries("/proc/self/task");
    for (int i = 0; i < 100 && count > 3; i++) {
        usleep(1000);
        count = count_entries("/proc/self/task");
    }
    return count;
}

static struct held measure(void)
{
    struct held held = {.threads = count_threads()};
    held.descriptors = count_entries("/proc/self/fd");
    held.mappings = count_lines("/proc/self/maps");
    held.heap = mallinfo2().uordblks;
    return held;
}

static bool use(int number)
{
    static const char *const variables[] = {"ATTN_BACKEND=cpu", "ATTN_UNKNOWN=1"};
    struct attn_context_options options;
    struct attn_context *context = NULL;
    struct attn_report *report = NULL;
    if (number % (CONTEXTS / COMPUTING) == 0)
        return step_works(&linked_library, "3");
    ATTN_INIT(&options);
    options.given = ATTN_GIVEN_LOG;
    options.variables = variables;
    options.variable_count = 2;
    bool good = attn_context_create(&options, &context, NULL) == ATTN_OK &&
                attn_context_load_all(context, NULL) == ATTN_OK &&
                attn_context_get_report(context, &report, NULL) == ATTN_OK;
    if (number % 2 == 0)
        attn_report_destroy(report);
    attn_context_destroy(context);
    if (number % 2 != 0)
        attn_report_destroy(report);
    return good;
}

/* Only without the allocator's cache per thread and its other arenas are its figures exact. */
static void restart_with_exact_figures(char **arguments)
{
    if (getenv("GLIBC_TUNABLES") != NULL)
        return;
    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1", 1);
    execv("/proc/self/exe", arguments);
    exit(99);
}

int main(int count, char **arguments)
{
    const int contexts = is_sanitized() ? SANITIZED : CONTEXTS;
    unsigned wrong = 0;
    (void)count;
    restart_with_exact_figures(arguments);
    tap_begin();
    for (int i = 0; i < WARM_UP; i++)
        wrong += !use(i);
    struct held before = measure();
    for (int i = 0; i < contexts; i++)
        wrong += !use(i);
    struct held after = measure();
    check(wrong == 0, "%d contexts are made, used and destroyed: %u went wrong", contexts, wrong);
    check(after.descriptors == before.descriptors, "descriptors: %u, then %u", before.descriptors,
          after.descriptors);
    check(after.threads == before.threads, "threads: %u, then %u", before.threads, after.threads);
    if (is_sanitized()) {
        skip("mappings", "a sanitizer maps memory of its own");
        skip("heap", "the allocator belongs to a sanitizer or is not the C library's");
    } else {
        check(after.mappings <= before.mappings, "mappings: %u, then %u", before.mappings, after.mappings);
        check(after.heap <= before.heap, "bytes of the heap: %zu, then %zu", before.heap, after.heap);
    }
    return tap_end();
}
