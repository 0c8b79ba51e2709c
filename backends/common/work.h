/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Work records: what a planner writes into a schedule and a kernel takes as one task.
 *
 * Keys are cut at fixed multiples of ATTN_CUT_KEYS from key 0, so that the parts of a row depend on its own
 * sequence only, never on its companions or on the number of threads.
 */
#ifndef ATTN_COMMON_WORK_H
#define ATTN_COMMON_WORK_H

#include <stdint.h>

/* Keys of one part. A multiple of the largest kernel tile (64) and of the accumulation span (512). */
#define ATTN_CUT_KEYS 2048u

/* Some query tokens of one sequence, some kv heads, one part of the keys. No pointers: copyable. */
struct attn_work {
    uint32_t seq;
    uint32_t row;       /* first query token, counted in the batch */
    uint32_t rows;      /* query tokens */
    uint32_t q_index;   /* first query token, counted in its sequence */
    uint32_t q_len;     /* query tokens of the sequence */
    uint32_t kv_len;    /* keys of the sequence */
    uint32_t key_begin; /* part of the keys: visible keys of these rows lie in [key_begin, key_end) */
    uint32_t key_end;
    uint32_t kv_head;  /* first kv head */
    uint32_t kv_heads; /* how many */
    uint32_t part;     /* which part of `parts` */
    uint32_t parts;    /* 1: the task writes its rows; more: the last task to finish merges them */
    uint32_t part_row; /* splits: first row of this group's partial results, counted in (row, head) */
    uint32_t counter;  /* splits: which counter */
    uint32_t causal;   /* 0 or 1, of this sequence */
    uint32_t kernel;   /* which row of the plan: 0 = few rows (decode), 1 = many rows (prefill) */
};

#endif
