/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The kernel that combines splits, where those that made them do not: of prefill it has a CTA for each work
 * tile of the kernel before it, of decode as many as that one. The CTAs of the splits of a row tile share its
 * rows; of decode all but that of the first split, which need not begin with it.
 */
#ifndef ATTN_GPU_MMA_COMBINE_KERNEL_H
#define ATTN_GPU_MMA_COMBINE_KERNEL_H

#include "combine.h"
#include "schedule.h"

/* In place of a configuration: the kernel that combines what kernels of configuration `C` leave. */
template <class C> struct mma_combining {
    static constexpr uint32_t CTA_THREADS = GPU_COMBINE_THREADS, CTAS = 2;
};

struct mma_combine_shared {
    struct gpu_sequence sequence;
    struct gpu_work_tile work;
};

/* Finds the CTA's first work tile; work.splits is 1 where it has none. Each lane of a warp looks at one
 * sequence. */
template <class C> GPU_INLINE void mma_find_tile(const struct gpu_run *run, struct mma_combine_shared *shared)
{
    const uint32_t seqs = run->batch.seqs;
    const bool decode = !C::PREFILL_ONLY && run->phase != ATTN__PREFILL;
    const uint64_t all = (uint64_t)gpu_sum(run, seqs) * run->problem.kv_heads;
    const uint32_t ctas = mma_list_ctas(run, all, decode);
    uint32_t index = gpu_thread();

    if (decode ? gpu_cta() >= ctas : gpu_cta() >= all) {
        shared->work.splits = 1;
        return;
    }
    const uint64_t at = decode ? gpu_list_begin(all, gpu_cta(), ctas) : gpu_cta();
    const uint64_t unit = mma_list_unit(run, all, at);
    if (seqs > GPU_WARP)
        index += gpu_find_block(run, unit);
    if (index >= seqs)
        return;
    const uint32_t below = gpu_sum(run, index), above = gpu_sum(run, index + 1);
    if (unit >= below && unit < above) {
        shared->sequence = gpu_sequence(run, index);
        shared->work =
            decode ? gpu_decode_tile_at(run, &shared->sequence, at, gpu_list_begin(all, gpu_cta() + 1, ctas),
                                        all, ctas, below, above, C::ROWS)
                   : gpu_prefill_tile_at(run, &shared->sequence, at, all, below, above, C::ROWS);
    }
}

template <class C> GPU_INLINE void mma_combine_kernel(const struct gpu_run *run)
{
    constexpr uint32_t warps = GPU_COMBINE_THREADS / GPU_WARP;
    /* Rows, and splits of a row, that a warp loads at once. A row tile with few splits has few warps for its
     * rows. */
    constexpr uint32_t rows = C::DV <= 128 ? 3 : C::DV <= 256 ? 2 : 1;
    constexpr uint32_t splits = C::DV <= 128 ? 16 : C::DV <= 256 ? 8 : 4;
    GPU_SHARED struct mma_combine_shared shared;
    const struct gpu_work_tile *p = &shared.work;

    if (gpu_thread() < GPU_WARP)
        mma_find_tile<C>(run, &shared);
    gpu_barrier();
    const uint32_t first = C::PREFILL_ONLY || run->phase == ATTN__PREFILL ? 0 : 1;
    if (p->splits <= 1 || p->split < first)
        return;
    const uint32_t begin = (p->split - first) * warps + gpu_thread() / GPU_WARP,
                   step = (p->splits - first) * warps;
    if (p->splits <= 2)
        mma_combine_splits<C, rows, 2>(run, &shared.sequence, p, begin, step);
    else if (p->splits <= 4)
        mma_combine_splits<C, rows, 4>(run, &shared.sequence, p, begin, step);
    else
        mma_combine_splits<C, 1, splits>(run, &shared.sequence, p, begin, step);
}

#endif
