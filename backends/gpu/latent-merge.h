/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Parts of a tile of rows into one, after the kernels for latent caches: a warp for every row. */
#ifndef ATTN_GPU_LATENT_MERGE_H
#define ATTN_GPU_LATENT_MERGE_H

#include "port.h"

#include "latent-pieces.h"
#include "latent-rows.h"
#include "latent.h"

/* The tile of rows that is cut first where the pieces of this CTA and of the next one meet, if there is one.
 */
GPU_INLINE bool latent_cut_line(const struct gpu_run *run, uint32_t rows, struct gpu_sequence *s,
                                struct latent_piece *p)
{
    const uint64_t all = latent_sum(run, run->batch.seqs);
    const uint32_t ctas = latent_ctas(run, all), cta = gpu_cta();
    struct latent_place place = {0, 0, 0};

    if (cta + 1 >= ctas)
        return false;
    *p = latent_piece_at(run, rows, all, latent_begin(all, cta + 1, ctas), all, ctas, &place, s);
    return p->from == cta;
}

/* det: tile of rows `tile` of sequence `seq`, if its keys are cut. */
GPU_INLINE bool latent_cut_fixed(const struct gpu_run *run, uint32_t rows, uint32_t seq, uint32_t tile,
                                 struct gpu_sequence *s, struct latent_piece *p)
{
    struct latent_place place = {0, 0, 0};

    if (seq >= run->batch.seqs)
        return false;
    uint64_t at = latent_sum(run, seq);
    const uint64_t end = latent_sum(run, seq + 1);
    for (uint32_t i = 0; at < end; i++) {
        *p = latent_piece_at(run, rows, end, at, end, 1, &place, s);
        if (i == tile)
            return p->parts > 1;
        at += p->parts;
    }
    return false;
}

GPU_INLINE void latent_merge_row(const struct gpu_run *run, const struct gpu_sequence *s,
                                 const struct latent_piece *p, uint32_t rows, uint32_t row)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const float *lse = (const float *)run->part_lse;
    uint32_t token, head;
    float peak = -GPU_INFINITY, total = 0, values[16];

    if (!latent_row_of(run, s, p->row0 + row, &token, &head))
        return;
    for (uint32_t i = lane; i < p->parts; i += GPU_WARP)
        peak = fmaxf(peak, lse[2 * ((uint64_t)latent_slot(p, i) * rows + row)]);
    GPU_UNROLL
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2)
        peak = fmaxf(peak, gpu_shuffle_xor_f32(peak, mask));
    const float base = peak == -GPU_INFINITY ? 0 : peak;
    GPU_UNROLL
    for (uint32_t j = 0; j < 16; j++)
        values[j] = 0;
    for (uint32_t i = 0; i < p->parts; i++) {
        const uint64_t at = (uint64_t)latent_slot(p, i) * rows + row;
        const float share = gpu_exp2(lse[2 * at] - base);
        const float *out = (const float *)run->part_out + at * GPU_LATENT_VO;
        total += lse[2 * at + 1] * share;
        GPU_UNROLL
        for (uint32_t j = 0; j < 16; j++)
            values[j] += out[j * GPU_WARP + lane] * share;
    }
    latent_emit(run, s, token, head, peak, total, values, lane);
}

/* run.rows says how many rows a tile has. Grid: pieces of the line, or sequences and tiles; 8 rows each. */
GPU_KERNEL(latent_merge, GPU_LATENT_THREADS, 2)(GPU_ARGUMENT(struct gpu_run, run))
{
    GPU_SHARED struct latent_piece piece;
    GPU_SHARED struct gpu_sequence sequence;
    GPU_SHARED bool cut;

    if (gpu_thread() == 0)
        cut = run.problem.det != 0
                  ? latent_cut_fixed(&run, run.rows, gpu_cta(), gpu_cta_y(), &sequence, &piece)
                  : latent_cut_line(&run, run.rows, &sequence, &piece);
    gpu_barrier();
    if (cut)
        latent_merge_row(&run, &sequence, &piece, run.rows,
                         gpu_cta_z() * (GPU_LATENT_THREADS / GPU_WARP) + gpu_thread() / GPU_WARP);
}

#endif
