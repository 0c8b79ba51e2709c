/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A table that is printed row by row, in the columns that fit the terminal. */
#include "bench-table.h"

#include <string.h>

#include "output.h"

enum { GAP = 2, LONG = 32 };

static unsigned total_width(const struct bench_table *table)
{
    unsigned total = 0;

    for (unsigned i = 0; i < table->count; i++)
        total += table->width[i] != 0 ? table->width[i] + GAP : 0;
    return total > 0 ? total - GAP : 0;
}

/* Takes what is missing from one column, or the column. */
static void give_way(struct bench_table *table, unsigned i, unsigned missing)
{
    const struct bench_column *column = &table->column[i];

    if (column->least != 0 && table->width[i] >= column->least + missing) {
        table->width[i] -= missing;
    } else if (column->rank != 0) {
        table->width[i] = 0;
        table->narrowed = true;
    } else if (column->least != 0 && table->width[i] > column->least) {
        table->width[i] = column->least;
    }
}

/* Long texts are shortened before anything is left out. Columns of one rank go together; those of rank 0 are
 * shortened one after the other. */
static void fit(struct bench_table *table, unsigned room)
{
    for (unsigned i = 0; i < table->count; i++) {
        const unsigned total = total_width(table), missing = total > room ? total - room : 0;
        if (table->column[i].least != 0 && table->width[i] > LONG)
            table->width[i] -= missing < table->width[i] - LONG ? missing : table->width[i] - LONG;
    }
    for (unsigned rank = table->count + 1; rank-- > 0;) {
        const bool over = total_width(table) > room;
        for (unsigned i = 0; i < table->count && over; i++) {
            const unsigned total = total_width(table);
            if (table->column[i].rank == rank && table->width[i] != 0 && (rank != 0 || total > room))
                give_way(table, i, total > room ? total - room : 0);
        }
    }
}

void bench_table_init(struct bench_table *table, const struct bench_column *columns, unsigned count)
{
    const unsigned room = output_columns();
    unsigned last = 0;

    *table = (struct bench_table){.count = count};
    for (unsigned i = 0; i < count; i++) {
        unsigned title = (unsigned)strlen(columns[i].title);
        table->column[i] = columns[i];
        if (columns[i].width != 0)
            table->width[i] = columns[i].width > title ? columns[i].width : title;
    }
    fit(table, room);
    for (unsigned i = 0; i < count; i++)
        last = table->width[i] != 0 ? i : last;
    if (total_width(table) < room && table->column[last].left)
        table->width[last] += room - total_width(table);
}

/* A text that is too long keeps its beginning and its end: "paged_..f16_avx2". */
static void print_text(const char *cell, unsigned width, bool last)
{
    unsigned size = (unsigned)strlen(cell);

    if (size > width) {
        unsigned head = (width - 2) / 2, tail = width - 2 - head;
        fprintf(output_stream(), "%.*s..%s", (int)head, cell, cell + size - tail);
    } else {
        fprintf(output_stream(), "%-*s", last ? 0 : (int)width, cell);
    }
}

static void print_cells(const struct bench_table *table, const char *const *cells)
{
    unsigned last = 0;

    for (unsigned i = 0; i < table->count; i++)
        last = table->width[i] != 0 ? i : last;
    for (unsigned i = 0; i <= last; i++) {
        if (table->width[i] == 0)
            continue;
        if (table->column[i].left)
            print_text(cells[i], table->width[i], i == last);
        else
            fprintf(output_stream(), "%*s", (int)table->width[i], cells[i]);
        fputs(i < last ? "  " : "\n", output_stream());
    }
}

void bench_table_titles(const struct bench_table *table)
{
    const char *titles[BENCH_COLUMNS];

    for (unsigned i = 0; i < table->count; i++)
        titles[i] = table->column[i].title;
    print_cells(table, titles);
}

void bench_table_row(const struct bench_table *table, const char *const *cells)
{
    print_cells(table, cells);
    fflush(output_stream());
}
