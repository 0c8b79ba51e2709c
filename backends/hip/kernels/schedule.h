/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which work tile of the schedule a work-group takes next. */
#ifndef ATTN_HIP_SCHEDULE_H
#define ATTN_HIP_SCHEDULE_H

#include "shared.h"

/*
 * The first work tile of the work-group, or the one behind the last, found by 32 threads: each looks at a
 * sequence, and the one whose sequence holds the place writes it down. In decode it is the next in the
 * work-group's stretch of the work list, or with det=1 one of fixed KV splits; in prefill a tile of rows.
 */
template <class Config>
GPU_INLINE void tile_next_work(const struct gpu_run *run, struct tile_shared<Config> *shared, bool begins)
{
    const uint32_t seqs = run->batch.seqs;
    const bool prefill = run->phase == ATTN__PREFILL, list = !prefill && run->problem.det == 0;
    const uint64_t all = (uint64_t)gpu_sum(run, seqs) * run->problem.kv_heads;
    const uint32_t ctas = all < gpu_ctas() ? (uint32_t)all : gpu_ctas(); /* none without work */
    uint32_t index = Config::thread();

    if (begins && gpu_cta() >= ctas) {
        shared->work.splits = 0;
        return;
    }
    const uint64_t at = !begins ? shared->work.next : list ? gpu_list_begin(all, gpu_cta(), ctas) : gpu_cta();
    const uint64_t unit = gpu_divide_u64(prefill ? all - 1 - at : at, run->problem.kv_heads);
    index += gpu_find_block(run, unit);
    const bool there = index < seqs;
    const uint32_t below = there ? gpu_sum(run, index) : 0, above = there ? gpu_sum(run, index + 1) : 0;
    gpu_warp_barrier(); /* the last work tile has been read */
    if (there && unit >= below && unit < above) {
        const struct gpu_sequence s = gpu_sequence(run, index);
        const uint64_t end = list ? gpu_list_begin(all, gpu_cta() + 1, ctas) : all;
        shared->sequence = s;
        shared->work = prefill ? gpu_prefill_tile_at(run, &s, at, all, below, above, Config::rows)
                               : gpu_decode_tile_at(run, &s, at, end, all, ctas, below, above, Config::rows);
    }
    gpu_warp_barrier();
    if (Config::thread() < 4)
        shared->origin[Config::thread() / 2][Config::thread() % 2] =
            gpu_origin_of(run, &shared->sequence, shared->work.kv_head, Config::thread() / 2 != 0,
                          Config::thread() % 2 != 0);
}

#endif
