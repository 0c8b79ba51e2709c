/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Masks: which keys one covers, what it says about them, and the positions that ALiBi takes with it. */
#include "oracle.h"

#include <math.h>

static uint32_t element_type(uint32_t mask)
{
    switch (mask) {
    case ATTN_MASK_F16:
        return ATTN_F16;
    case ATTN_MASK_BF16:
        return ATTN_BF16;
    default:
        return ATTN_F32;
    }
}

/* Minus infinity and the lowest finite number of the type. */
static bool is_masking(uint32_t mask, double value)
{
    switch (mask) {
    case ATTN_MASK_F16:
        return value <= -65504;
    case ATTN_MASK_BF16:
        return value <= -0x1.fep127;
    default:
        return value <= -0x1.fffffep127;
    }
}

bool oracle_has_mask(const struct oracle_sequence *sequence)
{
    const struct attn_tensors *tensors = sequence->tensors;
    uint32_t mask = sequence->problem->mask;

    if (tensors == NULL || mask == 0 || mask == ATTN_MASK_NONE)
        return false;
    return tensors->mask_starts.data == NULL ||
           oracle_element(&tensors->mask_starts, sequence->index, ATTN_INT64) >= 0;
}

int64_t oracle_mask_column(const struct oracle_sequence *sequence, uint32_t j)
{
    int64_t key = oracle_key_position(sequence, j);

    if (!oracle_has_mask(sequence))
        return -1;
    if (sequence->problem->span == ATTN_SPAN_FULL)
        return key;
    int64_t column = key - ((int64_t)sequence->all_keys - sequence->q_len);
    return column >= 0 ? column : -1;
}

/* Where the mask of a sequence begins for a head. */
static const unsigned char *mask_start(const struct oracle_sequence *sequence, uint32_t head)
{
    const struct attn_tensors *tensors = sequence->tensors;
    int64_t start = (int64_t)sequence->index * tensors->mask_seq_stride;

    if (tensors->mask_starts.data != NULL)
        start = oracle_element(&tensors->mask_starts, sequence->index, ATTN_INT64);
    return oracle_address(&tensors->mask) + start + (int64_t)head * tensors->mask_head_stride;
}

static bool read_bit(const struct oracle_sequence *sequence, uint32_t head, uint32_t i, int64_t column)
{
    const unsigned char *start = mask_start(sequence, head);

    if (sequence->tensors->mask_packed != 0) {
        bool full = sequence->problem->span == ATTN_SPAN_FULL;
        column += (int64_t)i * (full ? sequence->all_keys : sequence->q_len);
    } else {
        start += (int64_t)i * sequence->tensors->mask_row_stride;
    }
    return (start[column / 8] >> (column % 8) & 1) != 0;
}

bool oracle_sees(const struct oracle_sequence *sequence, uint32_t head, uint32_t i, uint32_t j,
                 double *out_bias)
{
    struct oracle_place place;
    const struct attn_problem *problem = sequence->problem;
    int64_t column = oracle_mask_column(sequence, j);
    bool decides = column >= 0 && problem->span != ATTN_SPAN_FULL; /* alone, inside the square */

    *out_bias = 0;
    if (!oracle_locate(sequence, j, &place))
        return false;
    if (!decides && !oracle_in_reach(sequence, i, j))
        return false;
    if (column < 0)
        return true;
    if (problem->mask == ATTN_MASK_BITS)
        return read_bit(sequence, head, i, column);
    uint32_t dtype = element_type(problem->mask);
    oracle_load(dtype,
                mask_start(sequence, head) + (int64_t)i * sequence->tensors->mask_row_stride +
                    column * oracle_size(dtype),
                1, out_bias);
    return !is_masking(problem->mask, *out_bias);
}

int64_t oracle_alibi_position(const struct oracle_sequence *sequence, uint32_t j)
{
    const struct attn_problem *problem = sequence->problem;
    int64_t column = oracle_mask_column(sequence, j);

    if (column >= 0 && problem->span != ATTN_SPAN_FULL && problem->positions != 0)
        return oracle_query_position(sequence, (uint32_t)column);
    return oracle_key_position(sequence, j);
}
