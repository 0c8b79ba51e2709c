/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads a problem string: KEY=VALUE, separated by spaces or commas, each key once. */
#include <stdio.h>
#include <stdlib.h>

#include "select/problem.h"

#define TOKEN_SIZE 64
#define KEYS_MAX   64

/* Copies a token for messages and look-up: cuts long ones, and replaces unprintable bytes by '?'. */
static bool copy_token(char *copy, const char *start, size_t length)
{
    const size_t kept = length < TOKEN_SIZE ? length : TOKEN_SIZE - 1;
    for (size_t i = 0; i < kept; i++)
        copy[i] = start[i] >= ' ' && start[i] <= '~' ? start[i] : '?';
    copy[kept] = 0;
    if (kept < length)
        memcpy(copy + kept - 3, "...", 3);
    return kept == length;
}

static int32_t unknown_key(const char *name, struct attn_error *err)
{
    const char *names[KEYS_MAX];
    for (uint32_t i = 0; i < attn__key_count; i++)
        names[i] = attn__keys[i].name;
    const char *near = attn__nearest(name, names, attn__key_count);
    if (near != NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "unknown key '%s'; did you mean '%s'?", name, near);
    return attn__fail(err, ATTN_E_INVALID, 0, name,
                      "unknown key '%s'; keys are heads, head_dim, kv_heads, q, kv, ... (docs/problem.md)",
                      name);
}

static int32_t bad_value(const struct attn__key *key, const char *value, struct attn_error *err)
{
    const char *names[KEYS_MAX];
    size_t count = 0;
    for (const struct attn__value *choice = key->choices; choice != NULL && choice->name != NULL; choice++)
        names[count++] = choice->name;
    const char *near = count > 0 ? attn__nearest(value, names, count) : NULL;
    if (near != NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, key->name,
                          "%s=%s is not accepted, did you mean %s=%s? Accepted: %s", key->name, value,
                          key->name, near, key->values);
    }
    return attn__fail(err, ATTN_E_INVALID, 0, key->name, "%s=%s is not accepted; accepted: %s", key->name,
                      value, key->values);
}

static const struct attn__key *find_key(const char *name)
{
    for (uint32_t i = 0; i < attn__key_count; i++)
        if (strcmp(attn__keys[i].name, name) == 0)
            return &attn__keys[i];
    return NULL;
}

/* ---------------------------------------------------------------- names of other projects */

static const struct {
    const char *name, *key;
    long less; /* subtracted from a positive number */
} key_aliases[] = {
#define ATTN_KEY_ALIAS(name, key, less) {#name, #key, less},
#include "select/alias.def"
};

static const struct {
    const char *name, *value;
} value_aliases[] = {
#define ATTN_VALUE_ALIAS(name, value) {#name, #value},
#include "select/alias.def"
};

/* Replaces an alias by its key, and its value by what the key takes. */
static void translate_key(char *name, char *value)
{
    for (size_t i = 0; i < sizeof key_aliases / sizeof key_aliases[0]; i++) {
        if (strcmp(key_aliases[i].name, name) != 0)
            continue;
        char *end;
        const long number = strtol(value, &end, 10);
        snprintf(name, TOKEN_SIZE, "%s", key_aliases[i].key);
        if (key_aliases[i].less != 0 && *end == 0 && number > 0)
            snprintf(value, TOKEN_SIZE, "%ld", number - key_aliases[i].less);
        return;
    }
}

/* The key's own name of a value. */
static const char *translate_value(const struct attn__key *key, const char *value)
{
    for (size_t i = 0; key->choices != NULL && i < sizeof value_aliases / sizeof value_aliases[0]; i++)
        if (strcmp(value_aliases[i].name, value) == 0)
            return value_aliases[i].value;
    return value;
}

/* ---------------------------------------------------------------- the string */

static bool share_member(const struct attn__key *a, const struct attn__key *b)
{
    return a->member == b->member || (a->second != 0 && a->second == b->member) ||
           (b->second != 0 && b->second == a->member);
}

/* Refuses a key that is set twice, or whose member another key has set: one of them would have no effect. */
static int32_t check_once(const struct attn__key *key, const bool *seen, struct attn_error *err)
{
    if (seen[key - attn__keys]) {
        return attn__fail(err, ATTN_E_INVALID, 0, key->name, "%s is given twice; each key is given once",
                          key->name);
    }
    for (uint32_t i = 0; i < attn__key_count; i++) {
        if (seen[i] && share_member(key, &attn__keys[i])) {
            return attn__fail(err, ATTN_E_INVALID, 0, key->name,
                              "%s and %s set the same thing; give one of them", attn__keys[i].name,
                              key->name);
        }
    }
    return ATTN_OK;
}

static int32_t parse_token(const char *start, size_t length, bool *seen, struct attn_problem *problem,
                           struct attn_error *err)
{
    char name[TOKEN_SIZE];
    char value[TOKEN_SIZE];
    const char *equals = memchr(start, '=', length);
    if (equals == NULL) {
        copy_token(name, start, length);
        return attn__fail(err, ATTN_E_INVALID, 0, name, "'%s' has no value; accepted: KEY=VALUE", name);
    }
    const bool whole_name = copy_token(name, start, (size_t)(equals - start));
    const bool whole_value = copy_token(value, equals + 1, length - (size_t)(equals + 1 - start));
    if (whole_name && whole_value)
        translate_key(name, value);
    const struct attn__key *key = whole_name ? find_key(name) : NULL;
    if (key == NULL)
        return unknown_key(name, err);
    if (value[0] == 0) {
        return attn__fail(err, ATTN_E_INVALID, 0, key->name, "%s has an empty value; accepted: %s", key->name,
                          key->values);
    }
    const int32_t status = check_once(key, seen, err);
    if (status != ATTN_OK)
        return status;
    seen[key - attn__keys] = true;
    if (!whole_value || !key->parse(key, translate_value(key, value), problem))
        return bad_value(key, value, err);
    return ATTN_OK;
}

int32_t attn_problem_parse(const char *text, struct attn_problem *out, struct attn_error *err)
{
    if (text == NULL || out == NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, text == NULL ? "text" : "out", "%s is NULL",
                          text == NULL ? "text" : "out");
    }
    struct attn_problem problem;
    ATTN_INIT(&problem);
    bool seen[KEYS_MAX] = {false};
    for (;;) {
        text += strspn(text, " ,");
        const size_t length = strcspn(text, " ,");
        if (length == 0)
            break;
        const int32_t status = parse_token(text, length, seen, &problem, err);
        if (status != ATTN_OK)
            return status;
        text += length;
    }
    /* `scales` sets both scales, but an MLA cache has only that of k. */
    if (problem.mla && seen[find_key("scales") - attn__keys])
        problem.v_scale = ATTN_SCALES_NONE;
    return attn_problem_resolve(&problem, out, err);
}
