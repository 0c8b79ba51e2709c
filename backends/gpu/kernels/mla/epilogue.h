/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The end of a work tile of the MLA kernel: O of all warps together, then stored as rows or as partials. */
#ifndef ATTN_GPU_MLA_EPILOGUE_H
#define ATTN_GPU_MLA_EPILOGUE_H

#include "row.h"
#include "values.h"

/* Whether results are stored from registers, eight 16-bit columns at once: of warp groups, whose threads have
 * few rows each. */
template <class Config> GPU_INLINE bool mla_stores_directly(const struct gpu_run *run)
{
    const struct gpu_tensor *out = &run->out;

    return Config::groups && run->problem.out_dtype != ATTN_F32 && run->problem.head_dim_vo == MLA_VO_DIM &&
           run->problem.out_scale <= ATTN_SCALES_UNIT &&
           ((out->base | (uint64_t)out->token_stride | (uint64_t)out->head_stride) & 15) == 0;
}

/* The row sums of all warps, and for a result that is not partial O, into shared memory. */
template <class Config>
GPU_INLINE void mla_join_warps(const struct gpu_run *run, struct mla_shared<Config> *shared, float *to,
                               const struct mla_warp *w, const float thread_sum[2],
                               const float o[Config::out_blocks][Config::out_fragments][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    gpu_barrier(); /* the last tile and its maxima have been read */
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t row = w->block * 16 + h * 8 + lane / 4;
        float sum = thread_sum[h];
        sum += gpu_shuffle_xor_f32(sum, 1);
        sum += gpu_shuffle_xor_f32(sum, 2);
        if (lane % 4 == 0)
            shared->warp_max[w->group][row] = sum;
    }
    if (shared->work.splits == 1 && !mla_stores_directly<Config>(run)) {
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::out_blocks * Config::out_fragments * 4; i++) {
            const uint32_t m = i / 4 / Config::out_fragments, n = i / 4 % Config::out_fragments, e = i % 4;
            to[mla_out_row<Config>(m, e) * Config::out_pitch + mla_out_column<Config>(n, e)] = o[m][n][e];
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
                                  const float o[Config::out_blocks][Config::out_fragments][4])
{
    const struct mla_work_tile *work = &shared->work;
    const uint64_t at = (uint64_t)mla_partial_index(work, work->split) * Config::rows;
    const uint32_t all = shared->sequence.q_len * run->group;

    GPU_UNROLL
    for (uint32_t i = 0; i < 2 * Config::out_blocks; i++) {
        const uint32_t m = i / 2, h = i % 2, row = mla_out_row<Config>(m, 2 * h);
        float *out = (float *)run->partial_out + (at + row) * MLA_VO_DIM;
        if (work->row0 + row >= all)
            continue;
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::out_fragments; n += 2) {
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

/* LSEs of a work tile's rows: lanes store one each at once. */
template <class Config>
GPU_INLINE void mla_store_lses(const struct gpu_run *run, const struct mla_shared<Config> *shared)
{
    const uint32_t row = gpu_thread();
    uint32_t token, head;

    if (row < Config::rows && mla_row_of(run, &shared->sequence, shared->work.row0 + row, &token, &head))
        mla_store_lse(run, &shared->sequence, token, head, shared->row_max[row], shared->row_sum[row]);
}

/* Words of four fragments, of which a lane has that of its two columns: it gets those of one fragment, eight
 * columns. */
GPU_INLINE void mla_gather_columns(struct gpu_u128 *words)
{
    const uint32_t lane = gpu_thread();

    GPU_UNROLL
    for (uint32_t bit = 1; bit <= 2; bit *= 2) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            if ((i & bit) != 0)
                continue;
            uint32_t *const low = &words->x[i], *const high = &words->x[i + bit];
            const uint32_t other = gpu_shuffle_xor_u32((lane & bit) != 0 ? *low : *high, bit);
            if ((lane & bit) != 0)
                *low = other;
            else
                *high = other;
        }
    }
}

/* O from registers into the output. All lanes of a warp have a part in it. */
template <class Config>
GPU_INLINE void mla_store_directly(const struct gpu_run *run, const struct mla_shared<Config> *shared,
                                   const float o[Config::out_blocks][Config::out_fragments][4])
{
    const struct gpu_sequence *s = &shared->sequence;
    const bool f16 = run->problem.out_dtype == ATTN_F16;

    GPU_UNROLL
    for (uint32_t i = 0; i < 2 * Config::out_blocks; i++) {
        const uint32_t m = i / 2, h = i % 2, row = mla_out_row<Config>(m, 2 * h);
        uint32_t token, head;
        const bool exists = mla_row_of(run, s, shared->work.row0 + row, &token, &head);
        const float row_sum = shared->row_sum[row];
        const float factor = exists ? mla_row_factor(run, head, shared->row_max[row], row_sum) : 0;
        const uint32_t column = mla_out_column<Config>(0, 0) + gpu_thread() % 4 * (8 - 2);
        const uint64_t to = mla_result_at(run, (int64_t)s->row + token, head) + column * 2;
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::out_fragments; n += 4) {
            struct gpu_u128 words;
            GPU_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                const float x = row_sum == 0 ? 0 : o[m][n + i][2 * h] * factor;
                const float y = row_sum == 0 ? 0 : o[m][n + i][2 * h + 1] * factor;
                words.x[i] = f16 ? gpu_pack_f16(x, y) : gpu_pack_bf16(x, y);
            }
            mla_gather_columns(&words);
            if (exists)
                gpu_store_global_u128(to + n * 16, words);
        }
    }
}

/* Rows of shared memory into the output. */
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
        mla_store_row(run, s, token, head, shared->row_max[row], shared->row_sum[row], values, lane);
    }
}

/* O of a work tile, and its row sums, in the output or the split workspace. `buffer`: of the KV tiles. */
template <class Config>
GPU_INLINE void mla_store(const struct gpu_run *run, struct mla_shared<Config> *shared, float *buffer,
                          const struct mla_warp *w, const float sum[2],
                          const float o[Config::out_blocks][Config::out_fragments][4])
{
    mla_join_warps<Config>(run, shared, buffer, w, sum, o);
    if (shared->work.splits == 1) {
        gpu_barrier();
        mla_store_lses<Config>(run, shared);
        if (Config::groups && mla_stores_directly<Config>(run))
            mla_store_directly<Config>(run, shared, o);
        else
            mla_store_rows<Config>(run, shared, buffer, &shared->work);
    } else {
        mla_store_partial<Config>(run, shared, o);
    }
    if (gpu_thread() == 0 && shared->work.splits > 1 && shared->work.split == 0)
        mla_note_split(run, &shared->sequence, &shared->work);
}

#endif
