/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Work items: a planner writes them into a schedule, and a kernel takes one as a task.
 *
 * Keys are split at fixed multiples of ATTN_SPLIT_KEYS from key 0, so that the splits of a row depend on its
 * own sequence only, never on the rest of the batch or on the number of threads.
 */
#ifndef ATTN_COMMON_WORK_ITEM_H
#define ATTN_COMMON_WORK_ITEM_H

#include <stdint.h>

/* Keys of one split: a multiple of the largest kernel tile (64) and of the accumulation span (512), and no
 * more, so that few sequences are work for many threads. */
#define ATTN_SPLIT_KEYS 512u

/* Some query tokens of one sequence, some kv heads, one split of the keys. No pointers: copyable. */
struct attn_work_item {
    uint32_t seq;
    uint32_t first_token; /* first query token, counted in the batch */
    uint32_t tokens;      /* query tokens */
    uint32_t q_index;     /* first query token, counted in its sequence */
    uint32_t q_len;       /* query tokens of the sequence */
    uint32_t kv_len;      /* keys of the sequence */
    uint32_t key_begin;   /* keys of this split that these tokens see lie in [key_begin, key_end) */
    uint32_t key_end;
    uint32_t kv_head;   /* first kv head */
    uint32_t kv_heads;  /* how many */
    uint32_t split;     /* which of `splits` */
    uint32_t splits;    /* 1: the task stores its rows; more: the last task to finish combines them */
    uint32_t split_row; /* with splits: first row in the split workspace, counted in (token, head) */
    uint32_t counter;   /* with splits: the counter by which the last task is known */
    uint32_t causal;    /* 0 or 1, of this sequence */
    uint32_t kernel;    /* which kernel of the plan: 0 = decode, 1 = prefill */
};

#endif
