/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Rows of a block table: writes and truncates them, and tracks the cells to copy to the device. */
#include "table.h"

uint32_t attn__table_first_overflow(const struct attn__table *table, const int64_t *blocks, uint32_t count)
{
    uint64_t bad = 0;

    if (table->dtype == ATTN_INT64)
        return count;
    for (uint32_t i = 0; i < count; i++)
        bad |= ((uint64_t)blocks[i] + ((uint64_t)1 << 31)) >> 32;
    if (bad == 0)
        return count;
    for (uint32_t i = 0; i < count; i++)
        if (blocks[i] != (int32_t)blocks[i])
            return i;
    return count;
}

static void mark(struct attn__table *table, uint32_t row, uint32_t from, uint32_t to)
{
    struct attn__table_row *state = &table->row[row];

    if (table->direct || from >= to)
        return;
    if (state->dirty_from == state->dirty_to) {
        table->dirty[table->dirty_count++] = row;
        state->dirty_from = from;
        state->dirty_to = to;
        return;
    }
    state->dirty_from = from < state->dirty_from ? from : state->dirty_from;
    state->dirty_to = to > state->dirty_to ? to : state->dirty_to;
}

static void write_cells(struct attn__table *table, uint32_t row, uint32_t first, const int64_t *blocks,
                        uint32_t count)
{
    char *at = table->cells + (int64_t)row * table->stride;

    if (table->dtype == ATTN_INT64) {
        memcpy((int64_t *)(void *)at + first, blocks, count * sizeof *blocks);
    } else {
        int32_t *cells = (int32_t *)(void *)at + first;
        for (uint32_t i = 0; i < count; i++)
            cells[i] = (int32_t)blocks[i];
    }
    mark(table, row, first, first + count);
}

void attn__table_truncate(struct attn__table *table, uint32_t row, uint32_t keep)
{
    struct attn__table_row *state = &table->row[row];
    const uint32_t size = table->dtype == ATTN_INT64 ? 8 : 4;

    if (state->filled <= keep)
        return;
    memset(table->cells + (int64_t)row * table->stride + (size_t)keep * size, 0,
           (size_t)(state->filled - keep) * size);
    mark(table, row, keep, state->filled);
    state->filled = keep;
}

void attn__table_shift(struct attn__table *table, uint32_t row, uint32_t cells)
{
    struct attn__table_row *state = &table->row[row];
    const uint32_t size = table->dtype == ATTN_INT64 ? 8 : 4, left = state->filled - cells;
    char *at = table->cells + (int64_t)row * table->stride;

    memmove(at, at + (size_t)cells * size, (size_t)left * size);
    mark(table, row, 0, left);
    attn__table_truncate(table, row, left);
}

void attn__table_write(struct attn__table *table, uint32_t row, uint32_t first, const int64_t *blocks,
                       uint32_t count)
{
    struct attn__table_row *state = &table->row[row];

    if (count == 0)
        return;
    write_cells(table, row, first, blocks, count);
    if (first + count > state->filled)
        state->filled = first + count;
}

void attn__table_set(struct attn__table *table, uint32_t row, const int64_t *blocks, uint32_t start,
                     uint32_t count, uint32_t unchanged)
{
    struct attn__table_row *state = &table->row[row];
    const uint32_t kept = attn__table_kept(state, start, count, unchanged);

    state->start = start;
    attn__table_write(table, row, kept, blocks + start + kept, count - kept);
    attn__table_truncate(table, row, count);
}
