/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every variable with values that nobody should set: a record tells, nothing raw is said, the context works.
 */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/env.h"
#include "malformed.h"
#include "select/select.h"
#include "show.h"

static struct malformed malformed;
static char said[64][1024];
static uint32_t lines;

static void listen(void *user, uint32_t level, const char *subsystem, const char *text)
{
    (void)user, (void)level, (void)subsystem;
    cr_assert(attn__is_printable(text), "raw text in a log line");
    if (lines < 64)
        snprintf(said[lines++], sizeof said[0], "%s", text);
}

/* Lines that contain the text. */
static unsigned count_said(const char *text)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < lines; i++)
        count += strstr(said[i], text) != NULL;
    return count;
}

static void begin(void)
{
    malformed_create(&malformed);
    malformed_add(&malformed, "good", "libattn-mock.so");
}

static void end(void)
{
    malformed_remove(&malformed);
}

TestSuite(variables, .init = begin, .fini = end);

/* The process has the variables of the list, and nothing else begins with ATTN_. */
static struct attn_context *create(const char *const *environment, const char *const *call)
{
    struct attn_context_options options;
    struct attn_context *context = NULL;
    struct attn_error err;
    for (char **p = environ; *p != NULL;) {
        if (strncmp(*p, "ATTN_", 5) != 0) {
            p++;
            continue;
        }
        char *name = strndup(*p, strcspn(*p, "="));
        unsetenv(name);
        free(name);
        p = environ;
    }
    for (; environment != NULL && *environment != NULL; environment++)
        cr_assert_eq(putenv((char *)(uintptr_t)*environment), 0);
    ATTN_INIT(&options);
    ATTN_INIT(&err);
    options.log = listen;
    options.plugin_path = malformed.path;
    options.variables = call;
    while (call != NULL && call[options.variable_count] != NULL)
        options.variable_count++;
    lines = 0;
    cr_assert_eq(attn_context_create(&options, &context, &err), ATTN_OK, "%s", err.message);
    return context;
}

static const struct attn_variable_record *find(const struct attn_context *context, const char *name)
{
    const struct attn_variable_record *record;
    for (uint32_t i = 0; (record = attn_context_get_variable(context, i)) != NULL; i++)
        if (strcmp(record->name, name) == 0)
            return record;
    return NULL;
}

static const struct variable {
    const char *name, *type, *fallback;
} variables[] = {
#define ATTN_VARIABLE(name, type, fallback, elevated, help) {#name, type, fallback},
#include "base/env.def"
};

/* A value that the type cannot refuse, whatever it is. */
static bool takes_anything(const struct variable *variable)
{
    static const char *const types[] = {"list", "globs", "directories", "directory", "file", "flags"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(variable->type, types[i]) == 0)
            return true;
    return false;
}

static void check_value(const struct variable *variable, const char *what, const char *value, bool refused)
{
    size_t size = strlen(variable->name) + strlen(value) + 2;
    char *text = malloc(size);
    snprintf(text, size, "%s=%s", variable->name, value);
    const char *environment[] = {text, NULL};
    struct attn_context *context = create(environment, NULL);
    const struct attn_variable_record *record = find(context, variable->name);
    const bool kept = strcmp(variable->type, "list") == 0 || strcmp(variable->type, "globs") == 0;
    cr_assert_eq(record->problem != NULL, refused, "%s %s: %s", variable->name, what,
                 record->problem != NULL ? record->problem : "no problem");
    if (refused) {
        cr_assert(attn__is_printable(record->problem), "%s %s", variable->name, what);
        cr_assert(strstr(record->problem, variable->name) != NULL, "%s", record->problem);
        cr_assert(strstr(record->problem, "accepted") != NULL, "%s", record->problem);
        cr_assert(strlen(record->problem) < 512);
        cr_assert_eq(count_said(record->problem), 1, "%s %s: %u", variable->name, what, lines);
        /* What was asked for or forbidden by name holds; everything else falls back. */
        cr_assert_str_eq(record->value, kept ? value : variable->fallback);
        cr_assert_str_eq(record->origin, kept ? "environment" : "default");
    } else {
        cr_assert_str_eq(record->value, value[0] != '\0' ? value : variable->fallback, "%s %s",
                         variable->name, what);
        cr_assert_str_eq(record->origin, value[0] != '\0' ? "environment" : "default");
    }
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    attn_context_destroy(context);
    unsetenv(variable->name);
    free(text);
}

Test(variables, empty_is_as_good_as_none)
{
    for (size_t i = 0; i < ATTN__VARIABLES; i++)
        check_value(&variables[i], "empty", "", false);
}

Test(variables, control_characters_are_refused_and_escaped)
{
    static const char *const values[] = {"a\nb", "1\n", "\033]0;title\007", "\177"};
    for (size_t i = 0; i < ATTN__VARIABLES; i++)
        for (size_t j = 0; j < sizeof values / sizeof values[0]; j++)
            check_value(&variables[i], "control characters", values[j], true);
}

Test(variables, very_long_values_are_refused_by_their_length)
{
    char *value = malloc(100001);
    memset(value, '/', 100000);
    value[100000] = '\0';
    for (size_t i = 0; i < ATTN__VARIABLES; i++)
        check_value(&variables[i], "very long", value, true);
    free(value);
}

Test(variables, bytes_that_are_no_text)
{
    for (size_t i = 0; i < ATTN__VARIABLES; i++) {
        const struct variable *variable = &variables[i];
        /* A directory may have such a name. */
        bool relative = strcmp(variable->type, "directory") == 0,
             flags = strcmp(variable->type, "flags") == 0;
        bool file = strcmp(variable->type, "file") == 0,
             backend = strcmp(variable->name, "ATTN_BACKEND") == 0;
        if (relative || flags || file || backend)
            continue; /* below */
        check_value(variable, "no UTF-8", "\xff\xc2\x9b", !takes_anything(variable));
    }
    check_value(&variables[ATTN__VAR_ATTN_CACHE_DIR], "no UTF-8", "\xff", true);
    check_value(&variables[ATTN__VAR_ATTN_CACHE_DIR], "no UTF-8", "/nowhere/\xff", false);
    check_value(&variables[ATTN__VAR_ATTN_BACKEND], "no UTF-8", "\xff\xc2\x9b", true);
}

Test(variables, nonsense_is_refused_where_it_can_be_told)
{
    for (size_t i = 0; i < ATTN__VARIABLES; i++)
        if (!takes_anything(&variables[i]))
            check_value(&variables[i], "nonsense", "% 17 \\ ;--", true);
    check_value(&variables[ATTN__VAR_ATTN_CPU_FLAGS], "nonsense", "% 17 \\ ;--", true);
    check_value(&variables[ATTN__VAR_ATTN_CACHE_DIR], "nonsense", "% 17 \\ ;--", true);
    check_value(&variables[ATTN__VAR_ATTN_BACKEND], "nonsense", "% 17 \\ ;--", true);
}

Test(variables, unknown_names_are_told_once_whatever_they_are)
{
    char longer[400];
    snprintf(longer, sizeof longer, "ATTN_%0300d=1", 7);
    const char *const environment[] = {
        "ATTN_THREAD=4",      "ATTN_A\nB\033[1m=x", longer, "ATTN_=", "ATTN_\xff=1",
        "ATTN_MOCK_QUEUES=2", "ATTN_PROBE=never",   NULL};
    struct attn_context *context = create(environment, NULL);
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    cr_assert_eq(attn_context_rescan(context, NULL), ATTN_OK);
    cr_assert_eq(count_said("ATTN_THREAD: "), 1);
    cr_assert_eq(count_said("did you mean ATTN_THREADS?"), 1);
    cr_assert_eq(count_said("ATTN_A\\nB\\x1b[1m: "), 1);
    cr_assert_eq(count_said("ATTN_0000"), 1);
    cr_assert_eq(count_said("ATTN_\\xff: "), 1);
    cr_assert_eq(count_said("QUEUES"), 0, "it belongs to a plugin that is there");
    cr_assert_eq(count_said("no variable of libattn"), 4);
    cr_assert_str_eq(find(context, "ATTN_MOCK_QUEUES")->type, "plugin");
    cr_assert_str_eq(find(context, "ATTN_MOCK_QUEUES")->origin, "environment");
    cr_assert_str_eq(find(context, "ATTN_THREAD")->type, "unknown");
    cr_assert_str_eq(context->plugins[0]->host.get_option(context->plugins[0], "ATTN_MOCK_QUEUES"), "2");
    attn_context_destroy(context);
}

/* The environment is read once: what changes later, changes nothing. */
Test(variables, are_a_snapshot)
{
    const char *const environment[] = {"ATTN_BACKEND=mock", "ATTN_MOCK_QUEUES=2", "HOME=/first",
                                       "ATTN_PROBE=never", NULL};
    struct attn_context *context = create(environment, NULL);
    unsetenv("ATTN_BACKEND");
    setenv("ATTN_MOCK_QUEUES", "3", 1);
    setenv("ATTN_STRICT", "1", 1);
    setenv("HOME", "/second", 1);
    cr_assert_eq(attn_context_rescan(context, NULL), ATTN_OK);
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    cr_assert_str_eq(find(context, "ATTN_BACKEND")->value, "mock");
    cr_assert_str_eq(find(context, "ATTN_STRICT")->value, "0");
    cr_assert_str_eq(context->plugins[0]->host.get_option(context->plugins[0], "ATTN_MOCK_QUEUES"), "2");
    cr_assert_str_eq(attn__env_outside(&context->env, "HOME"), "/first");
    attn_context_destroy(context);
}

/* Option over call over variable: of the search path, of the log, of the wanted list. */
Test(variables, order_of_what_counts)
{
    char path[128], call_path[128];
    struct attn_report *report = NULL;
    snprintf(path, sizeof path, "ATTN_PLUGIN_PATH=/from-variable");
    snprintf(call_path, sizeof call_path, "ATTN_PLUGIN_PATH=/from-call");
    const char *const environment[] = {path, "ATTN_BACKEND=variable", "ATTN_DISABLE=x", NULL};
    const char *const call[] = {call_path, "ATTN_BACKEND=call", NULL};

    struct attn_context *context = create(environment, call);
    cr_assert_eq(attn_context_get_report(context, &report, NULL), ATTN_OK);
    cr_assert_str_eq(attn_report_get_directory(report, 0)->path, malformed.path);
    cr_assert_str_eq(attn_report_get_directory(report, 0)->origin, "option");
    attn_report_destroy(report);
    cr_assert_str_eq(find(context, "ATTN_PLUGIN_PATH")->value, "/from-call");
    cr_assert_str_eq(find(context, "ATTN_PLUGIN_PATH")->origin, "call");
    cr_assert_str_eq(find(context, "ATTN_BACKEND")->value, "call");
    cr_assert_str_eq(find(context, "ATTN_DISABLE")->origin, "environment");
    attn_context_destroy(context);

    struct attn_context_options options;
    ATTN_INIT(&options);
    options.log = listen;
    options.variables = call;
    options.variable_count = 2;
    cr_assert_eq(attn_context_create(&options, &context, NULL), ATTN_OK);
    cr_assert_eq(attn_context_get_report(context, &report, NULL), ATTN_OK);
    cr_assert_str_eq(attn_report_get_directory(report, 0)->path, "/from-call");
    attn_report_destroy(report);
    attn_context_destroy(context);

    options.variable_count = 0;
    cr_assert_eq(attn_context_create(&options, &context, NULL), ATTN_OK);
    cr_assert_eq(attn_context_get_report(context, &report, NULL), ATTN_OK);
    cr_assert_str_eq(attn_report_get_directory(report, 0)->path, "/from-variable");
    cr_assert_str_eq(attn_report_get_directory(report, 0)->origin, "ATTN_PLUGIN_PATH");
    attn_report_destroy(report);
    attn_context_destroy(context);
}

/* Lists come out of files: the end of a line at the end of an item is no part of a name. */
Test(variables, line_ends_in_lists)
{
    const char *const environment[] = {"ATTN_BACKEND=mock\r\n", "ATTN_DISABLE=else ,mock/*\r\n", NULL};
    struct attn_context *context = create(environment, NULL);
    uint32_t reason = 0;
    cr_assert_not(attn__wanted_backend(context, "auto", "mock/flash-attn", &reason));
    cr_assert_eq(reason, ATTN_REASON_DISABLED_BY_USER);
    (void)attn__wanted_backend(context, find(context, "ATTN_BACKEND")->value, "mock/flash-attn", &reason);
    cr_assert_eq(reason, ATTN_REASON_DISABLED_BY_USER, "the wanted list admits it");
    attn_context_destroy(context);
}
