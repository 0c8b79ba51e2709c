/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Draws a mask: bits in rows of bytes or packed, or numbers to add, per head or for all heads. */
#include <math.h>

#include "feature-case.h"
#include "half.h"

/* One stored element of an additive mask, and what it means. */
static double put_number(struct feature_case *c, char *to)
{
    static const float lowest[] = {-65504.0f, -0x1.fep127f, -0x1.fffffep127f};
    uint32_t kind = c->problem.mask - ATTN_MASK_F16, hidden = case_draw(c, 4);
    float value = ((float)case_draw(c, 127) - 63) / 32;

    if (hidden < 2)
        value = hidden == 0 ? -INFINITY : lowest[kind];
    uint16_t half = kind == 0 ? attn__f32_to_f16(value) : attn__f32_to_bf16(value);
    if (kind == 2)
        memcpy(to, &value, sizeof value);
    else
        memcpy(to, &half, sizeof half);
    return hidden < 2 ? -INFINITY : (double)value;
}

static double put_bit(struct feature_case *c, char *row, uint64_t bit)
{
    bool attend = case_draw(c, 3) > 0;
    char mask = (char)(1u << bit % 8);

    row[bit / 8] = (char)(attend ? row[bit / 8] | mask : row[bit / 8] & ~mask);
    return attend ? 0 : -INFINITY;
}

/* One sequence; heads of the arrays of numbers that share a stored row are copies. */
static void fill_sequence(struct feature_case *c, uint32_t seq, char *base, uint32_t heads)
{
    uint32_t rows = (uint32_t)(c->q_offsets[seq + 1] - c->q_offsets[seq]), columns = c->columns[seq];
    uint32_t size = c->problem.mask == ATTN_MASK_F32 ? 4 : 2;

    for (uint32_t h = 0; h < c->problem.heads; h++) {
        for (uint32_t i = 0; i < rows; i++) {
            double *to = c->mask + (((size_t)seq * CASE_HEADS + h) * CASE_ROWS + i) * c->most_columns;
            char *row = base + h * c->tensors.mask_head_stride;
            if (h >= heads) {
                memcpy(to, to - (size_t)CASE_ROWS * c->most_columns, columns * sizeof *to);
                continue;
            }
            row += c->tensors.mask_packed != 0 ? 0 : i * c->tensors.mask_row_stride;
            uint64_t bit = c->tensors.mask_packed != 0 ? (uint64_t)i * columns : 0;
            for (uint32_t k = 0; k < columns; k++)
                to[k] = c->problem.mask == ATTN_MASK_BITS ? put_bit(c, row, bit + k)
                                                          : put_number(c, row + (size_t)k * size);
        }
    }
}

void case_fill_mask(struct feature_case *c)
{
    bool bits = c->problem.mask == ATTN_MASK_BITS, per_head = case_draw(c, 2) == 0;
    bool starts = case_draw(c, 2) == 0;
    struct attn_tensors *t = &c->tensors;
    int64_t head;

    c->most_columns = 1;
    for (uint32_t n = 0; n < CASE_SEQS; n++) {
        uint32_t rows = (uint32_t)(c->q_offsets[n + 1] - c->q_offsets[n]);
        c->columns[n] = c->problem.span == ATTN_SPAN_FULL ? (uint32_t)c->kv_lens[n] : rows;
        c->most_columns = c->columns[n] > c->most_columns ? c->columns[n] : c->most_columns;
    }
    t->mask_packed = bits && case_draw(c, 2) == 0;
    t->mask_row_stride = bits ? c->most_columns / 8 + 1 : 4 * c->most_columns;
    head = t->mask_row_stride * c->problem.max_q;
    t->mask_head_stride = per_head ? head : 0;
    t->mask_seq_stride = head * c->problem.heads;
    c->mask = case_memory(c, (uint64_t)CASE_SEQS * CASE_HEADS * CASE_ROWS * c->most_columns * sizeof(double));
    char *base = case_memory(c, (uint64_t)(CASE_SEQS * t->mask_seq_stride));
    for (uint32_t n = 0; n < CASE_SEQS; n++) {
        c->mask_starts[n] = (CASE_SEQS - 1 - n) * t->mask_seq_stride;
        fill_sequence(c, n, base + (starts ? c->mask_starts[n] : n * t->mask_seq_stride),
                      per_head ? c->problem.heads : 1);
        if (starts && case_draw(c, 4) == 0)
            c->mask_starts[n] = -1;
    }
    t->mask.data = base;
    if (starts) {
        t->mask_starts.data = c->mask_starts;
        t->mask_seq_stride = 1; /* not looked at */
    }
}
