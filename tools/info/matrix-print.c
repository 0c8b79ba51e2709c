/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The support matrix as text and as a page of documentation. */
#include "matrix.h"

#include <stdlib.h>
#include <string.h>

static const char *cell_text(const struct matrix_column *column, unsigned row)
{
    const struct answer *cell = &column->cells[row];

    return !column->known ? "?" : !cell->served ? "-" : cell->speed == ATTN_SPEED_GENERIC ? "generic" : "yes";
}

static enum style cell_style(unsigned column, const char *cell)
{
    return column == 0                    ? STYLE_PLAIN
           : strcmp(cell, "yes") == 0     ? STYLE_GOOD
           : strcmp(cell, "generic") == 0 ? STYLE_BAD
                                          : STYLE_PLAIN;
}

static void print_words(const char *title, const struct words *words)
{
    char *text = words_join(words);

    fprintf(output_stream(), "  %-11s", title);
    output_wrap(13, 13, text[0] != '\0' ? text : "-");
    free(text);
}

static void print_legend(const struct matrix *matrix, bool numbered)
{
    FILE *out = output_stream();

    for (unsigned i = 0; i < matrix->column_count; i++) {
        const struct matrix_column *column = &matrix->columns[i];
        const struct attn_backend_record *backend = column->backend;
        if (numbered)
            fprintf(out, "%u ", i + 1);
        fprintf(out, "%s%s%s\n", backend->name, backend->has_device ? " on " : ", without a device",
                backend->has_device ? backend->device_name : "");
        if (!column->known) {
            fputs("  ", out);
            output_wrap(2, 2, column->problem);
            continue;
        }
        print_words("head dims:", &column->head_dims);
        print_words("blocks:", &column->blocks);
    }
}

/* Columns `first` to `last` - 1. */
static void print_part(const struct matrix *matrix, unsigned first, unsigned last, bool numbered)
{
    const char *cells[TABLE_COLUMNS] = {""};
    char numbers[TABLE_COLUMNS][12];
    struct table table;

    for (unsigned i = first; i < last; i++) {
        snprintf(numbers[i - first], sizeof numbers[0], "%u", i + 1);
        cells[1 + i - first] = numbered ? numbers[i - first] : matrix->columns[i].backend->name;
    }
    fputc('\n', output_stream());
    table_init(&table, 1 + last - first, cells);
    table.style = cell_style;
    for (unsigned i = 0; i < matrix->row_count; i++) {
        cells[0] = matrix->rows[i].label;
        for (unsigned j = first; j < last; j++)
            cells[1 + j - first] = cell_text(&matrix->columns[j], i);
        table_add(&table, cells);
    }
    table_finish(&table);
}

/* Of the widest cell below a number: "yes", or "generic". */
static unsigned cell_width(const struct matrix *matrix)
{
    for (unsigned i = 0; i < matrix->column_count; i++)
        for (unsigned j = 0; j < matrix->row_count && matrix->columns[i].known; j++)
            if (matrix->columns[i].cells[j].speed == ATTN_SPEED_GENERIC)
                return sizeof "generic" - 1;
    return sizeof "yes" - 1;
}

void matrix_text(const struct matrix *matrix)
{
    enum { GAP = 2 };
    size_t label = 0, names = 0;

    for (unsigned i = 0; i < matrix->row_count; i++)
        if (strlen(matrix->rows[i].label) > label)
            label = strlen(matrix->rows[i].label);
    for (unsigned i = 0; i < matrix->column_count; i++)
        names += GAP + strlen(matrix->columns[i].backend->name);
    bool numbered = label + names > output_columns() || matrix->column_count + 1 > TABLE_COLUMNS;
    unsigned most =
        numbered ? (output_columns() - (unsigned)label) / (GAP + cell_width(matrix)) : matrix->column_count;
    if (most > TABLE_COLUMNS - 1)
        most = TABLE_COLUMNS - 1;
    print_legend(matrix, numbered);
    for (unsigned first = 0; first < matrix->column_count; first += most) {
        unsigned last = first + most < matrix->column_count ? first + most : matrix->column_count;
        print_part(matrix, first, last, numbered);
    }
}

/* A cell of a Markdown table. */
static void print_cell(const char *text)
{
    FILE *out = output_stream();

    fputs(" ", out);
    for (; *text != '\0'; text++) {
        if (strchr("|\\`*_<", *text) != NULL)
            fputc('\\', out);
        fputc(*text, out);
    }
    fputs(" |", out);
}

static void print_sizes(const struct matrix *matrix, const char *title, bool blocks)
{
    fprintf(output_stream(), "| %s |", title);
    for (unsigned i = 0; i < matrix->column_count; i++) {
        const struct matrix_column *column = &matrix->columns[i];
        char *text = words_join(blocks ? &column->blocks : &column->head_dims);
        print_cell(!column->known ? "?" : text[0] != '\0' ? text : "-");
        free(text);
    }
    fputc('\n', output_stream());
}

void matrix_markdown(const struct matrix *matrix)
{
    FILE *out = output_stream();

    fputs("# What each backend serves\n\n"
          "Printed by `attn-info matrix --markdown`, which asks every backend the question that selection "
          "asks.\nOne key is varied at a time around a problem that is served; keys and values are those of "
          "the problem\nstring. What only generic kernels serve, many times slower than optimised ones, is "
          "`generic`.\n`attn-info explain KEY=VALUE...` answers for any combination, with reasons and "
          "kernels.\n\n| |",
          out);
    for (unsigned i = 0; i < matrix->column_count; i++)
        print_cell(matrix->columns[i].backend->name);
    fputs("\n| --- |", out);
    for (unsigned i = 0; i < matrix->column_count; i++)
        fputs(" --- |", out);
    fputc('\n', out);
    print_sizes(matrix, "`head_dim`", false);
    print_sizes(matrix, "`block`", true);
    for (unsigned i = 0; i < matrix->row_count; i++) {
        fprintf(out, "| `%s` |", matrix->rows[i].label);
        for (unsigned j = 0; j < matrix->column_count; j++)
            print_cell(cell_text(&matrix->columns[j], i));
        fputc('\n', out);
    }
    for (unsigned i = 0; i < matrix->column_count; i++)
        if (!matrix->columns[i].known)
            fprintf(out, "\n`%s`: %s.\n", matrix->columns[i].backend->name, matrix->columns[i].problem);
}
