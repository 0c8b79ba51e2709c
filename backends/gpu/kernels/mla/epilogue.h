/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The end of a work tile of the MLA kernel: O of all warps together, then stored as rows or as partials. */
#ifndef ATTN_GPU_MLA_EPILOGUE_H
#define ATTN_GPU_MLA_EPILOGUE_H

#include "row.h"
#include "values.h"

/* The row sums of all warps, and for a result that is not partial O, into shared memory. */
template <class Config>
GPU_INLINE void mla_join_warps(struct mla_shared<Config> *shared, float *to, const struct mla_warp *w,
                               float o[Config::row_blocks][8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

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
    if (shared->work.splits == 1) {
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::row_blocks * 32; i++) {
            const uint32_t m = i / 32, n = i / 4 % 8, e = i % 4;
            to[(m * 16 + e / 2 * 8 + lane / 4) * Config::out_pitch + mla_out_column<Config>(n, e)] =
                o[m][n][e];
        }
    }
    gpu_barrier();
    if (gpu_thread() < Config::rows) {
        float sum = 0;
        for (uint32_t i = 0; i < Config::block_warps; i++)
            sum += shared->warp_max[i][gpu_thread()];
        shared->row_sum[gpu_thread()] = sum;
    }
}

/* Two neighbouring columns of O. */
GPU_INLINE uint64_t mla_pair(float low, float high)
{
    return gpu_f32_bits(low) | (uint64_t)gpu_f32_bits(high) << 32;
}

/* O and LSE of a split into the split workspace. */
template <class Config>
GPU_INLINE void mla_store_partial(const struct gpu_run *run, const struct mla_shared<Config> *shared,
                                  float o[Config::row_blocks][8][4])
{
    const struct mla_work_tile *work = &shared->work;
    const uint64_t at = (uint64_t)mla_partial_index(work, work->split) * Config::rows;
    const uint32_t lane = gpu_thread() % GPU_WARP, all = shared->sequence.q_len * run->group;

    GPU_UNROLL
    for (uint32_t i = 0; i < 2 * Config::row_blocks; i++) {
        const uint32_t m = i / 2, h = i % 2, row = m * 16 + h * 8 + lane / 4;
        float *out = (float *)run->partial_out + (at + row) * MLA_VO_DIM;
        if (work->row0 + row >= all)
            continue;
        GPU_UNROLL
        for (uint32_t n = 0; n < 8; n += 2) {
            const float *x = o[m][n] + 2 * h, *y = o[m][n + 1] + 2 * h;
            uint64_t *const first = (uint64_t *)(void *)(out + mla_out_column<Config>(n, 0));
            /* Of codes, the fragments have every other of four columns. */
            first[0] = Config::kv8 ? mla_pair(x[0], y[0]) : mla_pair(x[0], x[1]);
            first[Config::kv8 ? 1 : 4] = Config::kv8 ? mla_pair(x[1], y[1]) : mla_pair(y[0], y[1]);
        }
    }
    if (gpu_thread() < Config::rows) {
        float *lse = (float *)run->partial_lse + 2 * (at + gpu_thread());
        lse[0] = shared->row_max[gpu_thread()];
        lse[1] = shared->row_sum[gpu_thread()];
    }
}

/* Rows of shared memory into the output. */
template <class Config>
GPU_INLINE void mla_store_rows(const struct gpu_run *run, struct mla_shared<Config> *shared,
                               const float *from, const struct mla_work_tile *work)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;

    gpu_barrier();
    GPU_LOOP
    for (uint32_t row = warp; row < Config::rows; row += Config::warps) {
        uint32_t token, head;
        if (!mla_row_of(run, s, work->row0 + row, &token, &head))
            break;
        float values[16];
        GPU_UNROLL
        for (uint32_t j = 0; j < 16; j++)
            values[j] = from[row * Config::out_pitch + j * GPU_WARP + lane];
        mla_store_row(run, s, token, head, shared->row_max[row], shared->row_sum[row], values, lane);
    }
}

#endif
