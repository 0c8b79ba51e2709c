/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The end of a work tile of the MLA kernel: O of all warps together, then stored as rows or as partials. */
#ifndef ATTN_GPU_MLA_EPILOGUE_H
#define ATTN_GPU_MLA_EPILOGUE_H

#include "config.h"
#include "row.h"

/* O and row sums of all warps into shared memory. */
template <class Config>
GPU_INLINE void mla_join_warps(struct mla_shared<Config> *shared, float *to, const struct mla_warp *w,
                               float o[Config::row_blocks][8][4])
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;

    gpu_barrier(); /* the last tile and its maxima have been read */
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t row = w->block * 16 + h * 8 + lane / 4;
        float sum = shared->thread_sum[h][gpu_thread()];
        sum += gpu_shuffle_xor_f32(sum, 1);
        sum += gpu_shuffle_xor_f32(sum, 2);
        if (lane % 4 == 0)
            shared->warp_max[w->group][row] = sum;
    }
    GPU_UNROLL
    for (uint32_t m = 0; m < Config::row_blocks; m++) {
        GPU_UNROLL
        for (uint32_t n = 0; n < 8; n++) {
            GPU_UNROLL
            for (uint32_t e = 0; e < 4; e++)
                to[(m * 16 + e / 2 * 8 + lane / 4) * Config::out_pitch + warp * 64 + n * 8 + lane % 4 * 2 +
                   e % 2] = o[m][n][e];
        }
    }
    gpu_barrier();
    if (gpu_thread() < Config::rows) {
        float sum = 0;
        for (uint32_t i = 0; i < Config::block_warps; i++)
            sum += shared->warp_max[i][gpu_thread()];
        shared->row_sum[gpu_thread()] = sum;
    }
    gpu_barrier();
}

/* Rows of shared memory into the output, or as partial O and LSE into the split workspace. */
template <class Config>
GPU_INLINE void mla_store_rows(const struct gpu_run *run, struct mla_shared<Config> *shared,
                               const float *from, const struct mla_work_tile *work)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;

    GPU_LOOP
    for (uint32_t row = warp; row < Config::rows; row += Config::warps) {
        uint32_t token, head;
        if (!mla_row_of(run, s, work->row0 + row, &token, &head))
            break;
        float values[16];
        GPU_UNROLL
        for (uint32_t j = 0; j < 16; j++)
            values[j] = from[row * Config::out_pitch + j * GPU_WARP + lane];
        if (work->splits == 1) {
            mla_store_row(run, s, token, head, shared->row_max[row], shared->row_sum[row], values, lane);
            continue;
        }
        const uint64_t at = (uint64_t)mla_partial_index(work, work->split) * Config::rows + row;
        float *out = (float *)run->partial_out + at * MLA_VO_DIM;
        GPU_UNROLL
        for (uint32_t j = 0; j < 16; j++)
            out[j * GPU_WARP + lane] = values[j];
        if (lane == 0) {
            ((float *)run->partial_lse)[2 * at] = shared->row_max[row];
            ((float *)run->partial_lse)[2 * at + 1] = shared->row_sum[row];
        }
    }
}

#endif
