/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A program for test-elevated: makes a context, loads everything, computes, and prints what it saw, a line
 * each. It does what it can to make the library look elsewhere.
 */
#include <stdio.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "attn/attn.h"

static void print_records(struct attn_context *context)
{
    const struct attn_variable_record *variable;
    const struct attn_directory_record *directory;
    const struct attn_file_record *file;
    struct attn_report *report = NULL;
    for (uint32_t i = 0; (variable = attn_context_get_variable(context, i)) != NULL; i++)
        printf("variable %s=%s (%s)\n", variable->name, variable->value, variable->origin);
    if (attn_context_get_report(context, &report, NULL) != ATTN_OK)
        return;
    for (uint32_t i = 0; (directory = attn_report_get_directory(report, i)) != NULL; i++)
        printf("directory %s (%s) %s: %s\n", directory->path, directory->origin,
               directory->reason != 0 ? attn_reason_name(directory->reason) : "trusted", directory->text);
    for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++)
        printf("file %s %s %s: %s\n", file->path, attn_stage_name(file->stage),
               file->reason != 0 ? attn_reason_name(file->reason) : "-", file->text);
    attn_report_destroy(report);
}

static void print_inspection(struct attn_context *context, const char *path)
{
    struct attn_report *report = NULL;
    if (attn_context_inspect(context, path, &report, NULL) != ATTN_OK)
        return;
    const struct attn_file_record *file = attn_report_get_file(report, 0);
    printf("inspect %s %s %s: %s\n", file->path, attn_stage_name(file->stage),
           file->reason != 0 ? attn_reason_name(file->reason) : "-", file->text);
    attn_report_destroy(report);
}

static void print_selection(struct attn_context *context)
{
    struct attn_problem problem;
    struct attn_decision *decision = NULL;
    struct attn_error err;
    ATTN_INIT(&err);
    attn_problem_parse("heads=4 head_dim=64 q=f32", &problem, NULL);
    int32_t status = attn_select(context, &problem, 1, NULL, &decision, &err);
    const struct attn_decision_info *info = attn_decision_get_info(decision);
    printf("select %s %s %s\n", attn_status_name(status),
           info != NULL && info->effective != NULL ? info->effective : "-", err.message);
    attn_decision_destroy(decision);
}

int main(int count, char **arguments)
{
    static const char *const variables[] = {"ATTN_PLUGIN_PATH_ADD=/call", "ATTN_CACHE_DIR=/call/cache"};
    struct attn_context_options options;
    struct attn_context *context = NULL;
    struct attn_error err;
    ATTN_INIT(&options);
    ATTN_INIT(&err);
    options.variables = variables;
    options.variable_count = 2;
    if (count > 1)
        options.plugin_path = arguments[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("secure %lu\n", getauxval(AT_SECURE));
    printf("user %u effective %u\n", (unsigned)getuid(), (unsigned)geteuid());
    if (attn_context_create(&options, &context, &err) != ATTN_OK) {
        printf("create %s\n", err.message);
        return 1;
    }
    attn_context_load_all(context, NULL);
    print_selection(context);
    print_records(context);
    for (int i = 2; i < count; i++)
        print_inspection(context, arguments[i]);
    attn_context_destroy(context);
    return 0;
}
