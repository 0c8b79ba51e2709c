/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info matrix: what every backend says to every value of every key, as text, JSON or Markdown. */
#include "matrix.h"

#include <stdlib.h>
#include <string.h>

/* Keys that others set together: kv stands for k and v, scales for k_scale and v_scale. */
static bool is_row(const char *key)
{
    static const char *const parts[] = {"k", "v", "k_scale", "v_scale"};

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(parts[i], key) == 0)
            return false;
    return true;
}

static void add_rows(struct matrix *matrix)
{
    const char *key;

    for (uint32_t i = 0; (key = attn_problem_key(i, NULL, NULL)) != NULL; i++) {
        struct words values = {0};
        if (!is_row(key))
            continue;
        key_values(key, &values);
        for (unsigned j = 0; j < values.count; j++) {
            matrix->rows = need_memory(matrix->rows, (size_t)matrix->row_count + 1, sizeof *matrix->rows);
            matrix->rows[matrix->row_count++] =
                (struct matrix_row){key, need_copy(values.items[j]), key_label(key, values.items[j])};
        }
        words_finish(&values);
    }
}

static void fill_column(const struct matrix *matrix, struct matrix_column *column,
                        struct attn_context *context)
{
    const struct attn_backend_record *backend = column->backend;
    struct subject subject;
    struct attn_error err;

    ATTN_INIT(&err);
    column->cells = need_memory(NULL, matrix->row_count, sizeof *column->cells);
    memset(column->cells, 0, matrix->row_count * sizeof *column->cells);
    column->known =
        subject_init(&subject, context, backend->name, backend->has_device ? &backend->device : NULL, &err);
    if (!column->known) {
        column->problem =
            need_copy(err.message[0] != '\0' ? err.message : "it serves none of the usual problems");
        return;
    }
    subject_values(&subject, "head_dim", &column->head_dims, NULL);
    subject_values(&subject, "block", &column->blocks, NULL);
    for (unsigned i = 0; i < matrix->row_count; i++)
        subject_judge(&subject, matrix->rows[i].key, matrix->rows[i].value, &column->cells[i]);
}

static void matrix_init(struct matrix *matrix, struct attn_context *context, const struct attn_report *report)
{
    const struct attn_backend_record *backend;

    *matrix = (struct matrix){0};
    add_rows(matrix);
    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++) {
        if (!backend_can_be_asked(report, i))
            continue;
        matrix->columns =
            need_memory(matrix->columns, (size_t)matrix->column_count + 1, sizeof *matrix->columns);
        struct matrix_column *column = &matrix->columns[matrix->column_count++];
        *column = (struct matrix_column){.backend = backend};
        fill_column(matrix, column, context);
    }
}

static void matrix_finish(struct matrix *matrix)
{
    for (unsigned i = 0; i < matrix->row_count; i++) {
        free(matrix->rows[i].value);
        free(matrix->rows[i].label);
    }
    for (unsigned i = 0; i < matrix->column_count; i++) {
        words_finish(&matrix->columns[i].head_dims);
        words_finish(&matrix->columns[i].blocks);
        free(matrix->columns[i].cells);
        free(matrix->columns[i].problem);
    }
    free(matrix->rows);
    free(matrix->columns);
}

static void json_words(struct jsonout *json, const char *key, const struct words *words)
{
    jsonout_array(json, key);
    for (unsigned i = 0; i < words->count; i++)
        jsonout_string(json, NULL, words->items[i]);
    jsonout_close(json);
}

static void json_row(struct jsonout *json, const struct matrix *matrix, unsigned row)
{
    jsonout_object(json, NULL);
    jsonout_string(json, "key", matrix->rows[row].key);
    jsonout_string(json, "value", matrix->rows[row].value);
    jsonout_array(json, "cells");
    for (unsigned i = 0; i < matrix->column_count; i++) {
        const struct matrix_column *column = &matrix->columns[i];
        const struct answer *cell = &column->cells[row];
        if (!column->known)
            continue;
        jsonout_object(json, NULL);
        jsonout_string(json, "backend", column->backend->name);
        jsonout_bool(json, "served", cell->served);
        jsonout_string(json, "speed", speed_name(cell->speed));
        jsonout_string(json, "reason", cell->served ? NULL : reason_or_null(cell->reason));
        jsonout_string(json, "text", cell->served ? NULL : text_or_null(cell->text));
        jsonout_close(json);
    }
    jsonout_close(json);
    jsonout_close(json);
}

static int matrix_json(const struct matrix *matrix, int code)
{
    struct jsonout *json = jsonout_create("matrix");

    jsonout_array(json, "backends");
    for (unsigned i = 0; i < matrix->column_count; i++) {
        const struct matrix_column *column = &matrix->columns[i];
        jsonout_object(json, NULL);
        jsonout_string(json, "name", column->backend->name);
        jsonout_string(json, "device", column->backend->has_device ? column->backend->device_name : NULL);
        json_words(json, "head_dims", &column->head_dims);
        json_words(json, "block_sizes", &column->blocks);
        jsonout_string(json, "problem", column->problem);
        jsonout_close(json);
    }
    jsonout_close(json);
    jsonout_array(json, "rows");
    for (unsigned i = 0; i < matrix->row_count; i++)
        json_row(json, matrix, i);
    jsonout_close(json);
    return json_end(json, code);
}

int matrix_command(const struct info *info)
{
    struct attn_report *report;
    struct matrix matrix;
    int code = report_everything(info, &report);

    if (code != EXIT_YES)
        return code;
    code = usable_or_missing(report);
    matrix_init(&matrix, info->context, report);
    if (info->common.json)
        code = matrix_json(&matrix, code);
    else if (info->markdown)
        matrix_markdown(&matrix);
    else
        matrix_text(&matrix);
    matrix_finish(&matrix);
    attn_report_destroy(report);
    return code;
}
