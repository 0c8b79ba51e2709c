/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The schedule of the kernels for latent caches: sums over sequences, by one CTA. */
#ifndef ATTN_GPU_LATENT_PLAN_H
#define ATTN_GPU_LATENT_PLAN_H

#include "port.h"

#include "latent-cuts.h"
#include "latent.h"
#include "sequence.h"

/* run.ctas says how many rows a tile has. */
GPU_KERNEL(latent_plan, GPU_LATENT_PLAN_THREADS, 1)(GPU_ARGUMENT(struct gpu_run, run))
{
    GPU_SHARED uint64_t warps[GPU_LATENT_PLAN_THREADS / GPU_WARP];
    const struct latent_cuts cuts = latent_cuts_of(&run.problem, run.ctas);
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;
    uint64_t *sums = (uint64_t *)run.schedule;
    uint64_t before = 0;

    for (uint32_t base = 0; base <= run.batch.seqs; base += GPU_LATENT_PLAN_THREADS) {
        const uint32_t i = base + gpu_thread();
        uint64_t own = 0;
        if (i < run.batch.seqs) {
            const struct gpu_sequence s = gpu_sequence(&run, i);
            own = latent_share(&cuts, &s.visible, s.q_len, s.kv_len);
        }
        uint64_t sum = own;
        for (uint32_t step = 1; step < GPU_WARP; step *= 2) {
            const uint64_t other = gpu_shuffle_u64(sum, lane >= step ? lane - step : lane);
            sum += lane >= step ? other : 0;
        }
        if (lane == GPU_WARP - 1)
            warps[warp] = sum;
        gpu_barrier();
        uint64_t above = before, all = 0;
        for (uint32_t w = 0; w < GPU_LATENT_PLAN_THREADS / GPU_WARP; w++) {
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
