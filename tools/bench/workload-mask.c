/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A mask that hides what causality and windows hide anyway: what is measured is the reading of it. */
#include <stdlib.h>
#include <string.h>

#include "fill.h"
#include "output.h"
#include "workload.h"

/* Bits of minus infinity, and the type that holds them. */
static uint32_t mask_dtype(uint32_t mask, uint32_t *out_masking)
{
    *out_masking = mask == ATTN_MASK_F16 ? 0xfc00 : mask == ATTN_MASK_BF16 ? 0xff80 : 0xff800000;
    return mask == ATTN_MASK_F16 ? ATTN_F16 : mask == ATTN_MASK_BF16 ? ATTN_BF16 : ATTN_F32;
}

uint64_t case_mask_row(const struct attn_problem *problem, const struct bench_sequence *sequence)
{
    uint64_t columns =
        problem->span == ATTN_SPAN_FULL ? case_all_keys(problem, sequence->ctx) : sequence->q_len;
    uint32_t masking;

    if (problem->mask == ATTN_MASK_NONE)
        return 0;
    return problem->mask == ATTN_MASK_BITS ? (columns + 7) / 8
                                           : columns * attn_dtype_size(mask_dtype(problem->mask, &masking));
}

/* The mask of a sequence, its rows `stride` bytes apart. */
static void fill_sequence(const struct attn_problem *problem, const struct bench_sequence *sequence,
                          unsigned char *mask, uint64_t stride)
{
    int64_t keys = case_all_keys(problem, sequence->ctx), queries = sequence->q_len, low, high;
    int64_t first = problem->span == ATTN_SPAN_FULL ? 0 : keys - queries;
    uint32_t masking, size = attn_dtype_size(mask_dtype(problem->mask, &masking));

    for (int64_t i = 0; i < queries; i++) {
        unsigned char *row = mask + (uint64_t)i * stride;
        case_reach(problem, sequence, (uint32_t)i, &low, &high);
        for (int64_t key = first; key < keys; key++) {
            uint64_t column = (uint64_t)(key - first);
            bool seen = key >= low && key <= high;
            if (problem->mask == ATTN_MASK_BITS && seen)
                row[column / 8] |= (unsigned char)(1u << column % 8);
            if (problem->mask != ATTN_MASK_BITS && !seen)
                memcpy(row + column * size, &masking, size);
        }
    }
}

int32_t mask_init(struct workload *workload, struct attn_error *err)
{
    const struct attn_problem *problem = &workload->problem;
    const struct bench_case *the_case = workload->the_case;
    struct attn_tensors *tensors = &workload->tensors;
    uint64_t row = 0, size;
    uint32_t masking, dtype = mask_dtype(problem->mask, &masking);

    if (problem->mask == ATTN_MASK_NONE)
        return ATTN_OK;
    for (uint32_t i = 0; i < the_case->seqs; i++) {
        uint64_t one = case_mask_row(problem, &the_case->sequence[i]);
        row = one > row ? one : row;
    }
    row = (row + 3) / 4 * 4;
    tensors->mask_row_stride = (int64_t)row;
    tensors->mask_seq_stride = (int64_t)(row * workload->sizes.max_q);
    if (__builtin_mul_overflow(row * workload->sizes.max_q, (uint64_t)the_case->seqs, &size))
        size = UINT64_MAX; /* there is no such memory */
    unsigned char *mask = need_memory(NULL, size, 1);
    memset(mask, 0, size);
    if (problem->mask != ATTN_MASK_BITS)
        fill_random(dtype, mask, size / attn_dtype_size(dtype), 2000);
    for (uint32_t i = 0; i < the_case->seqs; i++)
        fill_sequence(problem, &the_case->sequence[i], mask + i * (uint64_t)tensors->mask_seq_stride, row);
    workload->mask_bytes = size;
    int32_t status = workload_upload(workload, mask, size, &tensors->mask, err);
    free(mask);
    return status;
}
