/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fields of metadata as recorded JSON, and the comparison of the two. */
#include "steps.h"

#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "rules.h"

static int64_t element(const struct attn_view *view, const void *from, uint64_t row, uint64_t column)
{
    const char *at = (const char *)from + (int64_t)row * view->stride;

    return view->dtype == ATTN_INT64 ? ((const int64_t *)(const void *)at)[column]
                                     : ((const int32_t *)(const void *)at)[column];
}

static json_t *elements(const struct attn_view *view)
{
    json_t *list = json_array();
    uint64_t rows = view->rank == 2 ? view->shape[0] : 1;
    uint64_t columns = view->rank == 2 ? view->shape[1] : view->shape[0];
    uint64_t row = columns * (view->dtype == ATTN_INT64 ? 8 : 4);
    uint64_t size = rows > 1 ? (rows - 1) * (uint64_t)view->stride + row : row * rows;
    void *copy = golden_memory((size_t)size + 1, 1);
    /* What the device has; lists are the host's alone. */
    bool there = view->kind == ATTN_VIEW_ARRAY && golden_read(&view->device, copy, size);

    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++)
            json_array_append_new(list, json_integer(element(view, there ? copy : view->host, r, c)));
    free(copy);
    return list;
}

static const char *dtype_name(int64_t dtype)
{
    static const struct {
        int64_t dtype;
        const char *name;
    } names[] = {{ATTN_F16, "float16"},
                 {ATTN_BF16, "bfloat16"},
                 {ATTN_F32, "float32"},
                 {ATTN_E4M3, "float8_e4m3fn"},
                 {ATTN_E5M2, "float8_e5m2"}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].dtype == dtype)
            return names[i].name;
    return "?";
}

json_t *step_view(const struct attn_view *view, const json_t *like)
{
    if (view->kind == ATTN_VIEW_NULL)
        return json_null();
    if (view->kind == ATTN_VIEW_NUMBER && json_is_boolean(like))
        return json_boolean(view->value);
    if (view->kind == ATTN_VIEW_NUMBER && json_is_string(like))
        return json_string(dtype_name(view->value));
    if (view->kind == ATTN_VIEW_NUMBER)
        return json_integer(view->value);
    if (view->kind == ATTN_VIEW_LIST || json_is_array(like))
        return elements(view);
    json_t *shape = golden_list_u64(view->shape, view->rank);
    return json_pack("{s:s, s:o, s:o}", "d", view->dtype == ATTN_INT64 ? "int64" : "int32", "s", shape, "v",
                     elements(view));
}

/* The recorded maps are empty: what is compared is whether there are any. */
static json_t *write_maps(const struct attn_metadata *metadata)
{
    struct attn_view sources;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&sources);
    /* Metadata without modalities has no such field. */
    if (attn_metadata_get(metadata, ATTN_FIELD_MULTI_MODAL_SOURCES, 0, &sources, &err) != ATTN_OK)
        return json_null();
    if (sources.kind == ATTN_VIEW_NULL)
        return json_null();
    return sources.shape[0] == 0 ? json_object() : json_pack("{s:o}", "image", elements(&sources));
}

json_t *step_field(const struct attn_metadata *metadata, const char *name, const json_t *like)
{
    struct attn_view view;
    struct attn_error err;

    if (strcmp(name, "multi_modal_placeholder_index_maps") == 0)
        return write_maps(metadata);
    for (uint32_t i = 1; i < ATTN_FIELDS; i++) {
        if (attn_field_name(i) == NULL || strcmp(attn_field_name(i), name) != 0)
            continue;
        ATTN_INIT(&err);
        ATTN_INIT(&view);
        if (attn_metadata_get(metadata, i, 0, &view, &err) != ATTN_OK)
            return json_string(err.message);
        return step_view(&view, like);
    }
    return json_string("no such field");
}

json_t *step_fields(const struct attn_metadata *metadata, const json_t *like)
{
    json_t *all = json_object();
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)like, key, value)
        json_object_set_new(all, key, step_field(metadata, key, value));
    return all;
}

/* Rule: under a graph the cells beyond a row's own blocks are zero. */
static void clear_stale(const struct step *step, size_t first_row, json_t *expected)
{
    json_t *table = json_object_get(expected, "block_tables");
    json_t *values = json_object_get(table, "v");
    size_t rows = (size_t)json_integer_value(json_array_get(json_object_get(table, "s"), 0));
    size_t columns = (size_t)json_integer_value(json_array_get(json_object_get(table, "s"), 1));
    bool hit = false;

    if (step->pad < 0 || !json_is_object(table))
        return;
    for (size_t r = 0; r < rows; r++) {
        size_t index = first_row + r;
        size_t own = index < step->count ? (size_t)step_own_cells(step, index) : 0;
        for (size_t c = own; c < columns; c++) {
            if (json_integer_value(json_array_get(values, r * columns + c)) == 0)
                continue;
            json_array_set_new(values, r * columns + c, json_integer(0));
            hit = true;
        }
    }
    if (hit)
        rules_hit(RULE_STALE_CELLS);
}

void step_check_fields(struct golden *g, const char *what, const struct step *step, size_t first_row,
                       const json_t *expected, const struct attn_metadata *metadata)
{
    static const char *const ignored[] = {"device", NULL};
    json_t *mended = json_deep_copy(expected);
    json_t *actual = step_fields(metadata, expected);

    clear_stale(step, first_row, mended);
    golden_same(g, what, mended, actual, ignored);
    json_decref(mended);
    json_decref(actual);
}

bool step_same_presence(struct golden *g, const char *what, const json_t *expected, bool actual)
{
    bool wanted = expected != NULL && !json_is_null(expected);

    if (wanted != actual)
        golden_differ(g, "%s is %s, recorded is %s", what, actual ? "there" : "missing",
                      wanted ? "there" : "none");
    return wanted == actual && wanted;
}
