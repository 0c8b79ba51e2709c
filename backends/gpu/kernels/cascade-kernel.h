/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finds the pages that all sequences of a step begin with: one CTA, a warp for each sequence. */
#ifndef ATTN_GPU_CASCADE_KERNEL_H
#define ATTN_GPU_CASCADE_KERNEL_H

#include "device.h"

#include "cascade-job.h"
#include "plan-kernel.h"

/* Pages that a lane looks at at once, so that it waits for memory seldom. */
constexpr uint32_t GPU_CASCADE_LOADS = 8;

/* The least of a number of each thread of the CTA. `warps` is free before and after. */
GPU_INLINE uint32_t gpu_cascade_least(uint32_t own, uint64_t *warps)
{
    for (uint32_t step = 1; step < GPU_WARP; step *= 2) {
        const uint32_t other = gpu_shuffle_u32(own, (gpu_thread() % GPU_WARP) ^ step);
        own = other < own ? other : own;
    }
    if (gpu_thread() % GPU_WARP == 0)
        warps[gpu_thread() / GPU_WARP] = own;
    gpu_barrier();
    for (uint32_t w = 0; w < GPU_PLAN_THREADS / GPU_WARP; w++)
        own = warps[w] < own ? (uint32_t)warps[w] : own;
    gpu_barrier();
    return own;
}

/* Pages, up to `most`, that two sequences whose entries begin at a and b have in common. By a warp. */
GPU_INLINE uint32_t gpu_cascade_common(const struct gpu_cascade_job *job, uint64_t a, uint64_t b,
                                       uint32_t most)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    for (uint32_t base = 0; base < most; base += GPU_WARP * GPU_CASCADE_LOADS) {
        bool same[GPU_CASCADE_LOADS];
        GPU_UNROLL
        for (uint32_t i = 0; i < GPU_CASCADE_LOADS; i++) {
            const uint32_t page = base + i * GPU_WARP + lane;
            same[i] = page >= most || gpu_cascade_is_same(job, a, b, page);
        }
        GPU_UNROLL
        for (uint32_t i = 0; i < GPU_CASCADE_LOADS; i++) {
            const uint32_t differ = gpu_ballot(!same[i]);
            if (differ != 0)
                return base + i * GPU_WARP + gpu_first_bit(differ);
        }
    }
    return most;
}

GPU_KERNEL(gpu_cascade, GPU_PLAN_THREADS, 1)(GPU_ARGUMENT(struct gpu_cascade_job, argument))
{
    const struct gpu_cascade_job *job = (const struct gpu_cascade_job *)gpu_argument(&argument);
    GPU_SHARED uint64_t warps[GPU_PLAN_THREADS / GPU_WARP];
    const uint32_t seqs = job->seqs;
    uint32_t first = seqs, pages = UINT32_MAX;
    uint64_t live = 0;

    for (uint32_t i = gpu_thread(); i < seqs; i += GPU_PLAN_THREADS) {
        const struct gpu_cascade_sequence own = gpu_cascade_at(job, i);
        if (own.q_len == 0)
            continue;
        live++;
        first = i < first ? i : first;
        pages = own.pages < pages ? own.pages : pages;
    }
    live = gpu_plan_sum(live, warps);
    first = gpu_cascade_least(first, warps);
    pages = gpu_cascade_least(pages, warps);
    if (live < 2)
        pages = 0;
    for (uint32_t i = first + 1 + gpu_thread() / GPU_WARP; i < seqs && pages > 0;
         i += GPU_PLAN_THREADS / GPU_WARP)
        if (gpu_cascade_at(job, i).q_len > 0)
            pages = gpu_cascade_common(job, gpu_cascade_first(job, first), gpu_cascade_first(job, i), pages);
    const struct gpu_cascade_prefix prefix = {gpu_cascade_least(pages, warps), first};
    if (gpu_thread() == 0)
        gpu_cascade_write_prefix(job, prefix);
    for (uint32_t i = gpu_thread(); i < seqs; i += GPU_PLAN_THREADS)
        gpu_cascade_write_suffix(job, prefix, i);
}

#endif
