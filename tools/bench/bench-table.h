/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A table whose rows are printed as they are measured, so that widths are known before the cells are: of its
 * columns those that fit the terminal.
 */
#ifndef BENCH_TABLE_H
#define BENCH_TABLE_H

#include <stdbool.h>

enum { BENCH_COLUMNS = 12 };

struct bench_column {
    const char *title;
    unsigned width; /* of its cells; 0: no row has anything to say in it */
    unsigned least; /* cells may be shortened to so many characters; 0: they may not */
    unsigned rank;  /* where room is short, the highest goes first; 0: stays, and is shortened last */
    bool left;      /* texts; numbers are to the right */
};

struct bench_table {
    unsigned count;
    struct bench_column column[BENCH_COLUMNS];
    unsigned width[BENCH_COLUMNS]; /* 0: left out */
    bool narrowed;                 /* a column that has something to say is left out */
};

/* Chooses the columns. */
void bench_table_init(struct bench_table *table, const struct bench_column *columns, unsigned count);
void bench_table_titles(const struct bench_table *table);
void bench_table_row(const struct bench_table *table, const char *const *cells);

#endif
