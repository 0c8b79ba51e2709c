/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks the values of variables: against their type when they are read, and against plugins' notes after the
 * scan. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "base/env.h"
#include "record/recorder.h"
#include "show.h"

#define VALUE_MAX  4096
#define NUMBER_MAX 65535
#define SHOWN      96 /* of a value in a message, with the end */

/* The beginning of a value, escaped for messages; text has SHOWN bytes. */
static const char *shown(const char *value, char *text)
{
    if (!attn__show(value, text, SHOWN - 3))
        strcat(text, "...");
    return text;
}

static bool refuse(char *problem, size_t size, const char *name, const char *value, const char *accepted)
{
    char text[SHOWN];
    snprintf(problem, size, "%s=\"%s\": %s is accepted", name, shown(value, text), accepted);
    return false;
}

static bool is_number(const char *value)
{
    uint32_t number = 0;
    for (const char *p = value; *p != '\0'; p++) {
        if (*p < '0' || *p > '9')
            return false;
        number = number * 10 + (uint32_t)(*p - '0');
        if (number > NUMBER_MAX)
            return false;
    }
    return value[0] != '\0';
}

/* Whether a value is a list: items between commas, not empty, of printable characters without spaces. */
static bool is_list(const char *value)
{
    for (const char *p = value;; p++) {
        size_t length = strcspn(p, ",");
        size_t first = strspn(p, " ");
        if (first >= length)
            return false;
        size_t word = strcspn(p + first, " ,");
        if (first + word + strspn(p + first + word, " ") != length)
            return false;
        p += length;
        if (*p == '\0')
            return true;
    }
}

bool attn__env_check(const char *name, const char *type, const char *value, char *problem, size_t size)
{
    if (strlen(value) > VALUE_MAX)
        return refuse(problem, size, name, value, "a value of at most 4096 bytes");
    for (const char *p = value; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return refuse(problem, size, name, value, "a value without control characters");
    if (strcmp(type, "0|1") == 0 && strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
        return refuse(problem, size, name, value, "0 or 1");
    if (strcmp(type, "0|1|2") == 0 && (strspn(value, "012") != 1 || value[1] != '\0'))
        return refuse(problem, size, name, value, "0, 1 or 2");
    if (strcmp(type, "auto|always|never") == 0 && strcmp(value, "auto") != 0 &&
        strcmp(value, "always") != 0 && strcmp(value, "never") != 0)
        return refuse(problem, size, name, value, "auto, always or never");
    if (strcmp(type, "auto|never") == 0 && strcmp(value, "auto") != 0 && strcmp(value, "never") != 0)
        return refuse(problem, size, name, value, "auto or never");
    if (strcmp(type, "directory") == 0 && value[0] != '\0' && value[0] != '/')
        return refuse(problem, size, name, value, "an absolute path");
    if (strcmp(type, "number") == 0 && !is_number(value))
        return refuse(problem, size, name, value, "a number from 0 to 65535");
    if (strcmp(type, "flags") == 0 && !is_list(value))
        return refuse(problem, size, name, value, "a comma-separated list of names");
    if (strcmp(type, "record") == 0) {
        struct attn__record_option option;
        char why[128], text[SHOWN];
        if (!attn__record_parse(value, &option, why, sizeof why)) {
            snprintf(problem, size, "%s=\"%s\": %s", name, shown(value, text), why);
            return false;
        }
    }
    if (strcmp(type, "levels") == 0) {
        char why[256];
        if (!attn__log_parse(value, NULL, why, sizeof why)) {
            char text[SHOWN];
            snprintf(problem, size, "%s=\"%s\": %s", name, shown(value, text), why);
            return false;
        }
    }
    return true;
}

/* ATTN_CPU_... belongs to a plugin, or to a flavour, named cpu. */
static bool belongs_to(const char *variable, const char *name)
{
    const char *p = variable + strlen("ATTN_");
    for (; *name != '\0'; name++, p++) {
        char c = *name == '-' ? '_' : *name;
        if (c >= 'a' && c <= 'z')
            c = (char)(c - 'a' + 'A');
        if (*p != c)
            return false;
    }
    return *p == '_';
}

/* Writes which plugin or flavour a variable belongs to. False if it belongs to none. */
static bool say_owner(const char *variable, const struct attn_note *const *notes, uint32_t count, char *text,
                      size_t size)
{
    for (uint32_t i = 0; i < count; i++) {
        if (belongs_to(variable, notes[i]->name)) {
            snprintf(text, size, "belongs to the plugin %s", notes[i]->name);
            return true;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        char list[sizeof notes[i]->backends], *rest = list;
        memcpy(list, notes[i]->backends, sizeof list);
        for (char *name; (name = strsep(&rest, ",")) != NULL;) {
            const char *slash = strchr(name, '/');
            if (slash != NULL && belongs_to(variable, slash + 1)) {
                snprintf(text, size, "belongs to the flavour %s", slash + 1);
                return true;
            }
        }
    }
    return false;
}

static int32_t no_memory(struct attn_error *err)
{
    return attn__fail(err, ATTN_E_MEMORY, 0, NULL, "no memory for the records of variables");
}

static int32_t resolve_other(struct attn__env *env, struct attn_variable_record *record,
                             const struct attn_note *const *notes, uint32_t count, struct attn_error *err)
{
    const char *names[ATTN__VARIABLES];
    char text[400];
    if (say_owner(record->name, notes, count, text, sizeof text)) {
        record->type = "plugin";
    } else {
        for (uint32_t i = 0; i < ATTN__VARIABLES; i++)
            names[i] = env->records[i].name;
        const char *near = attn__nearest(record->name, names, ATTN__VARIABLES);
        if (near != NULL)
            snprintf(text, sizeof text, "no variable of libattn or of an installed plugin; did you mean %s?",
                     near);
        else
            snprintf(text, sizeof text,
                     "no variable of libattn or of an installed plugin; attn-info env lists them");
    }
    record->help = attn__env_keep(env, text);
    return record->help != NULL ? ATTN_OK : no_memory(err);
}

/* Whether some note offers `item`: vendor, flavour or both. */
static bool is_offered(const char *item, const struct attn_note *const *notes, uint32_t count)
{
    if (attn__same_name(item, "auto") || attn__same_name(item, "none"))
        return true;
    for (uint32_t i = 0; i < count; i++) {
        if (attn__same_name(item, notes[i]->name))
            return true;
        char list[sizeof notes[i]->backends], *rest = list;
        memcpy(list, notes[i]->backends, sizeof list);
        for (char *name; (name = strsep(&rest, ",")) != NULL;) {
            const char *slash = strchr(name, '/');
            if (attn__same_name(item, name) || (slash != NULL && attn__same_name(item, slash + 1)))
                return true;
        }
    }
    return false;
}

/*
 * Warns about a name in ATTN_BACKEND that no file offers. The value is kept: selection then fails with
 * NO_SUCH_BACKEND instead of silently taking another backend.
 */
static int32_t resolve_backend(struct attn__env *env, const struct attn_note *const *notes, uint32_t count,
                               bool *out_all, struct attn_error *err)
{
    struct attn_variable_record *record = &env->records[ATTN__VAR_ATTN_BACKEND];
    char list[VALUE_MAX + 1], text[400], name[SHOWN], *rest = list;
    const char *first = NULL;
    bool all = true;
    snprintf(list, sizeof list, "%s", record->value);
    for (char *item; (item = strsep(&rest, ",")) != NULL;) {
        item += strspn(item, " \t");
        item[strcspn(item, " \t")] = '\0';
        if (item[0] == '\0')
            continue;
        if (is_offered(item, notes, count))
            all = false;
        else if (first == NULL)
            first = item;
    }
    *out_all = all;
    if (first == NULL || !attn__env_is_given(env, ATTN__VAR_ATTN_BACKEND))
        return ATTN_OK;
    const char *hint = attn__kind_hint(first);
    char installed[96] = "";
    for (uint32_t i = 0; i < count; i++)
        attn__add_name(installed, sizeof installed, notes[i]->name);
    snprintf(
        text, sizeof text, "ATTN_BACKEND: there is no backend '%s'; %s; installed: %s", shown(first, name),
        hint != NULL ? hint
                     : "accepted are vendor/flavour, vendor, flavour, auto and none (other software reads "
                       "this variable too; TRELLIS: xformers, sdpa)",
        installed[0] != '\0' ? installed : "none");
    record->problem = attn__env_keep_escaped(env, text);
    return record->problem != NULL ? ATTN_OK : no_memory(err);
}

int32_t attn__env_resolve(struct attn__env *env, struct attn__log *log, const struct attn_note *const *notes,
                          uint32_t count, struct attn_error *err)
{
    bool all = true, syntax = env->records[ATTN__VAR_ATTN_BACKEND].problem != NULL;
    int32_t status = syntax ? ATTN_OK : resolve_backend(env, notes, count, &all, err);
    for (uint32_t i = ATTN__VARIABLES; i < env->count && status == ATTN_OK; i++)
        status = resolve_other(env, &env->records[i], notes, count, err);
    if (status != ATTN_OK)
        return status;
    for (uint32_t i = 0; i < ATTN__VARIABLES; i++) {
        const struct attn_variable_record *record = &env->records[i];
        if (record->problem == NULL)
            continue;
        if (attn__env_is_given(env, (enum attn__variable)i))
            /* A list may name absent backends as long as one of its names is there. */
            attn__log_once(log, i != ATTN__VAR_ATTN_BACKEND || all ? ATTN_LOG_WARN : ATTN_LOG_INFO, "env",
                           "%s", record->problem);
        else
            attn__log_once(log, ATTN_LOG_WARN, "env", "%s; \"%s\" is used instead", record->problem,
                           record->value);
    }
    for (uint32_t i = ATTN__VARIABLES; i < env->count; i++)
        if (strcmp(env->records[i].type, "unknown") == 0) {
            char name[SHOWN];
            attn__log_once(log, ATTN_LOG_WARN, "env", "%s: %s", shown(env->records[i].name, name),
                           env->records[i].help);
        }
    return ATTN_OK;
}
