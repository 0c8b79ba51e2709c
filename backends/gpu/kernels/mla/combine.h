/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Combines the splits of a row tile after the MLA kernels: a warp for every row. */
#ifndef ATTN_GPU_MLA_COMBINE_H
#define ATTN_GPU_MLA_COMBINE_H

#include "device.h"

#include "row.h"
#include "sizes.h"
#include "work-tile.h"

/* The row tile that is split where the stretches of this CTA and the next one meet, if this CTA has its first
 * split. */
GPU_INLINE bool mla_find_split(const struct gpu_run *run, uint32_t rows, struct gpu_sequence *s,
                               struct mla_work_tile *work)
{
    const uint64_t all = mla_schedule_at(run, run->batch.seqs);
    const uint32_t ctas = mla_cta_count(run, all), cta = gpu_cta();
    struct mla_cursor cursor = {0, 0, 0};

    if (cta + 1 >= ctas)
        return false;
    *work = mla_work_tile_at(run, rows, all, mla_cta_begin(all, cta + 1, ctas), all, ctas, &cursor, s);
    return work->first_cta == cta;
}

/* det: row tile `tile` of sequence `seq`, if its keys are split. */
GPU_INLINE bool mla_find_fixed_split(const struct gpu_run *run, uint32_t rows, uint32_t seq, uint32_t tile,
                                     struct gpu_sequence *s, struct mla_work_tile *work)
{
    struct mla_cursor cursor = {0, 0, 0};

    if (seq >= run->batch.seqs)
        return false;
    uint64_t at = mla_schedule_at(run, seq);
    const uint64_t end = mla_schedule_at(run, seq + 1);
    for (uint32_t i = 0; at < end; i++) {
        *work = mla_work_tile_at(run, rows, end, at, end, 1, &cursor, s);
        if (i == tile)
            return work->splits > 1;
        at += work->splits;
    }
    return false;
}

GPU_INLINE void mla_combine_row(const struct gpu_run *run, const struct gpu_sequence *s,
                                const struct mla_work_tile *work, uint32_t rows, uint32_t row)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const float *lse = (const float *)run->partial_lse;
    uint32_t token, head;
    float row_max = -GPU_INFINITY, row_sum = 0, values[16];

    if (!mla_row_of(run, s, work->row0 + row, &token, &head))
        return;
    for (uint32_t i = lane; i < work->splits; i += GPU_WARP)
        row_max = fmaxf(row_max, lse[2 * ((uint64_t)mla_partial_index(work, i) * rows + row)]);
    GPU_UNROLL
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2)
        row_max = fmaxf(row_max, gpu_shuffle_xor_f32(row_max, mask));
    const float base = row_max == -GPU_INFINITY ? 0 : row_max;
    GPU_UNROLL
    for (uint32_t j = 0; j < 16; j++)
        values[j] = 0;
    for (uint32_t i = 0; i < work->splits; i++) {
        const uint64_t at = (uint64_t)mla_partial_index(work, i) * rows + row;
        const float share = gpu_exp2(lse[2 * at] - base);
        const float *out = (const float *)run->partial_out + at * MLA_VO_DIM;
        row_sum += lse[2 * at + 1] * share;
        GPU_UNROLL
        for (uint32_t j = 0; j < 16; j++)
            values[j] += out[j * GPU_WARP + lane] * share;
    }
    mla_store_row(run, s, token, head, row_max, row_sum, values, lane);
}

/* run.rows says how many rows a tile has. Grid: CTAs of the kernel before, or sequences and row tiles; 8 rows
 * each. */
GPU_KERNEL(mla_combine, MLA_THREADS, 2)(GPU_ARGUMENT(struct gpu_run, run))
{
    GPU_SHARED struct mla_work_tile work;
    GPU_SHARED struct gpu_sequence sequence;
    GPU_SHARED bool split;

    if (gpu_thread() == 0)
        split = run.problem.det != 0
                    ? mla_find_fixed_split(&run, run.rows, gpu_cta(), gpu_cta_y(), &sequence, &work)
                    : mla_find_split(&run, run.rows, &sequence, &work);
    gpu_barrier();
    if (split)
        mla_combine_row(&run, &sequence, &work, run.rows,
                        gpu_cta_z() * (MLA_THREADS / GPU_WARP) + gpu_thread() / GPU_WARP);
}

#endif
