/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * How schedules are planned, for host and device. A job makes one: that of a plan's kernel for a step. What
 * it reads of plan and step is in the job, with addresses of the device or of the host.
 *
 * Every schedule is u64 [seqs + 1]: sums of the tile counts of the sequences before. Work lists of MLA
 * outgrow 32 bits, and with det=1 there are two counts there. Those of the other matrix kernels do not: these
 * read the low halves alone, for want of registers.
 */
#ifndef ATTN_GPU_PLAN_H
#define ATTN_GPU_PLAN_H

#include <assert.h>

#include "lengths.h"
#include "mla/schedule.h"

enum gpu_plan_kind {
    GPU_PLAN_MMA = 1, /* gpu_share */
    GPU_PLAN_MLA      /* mla_tile_count */
};

struct gpu_plan_job {
    uint64_t schedule;
    struct gpu_lengths lengths;
    struct gpu_cuts cuts;
    uint32_t kind;  /* enum gpu_plan_kind */
    uint32_t empty; /* 1: the step's maxima say that no sequence is the kernel's, and nothing is read */
};

/* Jobs of a launch, which has a CTA for each; more take further launches. */
#define GPU_PLAN_JOBS    32u
#define GPU_PLAN_THREADS 1024u

struct gpu_plan {
    struct gpu_plan_job jobs[GPU_PLAN_JOBS];
};

static_assert(sizeof(struct gpu_plan) <= 4096, "the argument block of a launch");

/* Bytes of a schedule. */
static inline uint64_t gpu_plan_bytes(uint32_t seqs)
{
    return (seqs + UINT64_C(1)) * sizeof(uint64_t);
}

/* What sequence i, which there is, adds to the sums. */
static inline ATTN__DEVICE uint64_t gpu_plan_share(const struct gpu_plan_job *job, uint32_t i)
{
    if (job->empty != 0)
        return 0;
    const struct gpu_length own = gpu_length_at(&job->lengths, i);
    if (job->kind == GPU_PLAN_MMA)
        return gpu_share(&job->cuts, &own.visible, own.q_len, own.kv_len);
    const struct mla_splits splits = mla_splits_of(&job->cuts);
    return mla_tile_count(&splits, &own.visible, own.q_len, own.kv_len);
}

#endif
