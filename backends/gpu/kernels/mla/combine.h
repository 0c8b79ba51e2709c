/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Combines the splits of a row tile after the MLA kernels: one to eight warps for every row. */
#ifndef ATTN_GPU_MLA_COMBINE_H
#define ATTN_GPU_MLA_COMBINE_H

#include "device.h"

#include "row.h"
#include "sizes.h"
#include "work-tile.h"

/* det: row tile `tile` of sequence `seq`, if its keys are split. */
GPU_INLINE bool mla_find_fixed_split(const struct gpu_run *run, uint32_t rows, uint32_t seq, uint32_t tile,
                                     struct gpu_sequence *s, struct mla_work_tile *work)
{
    if (seq >= run->batch.seqs)
        return false;
    uint64_t at = mla_schedule_at(run, seq);
    const uint64_t end = mla_schedule_at(run, seq + 1);
    struct mla_cursor cursor = {at, end, 0};
    *s = gpu_sequence(run, seq);
    for (uint32_t i = 0; at < end; i++) {
        *work = mla_work_tile_at(run, rows, at, end, 1, &cursor, s);
        if (i == tile)
            return work->splits > 1;
        at += work->splits;
    }
    return false;
}

/* A row's share of the splits that one warp adds up: all maxima, and its own sums. */
struct mla_combined {
    float max, base, sum;
    float values[4][4]; /* columns j * 128 + lane * 4 + e */
};

/*
 * Adds splits first, first + step, ... to `to`. Four of them are read at once, as the time to read one passes
 * for all; splits behind the last are read again, and count for nothing.
 */
GPU_INLINE void mla_add_splits(const struct gpu_run *run, const struct mla_work_tile *work, uint32_t row,
                               uint32_t first, uint32_t step, struct mla_combined *to)
{
    constexpr uint32_t at_once = 4;
    const float *lse = (const float *)run->partial_lse;
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_LOOP
    for (uint32_t i = first; i < work->splits; i += at_once * step) {
        struct gpu_u128 out[at_once][4];
        float row_max[at_once], row_sum[at_once];
        GPU_UNROLL
        for (uint32_t k = 0; k < at_once; k++) {
            const bool exists = i + k * step < work->splits;
            const uint64_t at =
                (uint64_t)mla_partial_index(work, exists ? i + k * step : i) * run->rows + row;
            const float *from = (const float *)run->partial_out + at * MLA_VO_DIM + lane * 4;
            row_max[k] = exists ? lse[2 * at] : -GPU_INFINITY;
            row_sum[k] = exists ? lse[2 * at + 1] : 0;
            GPU_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                out[k][j] = gpu_load_u128(from + j * 128);
        }
        GPU_UNROLL
        for (uint32_t k = 0; k < at_once; k++) {
            const bool exists = i + k * step < work->splits;
            const float share = gpu_exp2(row_max[k] - to->base);
            to->sum += row_sum[k] * share;
            GPU_UNROLL
            for (uint32_t j = 0; j < 16; j++)
                to->values[j / 4][j % 4] += exists ? gpu_f32_of_bits(out[k][j / 4].x[j % 4]) * share : 0;
        }
    }
}

/* What warp `part` of the `parts` of a row has of it. */
GPU_INLINE void mla_combine_part(const struct gpu_run *run, const struct mla_work_tile *work, uint32_t row,
                                 uint32_t part, uint32_t parts, struct mla_combined *out)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const float *lse = (const float *)run->partial_lse;

    out->max = -GPU_INFINITY;
    GPU_LOOP
    for (uint32_t i = lane; i < work->splits; i += 4 * GPU_WARP) {
        GPU_UNROLL
        for (uint32_t k = 0; k < 4; k++) { /* loads of all four are in flight */
            const uint32_t split = i + k * GPU_WARP < work->splits ? i + k * GPU_WARP : i;
            out->max = fmaxf(out->max, lse[2 * ((uint64_t)mla_partial_index(work, split) * run->rows + row)]);
        }
    }
    GPU_UNROLL
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2)
        out->max = fmaxf(out->max, gpu_shuffle_xor_f32(out->max, mask));
    out->base = out->max == -GPU_INFINITY ? 0 : out->max;
    out->sum = 0;
    GPU_UNROLL
    for (uint32_t j = 0; j < 16; j++)
        out->values[j / 4][j % 4] = 0;
    mla_add_splits(run, work, row, part, parts, out);
}

struct mla_combine_shared {
    struct mla_work_tile work;
    struct gpu_sequence sequence;
    bool split;
    alignas(16) uint32_t noted[MLA_THREADS / GPU_WARP]; /* read 16 bytes at once: no byte of `split` */
    float sum[MLA_THREADS / GPU_WARP];
    alignas(16) float values[MLA_THREADS / GPU_WARP][MLA_VO_DIM]; /* of each warp */
};

GPU_INLINE uint32_t mla_count_bits(uint32_t x)
{
    uint32_t count = 0;

    for (; x != 0; x &= x - 1)
        count++;
    return count;
}

/*
 * Row tile `number` of those whose keys are split. Each thread looks at what one CTA of the kernel before has
 * noted, of which there are run->units.
 */
GPU_INLINE void mla_find_split(const struct gpu_run *run, uint32_t number, struct mla_combine_shared *shared)
{
    const struct mla_split_tile *notes = GPU_GLOBAL(const struct mla_split_tile, run->scratch);
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    uint32_t before = 0; /* row tiles that earlier CTAs have noted */

    GPU_LOOP
    for (uint32_t first = 0; first < run->units; first += MLA_THREADS) {
        const uint32_t cta = first + gpu_thread();
        struct mla_split_tile note = {0, 0, 0, 0, 0, 0, 0, 0};
        if (cta < run->units)
            note = notes[cta];
        const uint32_t bits = gpu_ballot(note.splits > 1);
        if (lane == 0)
            shared->noted[warp] = bits;
        gpu_barrier();
        uint32_t index = before + mla_count_bits(bits & ((1u << lane) - 1));
        for (uint32_t i = 0; i < MLA_THREADS / GPU_WARP; i++) {
            const uint32_t count = mla_count_bits(shared->noted[i]);
            index += i < warp ? count : 0;
            before += count;
        }
        if (note.splits > 1 && index == number) {
            shared->split = true;
            shared->work.splits = note.splits;
            shared->work.row0 = note.row0;
            shared->work.first_partial = note.first_partial;
            shared->work.rest_partial = note.rest_partial;
            shared->work.partial_step = note.partial_step;
            shared->sequence.index = note.seq;
            shared->sequence.row = note.row;
            shared->sequence.q_len = note.q_len;
        }
        gpu_barrier();
    }
}

/* The row tile's rows of this CTA: each by as many warps as there are for it. */
GPU_INLINE void mla_combine_rows(const struct gpu_run *run, struct mla_combine_shared *shared)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t ctas = mla_combine_ctas(&run->problem, run->rows, run->units);
    const uint32_t cta_rows = run->rows / ctas, parts = MLA_THREADS / GPU_WARP / cta_rows;
    const uint32_t row = gpu_cta() % ctas * cta_rows + warp / parts;
    uint32_t token, head;
    const bool exists = mla_row_of(run, &shared->sequence, shared->work.row0 + row, &token, &head);
    struct mla_combined mine;

    if (exists) {
        mla_combine_part(run, &shared->work, row, warp % parts, parts, &mine);
        shared->sum[warp] = mine.sum;
        GPU_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            struct gpu_u128 word;
            GPU_UNROLL
            for (uint32_t e = 0; e < 4; e++)
                word.x[e] = gpu_f32_bits(mine.values[j][e]);
            gpu_store_u128(&shared->values[warp][j * 128 + lane * 4], word);
        }
    }
    gpu_barrier();
    if (!exists || warp % parts != 0)
        return;
    float sum = 0, values[16];
    GPU_UNROLL
    for (uint32_t j = 0; j < 16; j++)
        values[j] = 0;
    for (uint32_t i = warp; i < warp + parts; i++) {
        sum += shared->sum[i];
        GPU_UNROLL
        for (uint32_t j = 0; j < 16; j++)
            values[j] += shared->values[i][j * GPU_WARP + lane];
    }
    mla_store_row(run, &shared->sequence, token, head, mine.max, sum, values, lane);
    if (lane == 0)
        mla_store_lse(run, &shared->sequence, token, head, mine.max, sum);
}

/* run.rows says how many rows a tile has. Grid: as many row tiles as can be split, or det: sequences and row
 * tiles; parts of a row tile. */
GPU_KERNEL(mla_combine, MLA_THREADS, 2)(GPU_ARGUMENT(struct gpu_run, run))
{
    GPU_SHARED struct mla_combine_shared shared;
    const uint32_t number = gpu_cta() / mla_combine_ctas(&run.problem, run.rows, run.units);

    if (gpu_thread() == 0)
        shared.split = run.problem.det != 0 && mla_find_fixed_split(&run, run.rows, number, gpu_cta_y(),
                                                                    &shared.sequence, &shared.work);
    gpu_barrier();
    if (run.problem.det == 0)
        mla_find_split(&run, number, &shared);
    if (shared.split)
        mla_combine_rows(&run, &shared);
}

#endif
