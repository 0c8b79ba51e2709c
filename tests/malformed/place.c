/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A directory of plugins with a cache of its own, output as TAP, and children that may die. */
#define _GNU_SOURCE
#include "place.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---------------------------------------------------------------- plugins */

void place_create(struct place *place, const char *variable)
{
    malformed_create(&place->malformed);
    malformed_create(&place->home);
    chmod(place->malformed.path, 0755);
    snprintf(place->cache, sizeof place->cache, "ATTN_CACHE_DIR=%s/cache", place->home.path);
    place->variables[0] = place->cache;
    place->variables[1] = variable;
    place->variables[2] = NULL;
}

void place_remove(struct place *place)
{
    malformed_remove(&place->malformed);
    malformed_remove(&place->home);
}

struct attn_report *place_load(const struct place *place)
{
    struct attn_context *context = malformed_context(&place->malformed, place->variables);
    struct attn_report *report = NULL;

    if (attn_context_load_all(context, NULL) != ATTN_OK ||
        attn_context_get_report(context, &report, NULL) != ATTN_OK)
        exit(99);
    attn_context_destroy(context);
    return report;
}

bool place_serves(struct attn_context *context)
{
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;
    struct attn_problem problem;
    bool serves = false;

    if (attn_problem_parse("heads=8 head_dim=64 q=bf16", &problem, NULL) != ATTN_OK)
        exit(99);
    if (attn_select(context, &problem, 1, NULL, &decision, NULL) == ATTN_OK &&
        strcmp(attn_decision_get_info(decision)->effective, SANE_BACKEND) == 0)
        serves = attn_backend_open(context, decision, NULL, &backend, NULL) == ATTN_OK;
    attn_backend_destroy(backend);
    attn_decision_destroy(decision);
    return serves;
}

double seconds_now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------- output */

/* Shared with the children. */
static struct {
    _Atomic unsigned tests, failures;
} * counts;
static FILE *tap;

void tap_begin(void)
{
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tap = fdopen(dup(STDOUT_FILENO), "w");
    if (counts == MAP_FAILED || tap == NULL || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        exit(99);
    setvbuf(tap, NULL, _IOLBF, 0);
}

void tap_check(bool good, const char *format, ...)
{
    char line[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(tap, "%sok %u - %s\n", good ? "" : "not ", ++counts->tests, line);
    counts->failures += !good;
}

void tap_note(const char *format, ...)
{
    char line[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(tap, "# %s\n", line);
}

void tap_skip(const char *name, const char *reason)
{
    fprintf(tap, "ok %u - %s # SKIP %s\n", ++counts->tests, name, reason);
}

int tap_end(void)
{
    fprintf(tap, "1..%u\n", counts->tests);
    fclose(tap);
    return counts->failures > 0;
}

void tap_in_child(const char *name, unsigned seconds, void (*work)(const void *arg), const void *arg)
{
    int status = -1;

    pid_t child = fork();
    if (child == 0) {
        alarm(seconds);
        work(arg);
        exit(0); /* with everything that plugins do at the end of a process */
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (child > 0 && WIFSIGNALED(status))
        tap_check(false, "%s: the host died of signal %d", name, WTERMSIG(status));
    else
        tap_check(child > 0 && WEXITSTATUS(status) == 0, "%s: the host lives", name);
}
