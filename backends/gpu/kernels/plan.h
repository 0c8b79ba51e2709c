/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * How schedules are planned, on the host or on the device. A job plans one schedule: that of one kernel of a
 * plan for one step. It holds all that is read of both, with addresses of whichever side plans.
 *
 * The first pages of sequences whose keys are converted (convert.h) are i32 [seqs + 1], the number of pages
 * before each.
 *
 * Every other schedule is u64 [seqs + 1]: for each sequence the sum of the tile counts before it. Work lists
 * of MLA outgrow 32 bits, and with det=1 their sums have a second count in the high 32 bits; they have one
 * number more, the KV tiles of each row tile if these are the same for all, else 0. Those of the
 * other matrix kernels do not, and these kernels read only the low 32 bits, because they are short of
 * registers; the high ones of the last sum are the KV tiles of a split where a decode step is split evenly.
 */
#ifndef ATTN_GPU_PLAN_H
#define ATTN_GPU_PLAN_H

#include <assert.h>

#include "convert.h"
#include "lengths.h"
#include "mla/schedule.h"

enum gpu_plan_kind {
    GPU_PLAN_MMA = 1, /* gpu_tile_count */
    GPU_PLAN_MLA,     /* mla_tile_count */
    GPU_PLAN_PAGES    /* pages of sequences that are converted */
};

struct gpu_plan_job {
    uint64_t schedule;
    struct gpu_lengths lengths;
    struct gpu_split_rules split_rules;
    uint32_t kind;       /* enum gpu_plan_kind */
    uint32_t empty;      /* 1: by the step's maxima the kernel has no sequence, and no lengths are read */
    uint32_t conversion; /* enum gpu_conversion */
    uint32_t block;      /* tokens of a page of the workspace */
    uint32_t pages;      /* that it holds */
};

/* What is found of a whole step before its schedule is written. */
struct gpu_plan_step {
    uint64_t split_tiles; /* KV tiles of a split, or 0 */
    bool converts;
    uint64_t same_tiles; /* MLA: of each row tile, or 0 */
};

/* Most jobs of a launch, which has a CTA for each. */
#define GPU_PLAN_JOBS    24u
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

/* The same of MLA. */
static inline uint64_t gpu_plan_mla_bytes(uint32_t seqs)
{
    return (seqs + UINT64_C(2)) * sizeof(uint64_t);
}

/* Whether keys may be split by what the whole step has to do, which is then found first. */
static inline ATTN__DEVICE int gpu_plan_splits_prefill(const struct gpu_plan_job *job)
{
    return job->empty == 0 && job->split_rules.slots > 0;
}

/* The same of decode. */
static inline ATTN__DEVICE int gpu_plan_splits_evenly(const struct gpu_plan_job *job)
{
    return job->empty == 0 && job->split_rules.even_slots > 0 &&
           job->lengths.seqs <= job->split_rules.even_slots;
}

/* Whether it matters if the step is converted, for which the pages of all sequences are counted first. */
static inline ATTN__DEVICE int gpu_plan_may_convert(const struct gpu_plan_job *job)
{
    return job->empty == 0 && job->conversion != GPU_AS_CACHED;
}

/* Pages of a sequence, if it has rows enough to be converted. */
static inline ATTN__DEVICE uint64_t gpu_plan_pages(const struct gpu_plan_job *job, uint32_t i)
{
    const struct gpu_length own = gpu_length_at(&job->lengths, i);

    return (uint64_t)own.q_len * job->split_rules.group < GPU_CONVERTED_MIN_ROWS
               ? 0
               : ((uint64_t)own.kv_len + job->block - 1) / job->block;
}

/* Which sequences the job takes in a step that is converted or is not. */
static inline ATTN__DEVICE struct gpu_split_rules gpu_plan_rules(const struct gpu_plan_job *job,
                                                                 bool converts)
{
    struct gpu_split_rules rules = job->split_rules;

    if (job->conversion == GPU_CONVERTED && !converts)
        rules.max_rows = 0;
    if (job->conversion == GPU_NOT_CONVERTED && converts)
        rules.max_rows = GPU_CONVERTED_MIN_ROWS - 1;
    return rules;
}

/* Prefill: what sequence i adds to the work of the step. */
static inline ATTN__DEVICE struct gpu_prefill_work gpu_plan_work(const struct gpu_plan_job *job, uint32_t i,
                                                                 bool converts)
{
    const struct gpu_length own = gpu_length_at(&job->lengths, i);
    const struct gpu_split_rules rules = gpu_plan_rules(job, converts);

    return gpu_prefill_work_of(&rules, &own.visible, own.q_len, own.kv_len);
}

/* MLA: whether the row tiles of sequence i take other numbers of KV tiles than `same`. */
static inline ATTN__DEVICE int gpu_plan_differs(const struct gpu_plan_job *job, uint32_t i, uint64_t same)
{
    const struct gpu_length own = gpu_length_at(&job->lengths, i);
    const struct mla_splits splits = mla_splits_of(&job->split_rules);

    return own.q_len != 0 && mla_same_tiles(&splits, &own.visible, own.q_len, own.kv_len) != same;
}

/* MLA: the KV tiles of each row tile of sequence 0, with which the others are compared; 0: of none. */
static inline ATTN__DEVICE uint64_t gpu_plan_first_tiles(const struct gpu_plan_job *job)
{
    if (job->kind != GPU_PLAN_MLA || job->empty != 0 || job->split_rules.det || job->lengths.seqs == 0)
        return 0;
    const struct gpu_length own = gpu_length_at(&job->lengths, 0);
    const struct mla_splits splits = mla_splits_of(&job->split_rules);
    return own.q_len != 0 ? mla_same_tiles(&splits, &own.visible, own.q_len, own.kv_len) : 0;
}

/* The tile count of sequence i, which exists. */
static inline ATTN__DEVICE uint64_t gpu_plan_tile_count(const struct gpu_plan_job *job, uint32_t i,
                                                        const struct gpu_plan_step *step)
{
    if (job->empty != 0)
        return 0;
    if (job->kind == GPU_PLAN_PAGES)
        return step->converts ? gpu_plan_pages(job, i) : 0;
    const struct gpu_length own = gpu_length_at(&job->lengths, i);
    if (job->kind == GPU_PLAN_MMA) {
        const struct gpu_split_rules rules = gpu_plan_rules(job, step->converts);
        return gpu_tile_count(&rules, &own.visible, own.q_len, own.kv_len, step->split_tiles);
    }
    const struct mla_splits splits = mla_splits_of(&job->split_rules);
    return mla_tile_count(&splits, &own.visible, own.q_len, own.kv_len);
}

/* What is added to the last sum. */
static inline ATTN__DEVICE uint64_t gpu_plan_mark(const struct gpu_plan_job *job,
                                                  const struct gpu_plan_step *step)
{
    return gpu_plan_splits_evenly(job) ? step->split_tiles << 32 : 0;
}

/* Stores the sum before sequence i. */
static inline ATTN__DEVICE void gpu_plan_store(const struct gpu_plan_job *job, uint32_t i, uint64_t sum)
{
    if (job->kind == GPU_PLAN_PAGES)
        GPU_GLOBAL(uint32_t, job->schedule)[i] = (uint32_t)sum;
    else
        GPU_GLOBAL(uint64_t, job->schedule)[i] = sum;
}

/* Stores what stands behind the last sum. */
static inline ATTN__DEVICE void gpu_plan_store_end(const struct gpu_plan_job *job,
                                                   const struct gpu_plan_step *step)
{
    if (job->kind == GPU_PLAN_MLA)
        GPU_GLOBAL(uint64_t, job->schedule)[job->lengths.seqs + 1] = step->same_tiles;
}

#endif
