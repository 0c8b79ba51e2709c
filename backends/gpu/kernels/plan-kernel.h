/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Plans all schedules of a step at once: a CTA for each, its threads along the sequences. */
#ifndef ATTN_GPU_PLAN_KERNEL_H
#define ATTN_GPU_PLAN_KERNEL_H

#include "device.h"

#include "plan.h"

/* The sum of a number of each thread of the CTA. `warps` is free before and after. */
GPU_INLINE uint64_t gpu_plan_sum(uint64_t own, uint64_t *warps)
{
    uint64_t all = 0;

    for (uint32_t step = 1; step < GPU_WARP; step *= 2)
        own += gpu_shuffle_u64(own, (gpu_thread() % GPU_WARP) ^ step);
    if (gpu_thread() % GPU_WARP == 0)
        warps[gpu_thread() / GPU_WARP] = own;
    gpu_barrier();
    for (uint32_t w = 0; w < GPU_PLAN_THREADS / GPU_WARP; w++)
        all += warps[w];
    gpu_barrier();
    return all;
}

/* Tiles, or splits of `size` tiles, of all sequences of decode. */
GPU_INLINE uint64_t gpu_plan_count(const struct gpu_plan_job *job, uint64_t size, uint64_t *warps)
{
    const struct gpu_plan_step step = {size, false, 0};
    uint64_t all = 0;

    for (uint32_t i = gpu_thread(); i < job->lengths.seqs; i += GPU_PLAN_THREADS) {
        job = (const struct gpu_plan_job *)gpu_again(job);
        all += gpu_plan_tile_count(job, i, &step);
    }
    return gpu_plan_sum(all, warps);
}

/* Whether the workspace holds all keys that are to be converted. */
GPU_INLINE bool gpu_plan_converts(const struct gpu_plan_job *job, uint64_t *warps)
{
    uint64_t all = 0;

    if (!gpu_plan_may_convert(job))
        return false;
    for (uint32_t i = gpu_thread(); i < job->lengths.seqs; i += GPU_PLAN_THREADS) {
        job = (const struct gpu_plan_job *)gpu_again(job);
        all += gpu_plan_pages(job, i);
    }
    return gpu_plan_sum(all, warps) <= job->pages;
}

/* KV tiles of a decode split of a step that is split evenly, or 0. */
GPU_INLINE uint64_t gpu_plan_even_tiles(const struct gpu_plan_job *job, uint64_t *warps)
{
    struct gpu_even_search search = {0, 0};

    while (gpu_even_search_goes_on(&search, &job->split_rules, gpu_plan_count(job, search.size, warps)))
        continue;
    return search.size;
}

/* KV tiles of a split of the step, or 0. */
GPU_INLINE uint64_t gpu_plan_split_tiles(const struct gpu_plan_job *job, bool converts, uint64_t *warps)
{
    struct gpu_prefill_work all = {0, 0};

    if (gpu_plan_splits_evenly(job))
        return gpu_plan_even_tiles(job, warps);
    if (!gpu_plan_splits_prefill(job))
        return 0;
    for (uint32_t i = gpu_thread(); i < job->lengths.seqs; i += GPU_PLAN_THREADS) {
        job = (const struct gpu_plan_job *)gpu_again(job);
        const struct gpu_prefill_work own = gpu_plan_work(job, i, converts);
        all.row_tiles += own.row_tiles;
        all.tiles += own.tiles;
    }
    all.row_tiles = gpu_plan_sum(all.row_tiles, warps);
    all.tiles = gpu_plan_sum(all.tiles, warps);
    return gpu_prefill_split_tiles(&job->split_rules, all);
}

/* MLA: KV tiles of each row tile, or 0 if these are not the same. */
GPU_INLINE uint64_t gpu_plan_same_tiles(const struct gpu_plan_job *job, uint64_t *warps)
{
    const uint64_t same = gpu_plan_first_tiles(job);
    uint64_t others = 0;

    if (same == 0)
        return 0;
    for (uint32_t i = gpu_thread(); i < job->lengths.seqs; i += GPU_PLAN_THREADS) {
        job = (const struct gpu_plan_job *)gpu_again(job);
        others += gpu_plan_differs(job, i, same) != 0 ? 1 : 0;
    }
    return gpu_plan_sum(others, warps) == 0 ? same : 0;
}

GPU_KERNEL(gpu_plan, GPU_PLAN_THREADS, 1)(GPU_ARGUMENT(struct gpu_plan, argument))
{
    const struct gpu_plan *a = (const struct gpu_plan *)gpu_argument(&argument);
    GPU_SHARED uint64_t warps[GPU_PLAN_THREADS / GPU_WARP];
    const struct gpu_plan_job *job = &a->jobs[gpu_cta()];
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;
    const uint32_t seqs = job->lengths.seqs;
    uint64_t before = 0;
    struct gpu_plan_step step;

    step.converts = gpu_plan_converts(job, warps);
    step.split_tiles = gpu_plan_split_tiles(job, step.converts, warps);
    step.same_tiles = gpu_plan_same_tiles(job, warps);
    if (gpu_thread() == 0)
        gpu_plan_store_end(job, &step);

    for (uint32_t base = 0; base <= seqs; base += GPU_PLAN_THREADS) {
        job = (const struct gpu_plan_job *)gpu_again(job);
        const uint32_t i = base + gpu_thread();
        const uint64_t own = i < seqs ? gpu_plan_tile_count(job, i, &step) : 0;
        uint64_t sum = own;
        for (uint32_t far = 1; far < GPU_WARP; far *= 2) {
            const uint64_t other = gpu_shuffle_u64(sum, lane >= far ? lane - far : lane);
            sum += lane >= far ? other : 0;
        }
        if (lane == GPU_WARP - 1)
            warps[warp] = sum;
        gpu_barrier();
        uint64_t above = before, all = 0;
        for (uint32_t w = 0; w < GPU_PLAN_THREADS / GPU_WARP; w++) {
            above += w < warp ? warps[w] : 0;
            all += warps[w];
        }
        if (i <= seqs)
            gpu_plan_store(job, i, above + sum - own + (i == seqs ? gpu_plan_mark(job, &step) : 0));
        before += all;
        gpu_barrier();
    }
}

#endif
