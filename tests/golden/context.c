/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens backends for the checks; plugins are found beside the program, whatever the environment says. */
#define _GNU_SOURCE
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "golden.h"

/* PLUGINS is the way from the program's directory to that of the CPU plugin. */
static bool open_context(struct golden *g)
{
    static const char *const variables[] = {"ATTN_BACKEND=", "ATTN_DISABLE=", "ATTN_STRICT=0",
                                            "ATTN_PROBE=never"};
    char program[PATH_MAX];
    char path[3 * PATH_MAX + 8];
    struct attn_context_options options;
    struct attn_error err;

    if (g->context != NULL)
        return true;
    ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
    if (size <= 0)
        return false;
    program[size] = '\0';
    const char *directory = dirname(program);
    snprintf(path, sizeof path, "%s/%s:%s%s%s", directory, PLUGINS, directory,
             g->plugin_directory != NULL ? ":" : "", g->plugin_directory != NULL ? g->plugin_directory : "");
    ATTN_INIT(&err);
    ATTN_INIT(&options);
    options.plugin_path = path;
    options.variables = variables;
    options.variable_count = sizeof variables / sizeof *variables;
    if (attn_context_create(&options, &g->context, &err) == ATTN_OK)
        return true;
    fprintf(stderr, "golden-check: %s\n", err.message);
    return false;
}

struct attn_backend *golden_backend(struct golden *g, const char *name, const char *text)
{
    struct attn_select_options options;
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;
    struct attn_problem problem;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&options);
    options.backend = name;
    if (!open_context(g))
        return NULL;
    int32_t status = attn_problem_parse(text, &problem, &err);
    if (status == ATTN_OK)
        status = attn_select(g->context, &problem, 1, &options, &decision, &err);
    if (status == ATTN_OK)
        status = attn_backend_open(g->context, decision, NULL, &backend, &err);
    attn_decision_destroy(decision);
    if (status != ATTN_OK)
        fprintf(stderr, "golden-check: %s: %s\n", name, err.message);
    return status == ATTN_OK ? backend : NULL;
}

void golden_context_end(struct golden *g)
{
    attn_context_destroy(g->context);
    g->context = NULL;
}
