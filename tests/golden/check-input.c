/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* slot_mapping, start_idx, is_block_tables_empty and graph_batch_size: what an engine works out for a step.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/input.h"
#include "golden.h"

/* A negative number in the recording would wrap in an unsigned member: say it as it is. */
static int32_t map_slots(const json_t *row, int64_t **out, uint64_t *out_count, struct attn_error *err)
{
    struct attn_slot_args args;
    char key[24];
    size_t blocks = 0;

    snprintf(key, sizeof key, "%lld", (long long)golden_int(row, "id", 0));
    const json_t *table = json_object_get(json_object_get(row, "bt"), key);
    int64_t *list = golden_ints(table, &blocks);
    ATTN_INIT(&args);
    args.profile = golden_bool(row, "profile");
    args.seq_len = golden_int(row, "seq_len", 0);
    args.context_len = golden_int(row, "ctx", 0);
    args.start = golden_int(row, "start", 0);
    args.block = (uint32_t)golden_int(row, "bs", 0);
    args.block_dtype = ATTN_INT64;
    args.blocks = list;
    args.block_count = blocks;
    int32_t status = attn_slot_mapping(&args, NULL, 0, out_count, err);
    *out = NULL;
    if (status == ATTN_OK || status == ATTN_E_SIZE) {
        *out = golden_memory(*out_count, sizeof **out);
        status = attn_slot_mapping(&args, *out, *out_count, out_count, err);
    }
    free(list);
    return status;
}

static void check_slots(struct golden *g, const json_t *row)
{
    const json_t *expected = json_object_get(row, "out");
    const json_t *exception = golden_exception(expected);
    struct attn_error err;
    uint64_t count = 0;
    int64_t *slots;

    if (exception == NULL)
        exception = golden_exception(row);
    ATTN_INIT(&err);
    int32_t status = map_slots(row, &slots, &count, &err);
    if (exception != NULL) {
        golden_check_exception(g, exception, status, &err);
    } else if (golden_ok(g, "attn_slot_mapping", status, &err)) {
        json_t *actual = golden_list_i64(slots, count);
        golden_same(g, "slots", expected, actual, NULL);
        json_decref(actual);
    }
    free(slots);
}

void check_slot_mapping(struct golden *g, const json_t *data)
{
    size_t i;
    json_t *row;

    json_array_foreach(data, i, row)
    {
        golden_begin(g, "[%zu] %s", i, golden_text(row, "tag", ""));
        check_slots(g, row);
        golden_end(g);
    }
}

/* Rows: prompt, query_len, context_len, window or null, result. */
void check_start_idx(struct golden *g, const json_t *data)
{
    size_t i;
    json_t *row;

    json_array_foreach(data, i, row)
    {
        const json_t *window = json_array_get(row, 3);
        const json_t *expected = json_array_get(row, 4);
        golden_begin(g, "[%zu]", i);
        if (golden_exception(expected) != NULL) {
            golden_differ(g, "libattn's function cannot fail, but %s is recorded",
                          golden_text(golden_exception(expected), "error", ""));
        } else {
            json_t *actual = json_integer(attn_input_start(
                json_is_true(json_array_get(row, 0)), (int64_t)json_integer_value(json_array_get(row, 1)),
                json_is_integer(window) ? (int64_t)json_integer_value(window) : -1));
            golden_same(g, "start", expected, actual, NULL);
            json_decref(actual);
        }
        golden_end(g);
    }
}

/*
 * A map of lists, or null, is what a step can have. Anything else that the original's test accepts is a table
 * which is there: one list.
 */
static int is_profile(const json_t *value)
{
    static const char a_list;
    const void *lists[64] = {NULL};
    uint32_t count = 0;
    const char *key;
    json_t *list;

    if (json_is_null(value) || value == NULL)
        return attn_input_is_profile(NULL, 0);
    if (!json_is_object(value)) {
        lists[0] = &a_list;
        return attn_input_is_profile(lists, 1);
    }
    json_object_foreach((json_t *)value, key, list) if (count < sizeof lists / sizeof *lists) lists[count++] =
        json_is_null(list) ? NULL : &a_list;
    return attn_input_is_profile(lists, count);
}

void check_block_tables_empty(struct golden *g, const json_t *data)
{
    size_t i;
    json_t *row;

    json_array_foreach(data, i, row)
    {
        json_t *actual = json_boolean(is_profile(json_object_get(row, "value")));
        golden_begin(g, "[%zu] %s", i, golden_text(row, "kind", ""));
        golden_same(g, "empty", json_object_get(row, "out"), actual, NULL);
        golden_end(g);
        json_decref(actual);
    }
}

/* Rows: argument, result. */
static void check_pairs(struct golden *g, const char *name, const json_t *rows, uint32_t (*fn)(uint32_t))
{
    size_t i;
    json_t *row;

    json_array_foreach(rows, i, row)
    {
        json_t *actual = json_integer(fn((uint32_t)json_integer_value(json_array_get(row, 0))));
        golden_begin(g, "%s[%zu]", name, i);
        golden_same(g, name, json_array_get(row, 1), actual, NULL);
        golden_end(g);
        json_decref(actual);
    }
}

/* The list of sizes to capture: its beginning, its end, and how long it is. */
static void check_capture_list(struct golden *g, const json_t *data)
{
    uint32_t count = attn_graph_sizes(ATTN_GRAPH_BATCH_MAX, NULL, 0);
    uint32_t *sizes = golden_memory(count, sizeof *sizes);
    const json_t *head = json_object_get(data, "capture_list_head");

    attn_graph_sizes(ATTN_GRAPH_BATCH_MAX, sizes, count);
    json_t *actual = json_pack("{s:[], s:i, s:i}", "capture_list_head", "capture_list_last",
                               count > 0 ? (int)sizes[count - 1] : 0, "capture_list_len", (int)count);
    for (size_t i = 0; i < json_array_size(head) && i < count; i++)
        json_array_append_new(json_object_get(actual, "capture_list_head"), json_integer(sizes[i]));
    static const char *const keys[] = {"capture_list_head", "capture_list_last", "capture_list_len"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *expected = json_object_get(data, keys[i]);
        if (expected == NULL)
            continue;
        golden_begin(g, "%s", keys[i]);
        golden_same(g, keys[i], expected, json_object_get(actual, keys[i]), NULL);
        golden_end(g);
    }
    json_decref(actual);
    free(sizes);
}

void check_graph_batch_size(struct golden *g, const json_t *data)
{
    check_pairs(g, "padded", json_object_get(data, "padded"), attn_graph_padded);
    check_pairs(g, "max", json_object_get(data, "max"), attn_graph_largest);
    check_capture_list(g, data);
}
