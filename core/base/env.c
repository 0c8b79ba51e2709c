/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The snapshot of the environment: one record per variable. Variables of the call override those of the
 * process. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/env.h"
#include "show.h"

static const struct row {
    const char *name, *type, *fallback;
    bool elevated;
    const char *help;
} table[] = {
#define ATTN_VARIABLE(name, type, fallback, elevated, help) {#name, type, fallback, elevated, help},
#include "base/env.def"
};

static const char ignored[] = "ignored: elevated process";

static char *keep(struct attn__env *env, const char *text, size_t length)
{
    char *copy = strndup(text, length);
    char **more = copy != NULL ? realloc(env->owned, (env->owned_count + 1) * sizeof *more) : NULL;
    if (more == NULL) {
        free(copy);
        return NULL;
    }
    env->owned = more;
    env->owned[env->owned_count++] = copy;
    return copy;
}

char *attn__env_keep(struct attn__env *env, const char *text)
{
    return keep(env, text, strlen(text));
}

char *attn__env_keep_escaped(struct attn__env *env, const char *text)
{
    char escaped[1024];
    attn__show(text, escaped, sizeof escaped);
    return attn__env_keep(env, escaped);
}

/* Whether "NAME=VALUE" has this name; *out_value is then the value. */
static bool is_variable(const char *text, const char *name, const char **out_value)
{
    size_t length = strlen(name);
    if (strncmp(text, name, length) != 0 || text[length] != '=')
        return false;
    *out_value = text + length + 1;
    return true;
}

struct source {
    char *const *environment;
    const char *const *variables;
    uint32_t variable_count;
};

/* The value of a name, or NULL. An empty value counts as none, but hides the value that the
 * environment has. */
static const char *find(const struct source *source, const char *name, const char **out_origin)
{
    const char *value = NULL;
    *out_origin = "call";
    for (uint32_t i = 0; i < source->variable_count; i++)
        if (is_variable(source->variables[i], name, &value))
            return value[0] != '\0' ? value : NULL;
    *out_origin = "environment";
    for (char *const *p = source->environment; p != NULL && *p != NULL; p++)
        if (is_variable(*p, name, &value))
            return value[0] != '\0' ? value : NULL;
    return NULL;
}

static int32_t no_memory(struct attn_error *err)
{
    return attn__fail(err, ATTN_E_MEMORY, 0, NULL, "no memory for the snapshot of the environment");
}

static int32_t fill_row(struct attn__env *env, uint32_t index, const struct source *source,
                        struct attn_error *err)
{
    const struct row *row = &table[index];
    struct attn_variable_record *record = &env->records[index];
    char problem[512];
    *record = (struct attn_variable_record){.name = row->name,
                                            .value = row->fallback,
                                            .origin = "default",
                                            .type = row->type,
                                            .fallback = row->fallback,
                                            .help = row->help};
    const char *origin, *value = find(source, row->name, &origin);
    if (value == NULL)
        return ATTN_OK;
    if (env->elevated && !row->elevated) {
        record->origin = ignored;
        return ATTN_OK;
    }
    if (!attn__env_check(row->name, row->type, value, problem, sizeof problem)) {
        record->problem = attn__env_keep_escaped(env, problem);
        if (record->problem == NULL)
            return no_memory(err);
        /* Lists of names are never dropped for a bad item: it names no backend, and the other items still
         * count. */
        if (strcmp(row->type, "list") != 0 && strcmp(row->type, "globs") != 0)
            return ATTN_OK;
    }
    record->origin = origin;
    record->value = attn__env_keep(env, value);
    return record->value != NULL ? ATTN_OK : no_memory(err);
}

static bool is_known(const struct attn__env *env, const char *name, size_t length)
{
    for (uint32_t i = 0; i < env->count; i++)
        if (strncmp(env->records[i].name, name, length) == 0 && env->records[i].name[length] == '\0')
            return true;
    return false;
}

/* Records a variable that the table does not have. The notes tell later whether it is a plugin's or a
 * mistake. */
static int32_t fill_other(struct attn__env *env, const char *text, const struct source *source,
                          struct attn_error *err)
{
    size_t length = strcspn(text, "=");
    if (strncmp(text, "ATTN_", 5) != 0 || text[length] != '=' || is_known(env, text, length))
        return ATTN_OK;
    char *name = keep(env, text, length);
    if (name == NULL)
        return no_memory(err);
    const char *origin, *value = find(source, name, &origin);
    if (value == NULL)
        return ATTN_OK;
    struct attn_variable_record *more = realloc(env->records, (env->count + 1) * sizeof *more);
    if (more == NULL)
        return no_memory(err);
    env->records = more;
    struct attn_variable_record record = {
        .name = name,
        .value = env->elevated ? "" : attn__env_keep(env, value),
        .origin = env->elevated ? ignored : origin,
        .type = "unknown",
        .fallback = "",
        .help = "",
    };
    if (record.value == NULL)
        return no_memory(err);
    env->records[env->count++] = record;
    return ATTN_OK;
}

static int32_t check_call(const struct attn_context_options *options, struct attn_error *err)
{
    if (options->variable_count != 0 && options->variables == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "variables",
                          "variables is NULL and variable_count is %u; an array of so many strings is "
                          "accepted, or the count 0",
                          options->variable_count);
    for (uint32_t i = 0; i < options->variable_count; i++) {
        const char *text = options->variables[i];
        if (text == NULL || strncmp(text, "ATTN_", 5) != 0 || strchr(text, '=') == NULL)
            return attn__fail(err, ATTN_E_INVALID, 0, "variables",
                              "variables[%u] is \"%s\"; ATTN_NAME=VALUE is accepted", i,
                              text != NULL ? text : "(null)");
    }
    return ATTN_OK;
}

/* Collects name and value of all other variables, for get_option. */
static int32_t pair_others(struct attn__env *env, struct attn_error *err)
{
    uint32_t others = env->count - ATTN__VARIABLES;
    if (others == 0 || env->elevated)
        return ATTN_OK;
    env->plugin_names = calloc(2 * (size_t)others, sizeof *env->plugin_names);
    if (env->plugin_names == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < others; i++) {
        env->plugin_names[2 * i] = env->records[ATTN__VARIABLES + i].name;
        env->plugin_names[2 * i + 1] = env->records[ATTN__VARIABLES + i].value;
    }
    env->plugin_count = others;
    return ATTN_OK;
}

static int32_t fill(struct attn__env *env, const struct source *source, struct attn_error *err)
{
    int32_t status = ATTN_OK;
    for (uint32_t i = 0; i < ATTN__VARIABLES && status == ATTN_OK; i++)
        status = fill_row(env, i, source, err);
    env->count = ATTN__VARIABLES;
    for (uint32_t i = 0; i < source->variable_count && status == ATTN_OK; i++)
        status = fill_other(env, source->variables[i], source, err);
    for (char *const *p = source->environment; p != NULL && *p != NULL && status == ATTN_OK; p++)
        status = fill_other(env, *p, source, err);
    return status == ATTN_OK ? pair_others(env, err) : status;
}

/*
 * Copies the whole environment into one block, so that later changes by the process do not matter. Lengths
 * are taken again while copying, so that a change by another thread cannot overrun the block.
 */
static char **copy_environment(char *const *environment)
{
    size_t count = 0, bytes = 0;
    for (char *const *p = environment; p != NULL && *p != NULL; p++, count++)
        bytes += strlen(*p) + 1;
    char **block = malloc((count + 1) * sizeof *block + bytes);
    if (block == NULL)
        return NULL;
    char *text = (char *)(block + count + 1);
    size_t copied = 0;
    for (; copied < count && environment[copied] != NULL; copied++) {
        size_t length = strnlen(environment[copied], bytes);
        if (length >= bytes)
            break;
        memcpy(text, environment[copied], length);
        text[length] = '\0';
        block[copied] = text;
        text += length + 1;
        bytes -= length + 1;
    }
    block[copied] = NULL;
    return block;
}

int32_t attn__env_init_from(struct attn__env *env, const struct attn_context_options *options,
                            char *const *environment, bool elevated, struct attn_error *err)
{
    struct source source = {.variable_count = 0};
    memset(env, 0, sizeof *env);
    env->elevated = elevated;
    if (options != NULL) {
        int32_t status = check_call(options, err);
        if (status != ATTN_OK)
            return status;
        source.variables = options->variables;
        source.variable_count = options->variable_count;
    }
    env->environment = copy_environment(environment);
    env->records = calloc(ATTN__VARIABLES, sizeof *env->records);
    source.environment = env->environment;
    int32_t status =
        env->environment != NULL && env->records != NULL ? fill(env, &source, err) : no_memory(err);
    if (status != ATTN_OK)
        attn__env_finish(env);
    return status;
}

int32_t attn__env_init(struct attn__env *env, const struct attn_context_options *options,
                       struct attn_error *err)
{
    return attn__env_init_from(env, options, environ, getauxval(AT_SECURE) != 0, err);
}

void attn__env_finish(struct attn__env *env)
{
    for (uint32_t i = 0; i < env->owned_count; i++)
        free(env->owned[i]);
    free(env->owned);
    free(env->plugin_names);
    free(env->environment);
    free(env->records);
    memset(env, 0, sizeof *env);
}

const char *attn__env_get(const struct attn__env *env, enum attn__variable variable)
{
    return env->records[variable].value;
}

bool attn__env_is_given(const struct attn__env *env, enum attn__variable variable)
{
    const char *origin = env->records[variable].origin;
    return strcmp(origin, "call") == 0 || strcmp(origin, "environment") == 0;
}

const char *attn__env_option(const struct attn__env *env, const char *key)
{
    for (uint32_t i = 0; i < ATTN__VARIABLES; i++)
        if (strcmp(env->records[i].name, key) == 0)
            return env->records[i].value;
    for (uint32_t i = 0; i < env->plugin_count; i++)
        if (strcmp(env->plugin_names[2 * i], key) == 0)
            return env->plugin_names[2 * i + 1];
    return NULL;
}

const char *attn__env_outside(const struct attn__env *env, const char *name)
{
    const char *value;
    for (char *const *p = env->environment; *p != NULL && !env->elevated; p++)
        if (is_variable(*p, name, &value))
            return value;
    return NULL;
}
