/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench compare: two documents of results, row by row. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench-units.h"
#include "bench.h"

enum { NAME_LEAST = 12 };

/* What is compared of a row; NAN = null. */
struct side {
    bool there;
    double us, roof_ratio;
};

struct pair {
    const char *name;
    struct side side[2];
};

/* Rows of both files, those of the first first. */
struct pairs {
    size_t count;
    struct pair *pair;
    json_t *document[2];
};

/* ---------------------------------------------------------------- reading */

/* A number above zero, or null. */
static bool take_number(const json_t *value, double *out)
{
    *out = json_is_number(value) ? json_number_value(value) : (double)NAN;
    return json_is_null(value) || *out > 0;
}

static struct pair *pair_find(struct pairs *pairs, const char *name)
{
    for (size_t i = 0; i < pairs->count; i++)
        if (strcmp(pairs->pair[i].name, name) == 0)
            return &pairs->pair[i];
    pairs->pair = need_memory(pairs->pair, pairs->count + 1, sizeof *pairs->pair);
    pairs->pair[pairs->count] = (struct pair){.name = name};
    return &pairs->pair[pairs->count++];
}

static bool row_take(struct pairs *pairs, unsigned side, const char *path, size_t index, const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "name"));
    struct side taken = {.there = true};
    const char *bad = NULL;

    if (name == NULL)
        bad = "has no name";
    else if (!take_number(json_object_get(json_object_get(row, "us"), "median"), &taken.us))
        bad = "has no us.median; accepted are numbers above 0 and null";
    else if (!take_number(json_object_get(row, "roof_ratio"), &taken.roof_ratio))
        bad = "has no roof_ratio; accepted are numbers above 0 and null";
    struct pair *pair = bad == NULL ? pair_find(pairs, name) : NULL;
    if (pair != NULL && pair->side[side].there)
        bad = "has the name of an earlier row";
    if (bad != NULL) {
        complain("%s: rows[%zu]%s%s%s %s", path, index, name != NULL ? " \"" : "", name != NULL ? name : "",
                 name != NULL ? "\"" : "", bad);
        return false;
    }
    pair->side[side] = taken;
    return true;
}

static bool file_take(struct pairs *pairs, unsigned side, const char *path)
{
    json_error_t error;
    FILE *file = fopen(path, "re");

    if (file == NULL) {
        complain("%s: %s; give two files that attn-bench --json wrote", path, strerror(errno));
        return false;
    }
    json_t *document = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    pairs->document[side] = document;
    if (document == NULL) {
        complain("%s: line %d: %s; accepted is what attn-bench --json prints", path, error.line, error.text);
        return false;
    }
    const json_t *rows = json_object_get(document, "rows");
    if (json_integer_value(json_object_get(document, "schema_version")) != 1 || !json_is_array(rows)) {
        complain("%s: no object with schema_version 1 and an array rows; accepted is what attn-bench --json "
                 "prints",
                 path);
        return false;
    }
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (!row_take(pairs, side, path, i, json_array_get(rows, i)))
            return false;
    return true;
}

/* ---------------------------------------------------------------- printing */

static double us_ratio(const struct pair *pair)
{
    return pair->side[0].there && pair->side[1].there ? pair->side[1].us / pair->side[0].us : (double)NAN;
}

/* "missing" where the row is not there, "-" where it has no number. */
static const char *time_cell(char text[UNIT_TEXT], const struct side *side)
{
    return side->there ? unit_text(text, side->us, unit_of_time(side->us)) : "missing";
}

static const char *share_cell(char text[UNIT_TEXT], const struct side *side)
{
    return side->there ? share_text(text, side->roof_ratio) : "missing";
}

/* Three decimals, so that a per cent can be seen. */
static const char *ratio_cell(char text[UNIT_TEXT], double ratio)
{
    if (isnan(ratio))
        return "-";
    snprintf(text, UNIT_TEXT, "%.3f", ratio);
    return text;
}

static void print_text(const struct pairs *pairs)
{
    enum { NAME, TIME_A, TIME_B, RATIO, SHARE_A, SHARE_B, CELLS };
    unsigned name = 1;

    for (size_t i = 0; i < pairs->count; i++)
        name = strlen(pairs->pair[i].name) > name ? (unsigned)strlen(pairs->pair[i].name) : name;
    const unsigned width = sizeof "missing" - 1;
    const struct bench_column columns[CELLS] = {
        [NAME] = {"case", name, NAME_LEAST, 0, true}, [TIME_A] = {"time A", width, 0, 3, false},
        [TIME_B] = {"time B", width, 0, 3, false},    [RATIO] = {"B / A", sizeof "1.000" - 1, 0, 0, false},
        [SHARE_A] = {"share A", width, 0, 2, false},  [SHARE_B] = {"share B", width, 0, 2, false},
    };
    struct bench_table table;

    bench_table_init(&table, columns, CELLS);
    bench_table_titles(&table);
    for (size_t i = 0; i < pairs->count; i++) {
        const struct pair *pair = &pairs->pair[i];
        char text[5][UNIT_TEXT];
        const char *cells[CELLS] = {
            [NAME] = pair->name,
            [TIME_A] = time_cell(text[0], &pair->side[0]),
            [TIME_B] = time_cell(text[1], &pair->side[1]),
            [RATIO] = ratio_cell(text[2], us_ratio(pair)),
            [SHARE_A] = share_cell(text[3], &pair->side[0]),
            [SHARE_B] = share_cell(text[4], &pair->side[1]),
        };
        bench_table_row(&table, cells);
    }
    fputc('\n', output_stream());
    output_wrap(0, 0,
                "B / A: the median time of B divided by that of A. share: what was reached of the ceiling, "
                "to be looked "
                "at first where the machine was shared or is another one.");
}

static void add_pair(struct jsonout *json, const struct pair *pair)
{
    const struct side *side = pair->side;

    jsonout_object(json, NULL);
    jsonout_string(json, "name", pair->name);
    jsonout_string(json, "missing", !side[0].there ? "a" : !side[1].there ? "b" : NULL);
    jsonout_real(json, "us_ratio", us_ratio(pair));
    jsonout_real(json, "us_a", side[0].there ? side[0].us : (double)NAN);
    jsonout_real(json, "us_b", side[1].there ? side[1].us : (double)NAN);
    jsonout_real(json, "roof_ratio_a", side[0].there ? side[0].roof_ratio : (double)NAN);
    jsonout_real(json, "roof_ratio_b", side[1].there ? side[1].roof_ratio : (double)NAN);
    jsonout_close(json);
}

static bool print_json(const struct pairs *pairs, char **paths)
{
    struct jsonout *json = jsonout_create("compare");

    jsonout_string(json, "a", paths[0]);
    jsonout_string(json, "b", paths[1]);
    jsonout_array(json, "rows");
    for (size_t i = 0; i < pairs->count; i++)
        add_pair(json, &pairs->pair[i]);
    jsonout_close(json);
    return jsonout_finish(json, output_stream());
}

int compare_mode(struct bench *bench)
{
    struct pairs pairs = {0};
    int code = EXIT_YES;

    if (bench->arg_count != 2) {
        complain("mode compare needs two files that attn-bench --json wrote, as in attn-bench compare A.json "
                 "B.json; "
                 "%u %s given",
                 bench->arg_count, bench->arg_count == 1 ? "is" : "are");
        return EXIT_USAGE;
    }
    if (!file_take(&pairs, 0, bench->args[0]) || !file_take(&pairs, 1, bench->args[1]))
        code = EXIT_USAGE;
    else if (!bench->common.json)
        print_text(&pairs);
    else if (!print_json(&pairs, bench->args))
        code = EXIT_NO;
    free(pairs.pair);
    json_decref(pairs.document[0]);
    json_decref(pairs.document[1]);
    return code;
}
