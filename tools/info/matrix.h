/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The support matrix: a row for each value of a key, a column for each backend. */
#ifndef MATRIX_H
#define MATRIX_H

#include "capability.h"
#include "info.h"

struct matrix_row {
    const char *key;
    char *value;
    char *label;
};

struct matrix_column {
    const struct attn_backend_record *backend;
    bool known;    /* false: nothing could be asked, see problem */
    char *problem; /* or NULL */
    struct words head_dims;
    struct words blocks;
    struct answer *cells; /* one a row */
};

struct matrix {
    struct matrix_row *rows;
    unsigned row_count;
    struct matrix_column *columns;
    unsigned column_count;
};

/* For a terminal of 80 columns: with many backends numbers stand for their names. */
void matrix_text(const struct matrix *matrix);
/* A page of documentation. */
void matrix_markdown(const struct matrix *matrix);

#endif
