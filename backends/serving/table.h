/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A block table whose rows are kept from step to step, in host memory and, if the device has its own, there
 * too, so that only changed cells are copied. Cells behind the blocks of a row are always 0.
 */
#ifndef ATTN_SERVING_TABLE_H
#define ATTN_SERVING_TABLE_H

#include <stdbool.h>

#include "attn/layer-types.h"

/* Blocks [start, start + filled) of a sequence's list lie in cells [0, filled). */
struct attn__table_row {
    uint32_t filled;
    uint32_t start;
    uint32_t dirty_from; /* cells [dirty_from, dirty_to) have to be copied to the device; equal: none */
    uint32_t dirty_to;
};

struct attn__table {
    char *cells;               /* in host memory */
    struct attn_buffer device; /* where kernels read; the memory of `cells` if direct */
    int64_t device_stride;     /* bytes from row to row in `device` */
    int64_t stride;            /* bytes from row to row in `cells` */
    struct attn__table_row *row;
    uint32_t *dirty; /* rows with cells to copy */
    uint32_t dirty_count;
    uint32_t rows;
    uint32_t width; /* columns */
    uint32_t dtype; /* ATTN_INT32 or ATTN_INT64 */
    bool direct;
};

static inline const void *attn__table_cells(const struct attn__table *table, uint32_t row)
{
    return table->cells + (int64_t)row * table->stride;
}

static inline int64_t attn__table_get(const struct attn__table *table, uint32_t row, uint32_t cell)
{
    const void *at = attn__table_cells(table, row);

    return table->dtype == ATTN_INT64 ? ((const int64_t *)at)[cell] : ((const int32_t *)at)[cell];
}

/* Index of the first of `count` block numbers that do not fit a cell, or `count` if all do. */
uint32_t attn__table_first_overflow(const struct attn__table *table, const int64_t *blocks, uint32_t count);

/* How many leading cells need not be written again when the row is to show the list from `start` on. */
static inline uint32_t attn__table_kept(const struct attn__table_row *row, uint32_t start, uint32_t count,
                                        uint32_t unchanged)
{
    uint32_t kept = unchanged > start ? unchanged - start : 0;

    if (row->start != start)
        return 0;
    kept = kept < row->filled ? kept : row->filled;
    return kept < count ? kept : count;
}

/* Whether a row shows exactly these blocks already. */
static inline bool attn__table_shows(const struct attn__table_row *row, uint32_t start, uint32_t count,
                                     uint32_t unchanged)
{
    return row->filled == count && attn__table_kept(row, start, count, unchanged) == count &&
           row->start == start;
}

/*
 * Makes a row show blocks [start, start + count) of the list; those below `unchanged` are in it already if it
 * began with the same block. Unused cells become 0. The caller has checked the numbers.
 */
void attn__table_set(struct attn__table *table, uint32_t row, const int64_t *blocks, uint32_t start,
                     uint32_t count, uint32_t unchanged);
/* Writes `count` cells from `first` on, which is not above `filled` of the row. */
void attn__table_write(struct attn__table *table, uint32_t row, uint32_t first, const int64_t *blocks,
                       uint32_t count);
/* Removes the first `cells` cells of a row, which has at least as many, and moves the others to the front. */
void attn__table_shift(struct attn__table *table, uint32_t row, uint32_t cells);
/* Sets all cells behind the first `keep` to 0. */
void attn__table_truncate(struct attn__table *table, uint32_t row, uint32_t keep);

#endif
