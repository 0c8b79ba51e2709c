/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Masks: which keys the mask of a case closes, and the same in memory, in every legal arrangement. */
#include "conform.h"

#include <math.h>
#include <stdlib.h>

#include "need.h"

uint32_t case_mask_heads(const struct conform_case *the_case)
{
    return the_case->mask_heads ? the_case->problem.heads : 1;
}

static uint64_t hash(const struct conform_case *c, uint64_t what, uint64_t a, uint64_t b)
{
    return mix(mix(mix(c->seed, what), a), b) >> 20;
}

static uint64_t row_id(const struct conform_case *c, uint32_t head, uint32_t i)
{
    return (uint64_t)(c->mask_heads ? head : 0) << 32 | (c->mask_rows ? i : 0);
}

/* Whether a row's range has a column: the sequences of a case have causal masks, windows, padding, and ranges
 * that have nothing to do with each other. */
static bool is_in_range(const struct conform_case *c, uint32_t n, uint32_t head, uint32_t i, int64_t column)
{
    const struct sequence *s = &c->sequences[n];
    int64_t columns = c->problem.span == ATTN_SPAN_FULL ? s->all_keys : s->q_len;
    int64_t own = columns - s->q_len + (c->mask_rows ? i : 0); /* the row's own key */
    int64_t far = (int64_t)(hash(c, 26, n, 0) % 100);
    uint64_t of_row = row_id(c, head, i);

    switch (hash(c, 27, n, 0) % 4) {
    case 0:
        return column <= own;
    case 1:
        return column <= own && column >= own - far;
    case 2:
        return column < columns - far / 8;
    default:
        return column >= (int64_t)(hash(c, 28, n, of_row) % ((uint64_t)columns + 1)) &&
               column < (int64_t)(hash(c, 29, n, of_row) % ((uint64_t)columns + 40));
    }
}

/* Whether a column is the one that is no part of its row's range, or adds something. */
static bool is_exception(const struct conform_case *c, uint32_t n, uint32_t head, uint32_t i, int64_t column)
{
    const struct sequence *s = &c->sequences[n];
    uint64_t columns = c->problem.span == ATTN_SPAN_FULL ? s->all_keys : s->q_len;

    return c->mask_except && n == 0 && (c->mask_heads ? head : 0) == 0 &&
           (c->mask_rows ? i : 0) == (c->mask_rows ? hash(c, 30, n, 0) % s->q_len : 0) &&
           (uint64_t)column == hash(c, 31, n, 0) % columns;
}

/* Without ranges, closed are some columns for everybody, single or 64 in a row, some rows, and some pairs. */
static bool is_open(const struct conform_case *c, uint32_t n, uint32_t head, uint32_t i, int64_t column)
{
    uint64_t of_row = row_id(c, head, i);
    uint64_t at = (uint64_t)column;

    if (c->mask_ranges)
        return is_in_range(c, n, head, i, column) !=
               (c->problem.mask == ATTN_MASK_BITS && is_exception(c, n, head, i, column));

    if (hash(c, 21, n, at) % 4 == 0 || hash(c, 22, n, at / 64) % 8 == 0 || hash(c, 23, n, of_row) % 16 == 0)
        return false;
    return hash(c, 24, mix(n, of_row), at) % 4 != 0;
}

bool case_sees(const struct conform_case *c, const struct oracle_sequence *sequence, uint32_t n,
               uint32_t head, uint32_t i, uint32_t j)
{
    const struct sequence *s = &c->sequences[n];
    bool full = c->problem.span == ATTN_SPAN_FULL;
    int64_t position = oracle_key_position(sequence, j);
    int64_t column = full ? position : position - ((int64_t)s->all_keys - s->q_len);
    bool covered = c->problem.mask != ATTN_MASK_NONE && s->masked && column >= 0;

    if (covered && !full)
        return is_open(c, n, head, i, column);
    return oracle_visible(sequence, i, j) && (!covered || is_open(c, n, head, i, column));
}

void case_pick_mask(struct conform_case *c)
{
    struct rng rng = {mix(c->seed, 20)};
    uint64_t pairs = 0;

    for (uint32_t n = 0; n < c->count; n++) {
        pairs += (uint64_t)c->sequences[n].q_len * c->sequences[n].all_keys;
        c->sequences[n].masked = rng_chance(&rng, 85);
    }
    if (rng_chance(&rng, 50))
        for (uint32_t n = 0; n < c->count; n++)
            c->sequences[n].masked = true;
    c->mask_heads = rng_chance(&rng, 50) && pairs * c->problem.heads < 200000;
    c->mask_rows = rng_chance(&rng, 85);
    c->mask_ranges = rng_chance(&rng, 40);
    c->mask_except = rng_chance(&rng, 40);
}

static uint32_t element_type(uint32_t mask)
{
    return mask == ATTN_MASK_F16 ? ATTN_F16 : mask == ATTN_MASK_BF16 ? ATTN_BF16 : ATTN_F32;
}

/* What an additive mask holds: minus infinity and the lowest number close. */
static double number_of(const struct conform_case *c, uint32_t n, uint32_t head, uint32_t i, int64_t column)
{
    static const double lowest[] = {-65504, -0x1.fep127, -0x1.fffffep127};
    uint64_t bits = hash(c, 25, mix(n, row_id(c, head, i)), (uint64_t)column);

    if (c->mask_ranges && is_open(c, n, head, i, column))
        return is_exception(c, n, head, i, column) ? 0.5 : bits % 2 == 0 ? 0.0 : -0.0;
    if (is_open(c, n, head, i, column))
        return (double)(bits % 4001) * 0.001 - 2;
    return bits % 2 == 0 ? -(double)INFINITY : lowest[c->problem.mask - ATTN_MASK_F16];
}

/* Bytes of the mask of a sequence, in the arrangement that was chosen. */
struct extent {
    bool full;
    uint32_t element; /* 0 = bits */
    const struct attn_tensors *tensors;
    const struct conform_case *c;
};

static uint32_t columns_of(const struct extent *extent, const struct sequence *s)
{
    return extent->full ? s->all_keys : s->q_len;
}

static int64_t row_bytes(const struct extent *extent, const struct sequence *s)
{
    uint32_t columns = columns_of(extent, s);

    return extent->element == 0 ? (columns + 7) / 8 : (int64_t)columns * extent->element;
}

static int64_t head_bytes(const struct extent *extent, const struct sequence *s)
{
    if (s->q_len == 0)
        return 0;
    if (extent->tensors->mask_packed != 0)
        return ((int64_t)columns_of(extent, s) * s->q_len + 7) / 8;
    return extent->tensors->mask_row_stride * (s->q_len - 1) + row_bytes(extent, s);
}

/* Random strides; returns the bytes of a sequence at most. */
static int64_t pick_strides(const struct extent *extent, struct attn_tensors *tensors, struct rng *rng)
{
    const struct conform_case *c = extent->c;
    int64_t unit = extent->element == 0 ? 1 : extent->element, row = 0, head = 0;

    tensors->mask_packed = extent->element == 0 && c->mask_rows && rng_chance(rng, 40);
    for (uint32_t n = 0; n < c->count; n++)
        row = row_bytes(extent, &c->sequences[n]) > row ? row_bytes(extent, &c->sequences[n]) : row;
    tensors->mask_row_stride = c->mask_rows ? row + unit * rng_below(rng, 4) : 0;
    for (uint32_t n = 0; n < c->count; n++)
        head = head_bytes(extent, &c->sequences[n]) > head ? head_bytes(extent, &c->sequences[n]) : head;
    tensors->mask_head_stride = c->mask_heads ? head + unit * rng_below(rng, 4) : 0;
    return tensors->mask_head_stride * (c->problem.heads - 1) + head + unit * rng_below(rng, 4);
}

static void fill_row(const struct extent *extent, unsigned char *start, uint32_t n, uint32_t head, uint32_t i)
{
    const struct conform_case *c = extent->c;
    uint32_t columns = columns_of(extent, &c->sequences[n]);
    uint64_t first = extent->tensors->mask_packed != 0 ? (uint64_t)i * columns : 0;
    unsigned char *row = start + (int64_t)head * extent->tensors->mask_head_stride;

    if (extent->tensors->mask_packed == 0)
        row += (int64_t)i * extent->tensors->mask_row_stride;
    for (uint32_t column = 0; column < columns; column++) {
        uint64_t bit = first + column;
        if (extent->element != 0)
            oracle_store(element_type(c->problem.mask), number_of(c, n, head, i, column),
                         row + (size_t)column * extent->element);
        else if (!is_open(c, n, head, i, column))
            row[bit / 8] &= (unsigned char)~(1U << bit % 8);
    }
}

static void fill_sequence(const struct extent *extent, unsigned char *start, uint32_t n)
{
    const struct conform_case *c = extent->c;

    for (uint32_t head = 0; head < case_mask_heads(c); head++)
        for (uint32_t i = 0; i < (c->mask_rows ? c->sequences[n].q_len : 1); i++)
            fill_row(extent, start, n, head, i);
}

void step_place_mask(struct step *step, struct rng *rng)
{
    const struct conform_case *c = step->the_case;
    uint32_t element = c->problem.mask == ATTN_MASK_BITS ? 0 : oracle_size(element_type(c->problem.mask));
    struct extent extent = {c->problem.span == ATTN_SPAN_FULL, element, &step->tensors, c};
    int64_t starts[STEP_SEQS], most = pick_strides(&extent, &step->tensors, rng), end = 0;
    bool listed = rng_chance(rng, 50);

    for (uint32_t n = 0; n < c->count; n++)
        listed |= !c->sequences[n].masked;
    for (uint32_t n = 0; n < step->seqs; n++) {
        const struct sequence *s = step->source[n] < 0 ? NULL : &c->sequences[step->source[n]];
        starts[n] = listed ? end : most * n;
        if (s == NULL || !s->masked || s->q_len == 0) {
            starts[n] = listed ? -1 - (int64_t)rng_below(rng, 9) : starts[n];
            continue;
        }
        if (listed)
            starts[n] = end += (element == 0 ? 1 : element) * (int64_t)rng_below(rng, 9);
        end = starts[n] + head_bytes(&extent, s) + step->tensors.mask_head_stride * (c->problem.heads - 1);
    }
    /* Bits that nobody looks at are set; numbers are NaN. */
    struct guarded *memory = arena_add(&step->arena, "mask", (size_t)end, element == 0 ? 1 : element, 0xff);
    for (uint32_t n = 0; n < step->seqs; n++)
        if (step->source[n] >= 0 && c->sequences[step->source[n]].masked &&
            c->sequences[step->source[n]].q_len > 0)
            fill_sequence(&extent, memory->data + starts[n], (uint32_t)step->source[n]);
    guarded_protect(memory);
    step->tensors.mask = buffer_at(memory->data, rng);
    step->tensors.mask_seq_stride = listed ? 0 : most;
    if (!listed)
        return;
    memory = arena_add(&step->arena, "mask_starts", step->seqs * sizeof *starts, sizeof *starts, 0xff);
    memcpy(memory->data, starts, step->seqs * sizeof *starts);
    guarded_protect(memory);
    step->tensors.mask_starts = buffer_at(memory->data, rng);
}
