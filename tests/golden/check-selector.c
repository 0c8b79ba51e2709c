/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* selector.json: requests on several platforms, the texts that were logged, and nested overrides. */
#include <string.h>

#include "golden.h"
#include "selection.h"

static void check_row(struct golden *g, const json_t *row)
{
    const struct selection_request request = {
        .platform = golden_text(row, "plat", ""),
        .capability = (int)golden_int(row, "cap", 0),
        .head_dim = (int)golden_int(row, "head", 0),
        .dtype = golden_text(row, "dtype", ""),
        .kv_dtype = golden_text(row, "kv", NULL),
        .block = (int)golden_int(row, "bs", 0),
        .blocksparse = golden_bool(row, "blocksparse"),
        .attention_free = golden_bool(row, "attn_free"),
        .v1 = golden_bool(row, "v1"),
        .env = golden_text(row, "env", NULL),
        .forced = golden_text(row, "forced", NULL),
        .has_package = golden_bool(row, "fa_pkg"),
    };
    const json_t *out = json_object_get(row, "out");
    const json_t *exception = golden_exception(out);
    struct selection result;

    selection_choose(&request, &result);
    if (exception != NULL) {
        struct attn_error err;
        ATTN_INIT(&err);
        if (result.backend == NULL) {
            err.status = ATTN_E_INVALID;
            memcpy(err.message, result.error, sizeof result.error);
        }
        golden_check_exception(g, exception, err.status, &err);
        return;
    }
    json_t *log = json_array();
    for (int i = 0; i < result.log_count; i++)
        json_array_append_new(log, json_string(result.log[i]));
    json_t *actual = json_string(result.backend != NULL ? result.backend : result.error);
    golden_same(g, "out", out, actual, NULL);
    golden_same(g, "log", json_object_get(row, "log"), log, NULL);
    json_decref(actual);
    json_decref(log);
}

static void append_forced(json_t *list)
{
    const char *name = selection_forced();

    json_array_append_new(list, name != NULL ? json_string(name) : json_null());
}

/* Two scopes inside each other; the second inner one ends as by an exception. */
static void check_nested(struct golden *g, const json_t *expected)
{
    struct selection_scope outer;
    struct selection_scope inner;
    json_t *actual = json_array();

    selection_enter(&outer, "XFORMERS");
    append_forced(actual);
    selection_enter(&inner, "FLASHINFER");
    append_forced(actual);
    selection_leave(&inner);
    append_forced(actual);
    selection_enter(&inner, "ROCM_FLASH");
    selection_leave(&inner);
    append_forced(actual);
    selection_leave(&outer);
    append_forced(actual);
    golden_begin_model(g, "nested_force");
    golden_same(g, "nested_force", expected, actual, NULL);
    golden_end(g);
    json_decref(actual);
}

void check_selector(struct golden *g, const json_t *data)
{
    const json_t *names = json_object_get(data, "backend_names");
    const json_t *nested = json_object_get(data, "nested_force");
    size_t i;
    json_t *row;

    json_array_foreach(json_object_get(data, "rows"), i, row)
    {
        golden_begin_model(g, "rows[%zu] %s", i, golden_text(row, "plat", "?"));
        check_row(g, row);
        golden_end(g);
    }
    if (names != NULL) {
        json_t *actual = json_array();
        for (i = 0; i < selection_name_count; i++)
            json_array_append_new(actual, json_string(selection_names[i]));
        golden_begin_model(g, "backend_names");
        golden_same(g, "backend_names", names, actual, NULL);
        golden_end(g);
        json_decref(actual);
    }
    if (nested != NULL)
        check_nested(g, nested);
}
