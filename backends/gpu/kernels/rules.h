/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Rules that change a score: explicit masks, soft cap, ALiBi; and the attention sink of a row. */
#ifndef ATTN_GPU_RULES_H
#define ATTN_GPU_RULES_H

#include "sequence.h"

/* One query token and head: what it sees, and the mask's row for it. */
struct gpu_row {
    uint32_t lo, hi; /* keys in reach, which may be in invalid blocks; a square mask is not read for it */
    uint32_t unmasked_lo,
        unmasked_hi; /* keys that the row sees where the explicit mask does not cover them */
    int64_t position;
    float slope;
    uint64_t mask; /* address of the mask's row, 0 = this sequence has none */
    uint64_t bit;  /* bits: of column 0, counted from there */
    int64_t first; /* position of column 0 */
    int64_t columns;
    bool square;
};

GPU_INLINE void gpu_mask_row(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t i,
                             uint32_t head, struct gpu_row *row)
{
    const struct gpu_mask *mask = &run->mask;
    const int64_t start = mask->starts != 0 ? GPU_I64(mask->starts)[s->index] : s->index * mask->seq_stride;

    if (mask->starts != 0 && start < 0)
        return;
    row->columns = row->square ? s->q_len : s->all_keys;
    row->first = row->square ? (int64_t)s->all_keys - s->q_len : 0;
    row->mask = mask->base + (uint64_t)(start + head * mask->head_stride);
    if (mask->packed != 0)
        row->bit = (uint64_t)i * (uint64_t)row->columns;
    else
        row->mask += (uint64_t)(i * mask->row_stride);
}

GPU_INLINE struct gpu_row gpu_row(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t i,
                                  uint32_t head)
{
    struct attn_visible unmasked = s->visible;
    struct gpu_row row;

    row.position = gpu_position(run, s, i);
    row.slope = run->slopes != 0 ? GPU_F32(run->slopes)[head] : 0;
    row.mask = row.bit = 0;
    row.first = row.columns = 0;
    row.square = run->problem.span == ATTN_SPAN_SQUARE;
    gpu_visible_find(&s->visible, row.position, &row.lo, &row.hi);
    row.unmasked_lo = row.lo;
    row.unmasked_hi = row.hi;
    if (run->mask.base != 0) {
        unmasked.square = -1;
        gpu_visible_find(&unmasked, row.position, &row.unmasked_lo, &row.unmasked_hi);
        gpu_mask_row(run, s, i, head, &row);
    }
    return row;
}

/* Minus infinity and the lowest number of the type hide a key. */
GPU_INLINE bool gpu_hides(uint32_t dtype, float value)
{
    const float lowest = dtype == ATTN_F16    ? -65504.0f
                         : dtype == ATTN_BF16 ? gpu_f32_of_bits(0xff7f0000u)
                                              : gpu_f32_of_bits(0xff7fffffu);

    return value <= lowest;
}

/*
 * Whether a row sees a key of [lo, hi) that exists; *bias is what is added to its score. Causality and window
 * decide only where the explicit mask does not.
 */
GPU_INLINE bool gpu_sees(const struct gpu_run *run, const struct gpu_sequence *s, const struct gpu_row *row,
                         uint32_t key, double *bias)
{
    const int64_t position = attn__cp_position(&s->visible.shard, key);
    const int64_t column = position - row->first;
    const bool covered = row->mask != 0 && column >= 0 && column < row->columns;
    double value = 0;

    if (covered && run->mask.dtype == 0) {
        const uint64_t bit = row->bit + (uint64_t)column;
        if ((GPU_U8(row->mask)[bit / 8] >> (bit % 8) & 1) == 0)
            return false;
    } else if (covered) {
        const uint32_t dtype = run->mask.dtype;
        const float number = gpu_load(dtype, GPU_U8(row->mask) + column * (int64_t)GPU_SIZE(dtype));
        if (gpu_hides(dtype, number))
            return false;
        value = (double)number;
    }
    if (!(covered && row->square) && (key < row->unmasked_lo || key >= row->unmasked_hi))
        return false;
    if (run->problem.alibi == ATTN_ALIBI_MASK) {
        value *= (double)row->slope;
    } else if (run->slopes != 0) {
        /* Positions are integers that a double holds; a token of a square mask is where its query is. */
        int64_t at = position;
        if (covered && row->square && run->batch.positions != 0)
            at = gpu_given_position(run, s->row + column);
        const int64_t away = at - row->position;
        const bool back = run->problem.alibi == ATTN_ALIBI_DISTANCE && away > 0;
        value += (double)row->slope * (double)(back ? -away : away);
    }
    *bias = value;
    return true;
}

/* The score before its bias: the product of queries and keys, scales applied, times the softmax scale,
 * soft-capped. */
GPU_INLINE double gpu_score(const struct gpu_run *run, double product)
{
    const double s = product * (double)run->softmax_scale;
    const double cap = (double)run->problem.softcap;

    return cap > 0 ? cap * gpu_tanh_f64(s / cap) : s;
}

/* The sink of a head, a logit that only the denominator counts; minus infinity = none. */
GPU_INLINE float gpu_sink(const struct gpu_run *run, uint32_t head)
{
    if (run->sinks == 0)
        return -GPU_INFINITY;
    return gpu_load(run->sinks_dtype, GPU_U8(run->sinks) + (size_t)head * GPU_SIZE(run->sinks_dtype));
}

#endif
