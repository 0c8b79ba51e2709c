/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The schedule of the matrix kernels: sums over sequences, by one CTA. */
#ifndef ATTN_GPU_MMA_PLAN_H
#define ATTN_GPU_MMA_PLAN_H

#include "port.h"

#include "pieces.h"

#define GPU_MMA_PLAN_THREADS 1024

/* run.phase says which sequences, run.ctas how many rows a tile of many rows has. */
GPU_KERNEL(mma_plan, GPU_MMA_PLAN_THREADS, 1)(GPU_ARGUMENT(struct gpu_run, run))
{
    GPU_SHARED uint32_t warps[GPU_MMA_PLAN_THREADS / GPU_WARP];
    const struct gpu_cuts cuts = gpu_cuts_of(&run.problem, run.phase, run.ctas);
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;
    uint32_t *sums = (uint32_t *)run.schedule;
    uint32_t before = 0;

    for (uint32_t base = 0; base <= run.batch.seqs; base += GPU_MMA_PLAN_THREADS) {
        const uint32_t i = base + gpu_thread();
        uint32_t own = 0;
        if (i < run.batch.seqs) {
            const struct gpu_sequence s = gpu_sequence(&run, i);
            own = gpu_share(&cuts, &s.visible, s.q_len, s.kv_len);
        }
        uint32_t sum = own;
        for (uint32_t step = 1; step < GPU_WARP; step *= 2) {
            const uint32_t other = gpu_shuffle_u32(sum, lane >= step ? lane - step : lane);
            sum += lane >= step ? other : 0;
        }
        if (lane == GPU_WARP - 1)
            warps[warp] = sum;
        gpu_barrier();
        uint32_t above = before, all = 0;
        for (uint32_t w = 0; w < GPU_MMA_PLAN_THREADS / GPU_WARP; w++) {
            above += w < warp ? warps[w] : 0;
            all += warps[w];
        }
        if (i <= run.batch.seqs)
            sums[i] = above + sum - own;
        before += all;
        gpu_barrier();
    }
}

#endif
