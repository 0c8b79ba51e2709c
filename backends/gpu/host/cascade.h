/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Steps whose sequences begin with the same pages (batch.cascade): attention to these pages is computed once
 * for all, attention to other keys for each sequence, and both are merged. Plans of problems with `cascade`
 * have two others in them for that, one for each half.
 */
#ifndef ATTN_GPU_HOST_CASCADE_H
#define ATTN_GPU_HOST_CASCADE_H

#include "cascade-job.h"
#include "host.h"

enum gpu_half {
    GPU_PREFIX, /* all queries of the step as one sequence, and the keys of the shared pages */
    GPU_SUFFIX, /* every sequence, and its other keys */
    GPU_HALVES
};

/* What a plan has beside its own parts. A step is with or without cascade: both have the same blocks. */
struct gpu_cascade {
    struct attn_plan_impl *half[GPU_HALVES];
    struct gpu_blocks at[GPU_HALVES]; /* offsets in the blocks of the plan */
    struct attn_plan_sizes sizes;     /* of all of it */
    uint64_t out[GPU_HALVES];         /* offsets in scratch of results, f32 [rows, heads, head_dim_vo] */
    uint64_t lse[GPU_HALVES];         /* and of logarithms, f32 [rows, heads] */
    gpu_handle search;                /* finds the prefix on the device */
};

/* Makes plan->cascade, unless the problem has no cascade or one of its keys does not allow it. */
int32_t gpu_cascade_create(struct attn_plan_impl *plan, struct attn_error *err);
void gpu_cascade_destroy(struct gpu_cascade *cascade);

/* That of the plan, if the step has it; else NULL. */
const struct gpu_cascade *gpu_cascade_of(const struct attn_plan_impl *plan, const struct attn_batch *batch);

/* The search of a step. `batch` and `arrays` are addresses of the side that searches; arrays lie at the
 * beginning of the schedule. */
struct gpu_cascade_job gpu_cascade_job_of(const struct attn_plan_impl *plan, const struct gpu_batch *batch,
                                          uint64_t arrays);
/* The batch of a half. */
struct gpu_batch gpu_cascade_batch(const struct attn_plan_impl *plan, const struct gpu_batch *batch,
                                   uint64_t arrays, enum gpu_half half);

/* Runs both halves and merges them. `run` is resolved, and has no blocks yet. */
int32_t gpu_cascade_run(const struct attn_plan_impl *plan, const struct gpu_run *run,
                        const struct gpu_blocks *blocks, void *stream, struct attn_error *err);

#endif
