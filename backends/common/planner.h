/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The work planner: from the lengths of a batch to a list of work items, longest first.
 *
 * The query tokens of a sequence are tiled and its keys split. Tiles and splits depend on the sequence alone,
 * so that its result has the same bits in every batch. Only the number of kv heads in a decode item depends
 * on the batch, and heads are computed independently of each other.
 */
#ifndef ATTN_COMMON_PLANNER_H
#define ATTN_COMMON_PLANNER_H

#include <stdbool.h>

#include "attn/types.h"
#include "visible.h"
#include "work-item.h"

/*
 * Query tokens times splits of a sequence are at most this, otherwise its keys are not split: long prefills
 * have enough work items without, and it bounds the split workspace to so many rows per sequence and head.
 */
#define ATTN_SPLITS_MAX 32u

/* What the planner has to know of a backend's kernels. */
struct attn_planner {
    const struct attn_problem *problem; /* resolved, with its maxima */
    uint32_t decode_rows;  /* up to so many rows (query tokens times group) a sequence is decode, kernel 0 */
    uint32_t prefill_rows; /* rows of an item of kernel 1; not less than decode_rows */
    uint32_t units;        /* work items that run at once */
};

/* Upper bounds from the problem's maxima alone. */
struct attn_planner_bounds {
    uint32_t items;
    uint32_t counters;
    uint32_t split_rows; /* rows of the split workspace: token, head, split */
    uint32_t splits;     /* largest number of splits of a row */
};

/* False if a number does not fit. */
bool attn__planner_get_bounds(const struct attn_planner *planner, struct attn_planner_bounds *out);

/* Arrays of a batch in host memory. The caller has checked that lengths are within the maxima. */
struct attn_planner_batch {
    uint32_t seqs;
    uint32_t position_dtype;
    const int32_t *q_offsets;
    const int32_t *kv_lens;     /* or NULL: by kv_offsets, or as many keys as queries */
    const int32_t *kv_offsets;  /* or NULL */
    const uint8_t *seq_causal;  /* or NULL: as the problem says */
    const void *positions;      /* or NULL: by the problem's alignment */
    const int32_t *global_lens; /* keys of each sequence on all ranks, with context parallelism; else NULL */
    struct attn_cp_shard shard;
};

/* Counts of what was written. */
struct attn_planner_result {
    uint32_t items;
    uint32_t counters;
    uint32_t split_rows;
};

/* Writes the work items; `items` has room for the number in the bounds. */
void attn__planner_run(const struct attn_planner *planner, const struct attn_planner_batch *batch,
                       struct attn_work_item *items, struct attn_planner_result *out);

/* Keys per split of a sequence: a multiple of ATTN_SPLIT_KEYS. */
uint32_t attn__planner_split_keys(uint32_t q_len, uint32_t kv_len);

#endif
