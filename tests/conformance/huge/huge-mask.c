/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Moves masks: sequences, heads or rows far apart. */
#include "huge.h"

static uint64_t columns_of(const struct step *step, uint32_t n)
{
    const struct sequence *s = &step->the_case->sequences[step->source[n]];

    return step->problem.span == ATTN_SPAN_FULL ? s->all_keys : s->q_len;
}

static uint32_t element_of(const struct step *step)
{
    return step->problem.mask == ATTN_MASK_BITS ? 0 : step->problem.mask == ATTN_MASK_F32 ? 4 : 2;
}

/* Bytes of a row, or of all rows of a head where they are packed. */
static uint64_t part_bytes(const struct step *step, uint32_t n)
{
    const struct sequence *s = &step->the_case->sequences[step->source[n]];
    uint64_t columns = columns_of(step, n), size = element_of(step);

    if (step->tensors.mask_packed != 0)
        return (columns * s->q_len + 7) / 8;
    return size == 0 ? (columns + 7) / 8 : columns * size;
}

/* Where the mask of a sequence begins, -1 if it has none. */
static int64_t start_of(const struct step *step, uint32_t n)
{
    if (step->tensors.mask_starts.data != NULL)
        return oracle_element(&step->tensors.mask_starts, n, ATTN_INT64);
    return (int64_t)n * step->tensors.mask_seq_stride;
}

static bool has_mask(const struct step *step, uint32_t n)
{
    const struct sequence *s = step->source[n] < 0 ? NULL : &step->the_case->sequences[step->source[n]];

    return s != NULL && s->masked && s->q_len > 0 && start_of(step, n) >= 0;
}

static void copy_sequence(const struct step *from, const struct step *to, struct area *area, uint32_t n,
                          int64_t start, uint64_t rows)
{
    const unsigned char *source = oracle_address(&from->tensors.mask) + start_of(from, n);
    uint64_t bytes = part_bytes(from, n), lead = to->tensors.mask.byte_offset;
    uint64_t heads = from->tensors.mask_head_stride == 0 ? 1 : from->problem.heads;

    for (uint64_t head = 0; head < heads; head++) {
        for (uint64_t i = 0; i < rows; i++) {
            uint64_t at = lead + (uint64_t)(start + (int64_t)head * to->tensors.mask_head_stride +
                                            (int64_t)i * to->tensors.mask_row_stride);
            memcpy(area_commit(area, at, bytes),
                   source + (int64_t)head * from->tensors.mask_head_stride +
                       (int64_t)i * from->tensors.mask_row_stride,
                   bytes);
        }
    }
}

bool huge_place_mask(struct huge_step *huge, const struct step *original, struct rng *rng)
{
    const struct attn_tensors *from = &original->tensors;
    struct attn_tensors *to = &huge->step.tensors;
    int64_t starts[STEP_SEQS];
    struct grid grid = {.counts = {original->seqs, original->problem.heads, 1}};
    uint32_t element = element_of(original);

    for (uint32_t n = 0; n < original->seqs; n++) {
        if (!has_mask(original, n))
            continue;
        uint64_t rows = original->the_case->sequences[original->source[n]].q_len;
        grid.bytes = part_bytes(original, n) > grid.bytes ? part_bytes(original, n) : grid.bytes;
        grid.counts[2] = rows > grid.counts[2] ? rows : grid.counts[2];
    }
    grid.fixed[1] = from->mask_head_stride == 0;
    grid.fixed[2] = from->mask_row_stride == 0 || from->mask_packed != 0;
    if (grid.fixed[2])
        grid.counts[2] = 1;
    grid.unit = element == 0 ? 1 : element;
    grid_spread(&grid, rng);
    struct area *area = huge_area(huge, "mask", grid.size + 8, 0xff, rng, &to->mask);
    if (area == NULL)
        return false;
    to->mask_head_stride = grid.strides[1];
    to->mask_row_stride = grid.strides[2];
    to->mask_seq_stride = from->mask_starts.data != NULL ? 0 : grid.strides[0];
    for (uint32_t n = 0; n < original->seqs; n++) {
        starts[n] = (int64_t)n * grid.strides[0];
        if (has_mask(original, n))
            copy_sequence(original, &huge->step, area, n, starts[n],
                          grid.fixed[2] ? 1 : original->the_case->sequences[original->source[n]].q_len);
        else
            starts[n] = -7;
    }
    if (from->mask_starts.data == NULL)
        return true;
    area = huge_area(huge, "mask_starts", sizeof starts, 0xff, rng, &to->mask_starts);
    if (area != NULL)
        memcpy(area_commit(area, to->mask_starts.byte_offset, original->seqs * sizeof *starts), starts,
               original->seqs * sizeof *starts);
    return area != NULL;
}
