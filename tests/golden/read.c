/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Members of recorded rows as plain C values, and plain C arrays as JSON. */
#include <stdio.h>
#include <stdlib.h>

#include "golden.h"

int64_t golden_int(const json_t *object, const char *key, int64_t fallback)
{
    const json_t *value = json_object_get(object, key);

    return json_is_integer(value) ? (int64_t)json_integer_value(value) : fallback;
}

double golden_real(const json_t *object, const char *key, double fallback)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : fallback;
}

bool golden_bool(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

const char *golden_text(const json_t *object, const char *key, const char *fallback)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : fallback;
}

void *golden_memory(size_t count, size_t size)
{
    void *memory = calloc(count != 0 ? count : 1, size);

    if (memory == NULL) {
        fprintf(stderr, "golden-check: %zu times %zu bytes cannot be allocated\n", count, size);
        exit(3);
    }
    return memory;
}

int64_t *golden_ints(const json_t *list, size_t *out_count)
{
    *out_count = json_array_size(list);
    if (!json_is_array(list))
        return NULL;
    int64_t *values = golden_memory(*out_count, sizeof *values);
    for (size_t i = 0; i < *out_count; i++)
        values[i] = (int64_t)json_integer_value(json_array_get(list, i));
    return values;
}

int32_t *golden_int32s(const json_t *list, size_t *out_count)
{
    *out_count = json_array_size(list);
    if (!json_is_array(list))
        return NULL;
    int32_t *values = golden_memory(*out_count, sizeof *values);
    for (size_t i = 0; i < *out_count; i++)
        values[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return values;
}

json_t *golden_list_i32(const int32_t *values, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(values[i]));
    return list;
}

json_t *golden_list_i64(const int64_t *values, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(values[i]));
    return list;
}

json_t *golden_list_u64(const uint64_t *values, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer((json_int_t)values[i]));
    return list;
}
