/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Compares recorded JSON with what libattn answered, and names the first place where they differ. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "golden.h"

enum { PATH_SIZE = 192 };

/* Numbers that JSON cannot write are recorded as text. */
static bool number_of(const json_t *value, double *out)
{
    if (json_is_number(value)) {
        *out = json_number_value(value);
        return true;
    }
    const char *text = json_string_value(value);
    if (text == NULL)
        return false;
    if (strcmp(text, "nan") == 0)
        *out = (double)NAN;
    else if (strcmp(text, "inf") == 0)
        *out = (double)INFINITY;
    else if (strcmp(text, "-inf") == 0)
        *out = -(double)INFINITY;
    else
        return false;
    return true;
}

bool golden_number(const json_t *expected, const json_t *actual)
{
    double a;
    double b;

    if (json_is_integer(expected) && json_is_integer(actual))
        return json_integer_value(expected) == json_integer_value(actual);
    if (!number_of(expected, &a) || !number_of(actual, &b))
        return false;
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    /* Recorded reals are floats that were printed short. */
    return (float)a >= (float)b && (float)a <= (float)b && signbit(a) == signbit(b);
}

static bool is_ignored(const char *key, const char *const *ignored)
{
    for (; ignored != NULL && *ignored != NULL; ignored++)
        if (strcmp(key, *ignored) == 0)
            return true;
    return false;
}

static bool differ(struct golden *g, const char *path, const json_t *expected, const json_t *actual)
{
    char *a = json_dumps(expected, JSON_ENCODE_ANY | JSON_COMPACT);
    char *b = actual != NULL ? json_dumps(actual, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

    golden_differ(g, "%s is %.160s, recorded is %.160s", path, b != NULL ? b : "missing",
                  a != NULL ? a : "?");
    free(a);
    free(b);
    return false;
}

static bool same_list(struct golden *g, const char *path, const json_t *expected, const json_t *actual,
                      const char *const *ignored)
{
    char place[PATH_SIZE];
    size_t count = json_array_size(expected);

    if (!json_is_array(actual) || json_array_size(actual) != count)
        return differ(g, path, expected, actual);
    for (size_t i = 0; i < count; i++) {
        snprintf(place, sizeof place, "%.160s[%zu]", path, i);
        if (!golden_same(g, place, json_array_get(expected, i), json_array_get(actual, i), ignored))
            return false;
    }
    return true;
}

static bool same_object(struct golden *g, const char *path, const json_t *expected, const json_t *actual,
                        const char *const *ignored)
{
    char place[PATH_SIZE];
    const char *key;
    json_t *value;

    if (!json_is_object(actual))
        return differ(g, path, expected, actual);
    json_object_foreach((json_t *)expected, key, value)
    {
        if (is_ignored(key, ignored))
            continue;
        snprintf(place, sizeof place, "%.120s%s%.60s", path, path[0] != '\0' ? "." : "", key);
        if (!golden_same(g, place, value, json_object_get(actual, key), ignored))
            return false;
    }
    return true;
}

bool golden_same(struct golden *g, const char *path, const json_t *expected, const json_t *actual,
                 const char *const *ignored)
{
    switch (json_typeof(expected)) {
    case JSON_OBJECT:
        return same_object(g, path, expected, actual, ignored);
    case JSON_ARRAY:
        return same_list(g, path, expected, actual, ignored);
    case JSON_NULL:
        return actual == NULL || json_is_null(actual) || differ(g, path, expected, actual);
    case JSON_TRUE:
    case JSON_FALSE:
        return (json_is_boolean(actual) && json_boolean_value(actual) == json_boolean_value(expected)) ||
               differ(g, path, expected, actual);
    case JSON_STRING:
        if (json_is_string(actual) && strcmp(json_string_value(expected), json_string_value(actual)) == 0)
            return true;
        break;
    default:
        break;
    }
    return (actual != NULL && golden_number(expected, actual)) || differ(g, path, expected, actual);
}
