/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The work planner: from the lengths of a batch to a list of works, longest first.
 *
 * Rows of a sequence fall into tiles of query tokens, its keys into parts. A row's tile and parts depend on
 * its own sequence alone. Only the number of kv heads in a work of few rows looks at the whole batch; heads
 * are independent of each other, so the bits of a row do not depend on it.
 */
#ifndef ATTN_COMMON_PLANNER_H
#define ATTN_COMMON_PLANNER_H

#include <stdbool.h>

#include "attn/types.h"
#include "visible.h"
#include "work.h"

/*
 * Query tokens times parts of a sequence are at most this, or its keys are not cut: long chunks have enough
 * works without, and the partial results stay within this many rows per sequence and head.
 */
#define ATTN_PARTS_MAX 32u

/* What a backend's kernels want. */
struct attn_planner {
    const struct attn_problem *problem; /* resolved, with its maxima */
    uint32_t few;   /* rows (tokens times group) up to which a sequence goes to kernel 0 */
    uint32_t many;  /* rows of a work of kernel 1; not less than `few` */
    uint32_t units; /* how many works run at once */
};

/* Upper bounds from the problem's maxima alone. */
struct attn_planner_bounds {
    uint32_t works;
    uint32_t counters;
    uint32_t part_rows; /* rows of partial results: token, head, part */
    uint32_t splits;    /* most parts of a row */
};

/* False if a number does not fit. */
bool attn__planner_get_bounds(const struct attn_planner *planner, struct attn_planner_bounds *out);

/* Arrays of a batch in host memory, already checked: lengths are within the maxima. */
struct attn_planner_batch {
    uint32_t seqs;
    uint32_t position_dtype;
    const int32_t *q_offsets;
    const int32_t *kv_lens;     /* or NULL: by kv_offsets, or as many keys as queries */
    const int32_t *kv_offsets;  /* or NULL */
    const uint8_t *seq_causal;  /* or NULL: the problem's */
    const void *positions;      /* or NULL: by the problem's alignment */
    const int32_t *global_lens; /* Lk of sequences whose keys are sharded over ranks, or NULL */
    struct attn_cp_shard shard;
};

/* What was written. */
struct attn_planner_result {
    uint32_t works;
    uint32_t counters;
    uint32_t part_rows;
};

/* Writes the works; `works` holds as many as the bounds say. */
void attn__planner_run(const struct attn_planner *planner, const struct attn_planner_batch *batch,
                       struct attn_work *works, struct attn_planner_result *out);

/* Keys of a part of a sequence: a multiple of ATTN_CUT_KEYS. */
uint32_t attn__planner_cut(uint32_t q_len, uint32_t kv_len);

#endif
