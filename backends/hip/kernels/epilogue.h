/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Stores accumulators in the output, or in the split workspace if the keys of a row are split: 64 columns at
 * a time through shared memory, by 32 threads with two columns each.
 */
#ifndef ATTN_HIP_EPILOGUE_H
#define ATTN_HIP_EPILOGUE_H

#include "softmax.h"

/* Two columns of a row, unnormalised, with row max (base 2) and row sum. */
struct tile_partial {
    float max, sum;
    float values[2];
};

/* How a row is normalised, with the sink. */
struct tile_normaliser {
    float factor;
    float base;
    float sum;
};

template <class Config>
GPU_INLINE struct tile_normaliser tile_normaliser_of(const struct gpu_run *run, uint32_t head,
                                                     uint32_t kv_head, float row_max, float row_sum)
{
    const float sink = gpu_sink(run, head) * tile_log2e, max = __builtin_fmaxf(row_max, sink);
    struct tile_normaliser n;

    n.base = max == -GPU_INFINITY ? 0 : max;
    const float share = gpu_exp2_fast(row_max - n.base);
    n.sum = row_sum * share + gpu_exp2_fast(sink - n.base);
    n.factor = row_sum == 0 ? 0 : share / n.sum;
    if (Config::kv8 && !tile_scales_by_key<Config>(run->problem.v_scale))
        n.factor *= gpu_scale_at(&run->v.scale, 0, 0, kv_head);
    return n;
}

/* A thread's two columns of a row into the output; the first thread of a row stores the LSE. */
template <class Config>
GPU_INLINE void tile_store_output(const struct gpu_run *run, const struct tile_shared<Config> *shared,
                                  uint32_t token, uint32_t head, uint32_t column,
                                  const struct tile_partial *part)
{
    const uint32_t dtype = run->problem.out_dtype;
    const struct tile_normaliser n =
        tile_normaliser_of<Config>(run, head, shared->work.kv_head, part->max, part->sum);
    const int64_t row = (int64_t)shared->sequence.row + token;
    const uint64_t to =
        run->out.base + (uint64_t)(row * run->out.token_stride + (int64_t)head * run->out.head_stride);

    GPU_UNROLL
    for (uint32_t j = 0; j < 2; j++)
        if (column + j < run->problem.head_dim_vo)
            gpu_store(dtype, GPU_GLOBAL(unsigned char, to + (uint64_t)(column + j) * GPU_SIZE(dtype)),
                      part->values[j] * n.factor);
    if (column != 0 || run->lse.base == 0)
        return;
    float lse = -GPU_INFINITY;
    if (part->sum == 0)
        lse = gpu_sink(run, head);
    if (!(n.sum == 0) && !(part->sum == 0))
        lse =
            (float)(((double)n.base + gpu_log_f64((double)n.sum) * 1.4426950408889634) * 0.6931471805599453);
    *GPU_GLOBAL(float, run->lse.base + (uint64_t)(row * run->lse.token_stride +
                                                  (int64_t)head * run->lse.head_stride)) = lse;
}

/* Addresses in the split workspace: partial O of a row; its row max and row sum. */
template <class Config>
GPU_INLINE uint64_t tile_partial_out(const struct gpu_run *run, uint32_t partial, uint32_t row)
{
    return run->partial_out + ((uint64_t)partial * Config::rows + row) * (Config::dv * 4);
}
template <class Config>
GPU_INLINE uint64_t tile_partial_lse(const struct gpu_run *run, uint32_t partial, uint32_t row)
{
    return run->partial_lse + ((uint64_t)partial * Config::rows + row) * 8;
}

/* The first 64 columns of a wave's results into its place in shared memory. */
template <class Config> GPU_INLINE void tile_store_results(float *to, const float (*o)[Config::acc_size])
{
    const uint32_t lane = Config::thread() % Config::wave_size;
    float *at = to + lane % 16 * HIP_TILE_RESULT_PITCH + lane / 16 * Config::acc_size;

    GPU_UNROLL
    for (uint32_t n = 0; n < 4; n++) {
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::acc_size; i++)
            at[n * 16 + i] = o[n][i];
    }
}

/* Combines a row of all waves that have it. */
template <class Config>
GPU_INLINE void tile_combine_waves(const struct tile_shared<Config> *shared, const float *from, uint32_t row,
                                   struct tile_partial *out)
{
    constexpr uint32_t waves = 64 / Config::rows;
    const uint32_t lane = Config::thread() % GPU_WARP;

    out->max = -GPU_INFINITY;
    out->sum = out->values[0] = out->values[1] = 0;
    GPU_UNROLL
    for (uint32_t w = 0; w < waves; w++)
        out->max = __builtin_fmaxf(out->max, shared->max[w * 16 + row]);
    const float base = out->max == -GPU_INFINITY ? 0 : out->max;
    GPU_UNROLL
    for (uint32_t w = 0; w < waves; w++) {
        const float weight = gpu_exp2_fast(shared->max[w * 16 + row] - base);
        const float *at = from + (w * 16 + row) * HIP_TILE_RESULT_PITCH + lane * 2;
        out->sum += shared->sum[w * 16 + row] * weight;
        out->values[0] += at[0] * weight;
        out->values[1] += at[1] * weight;
    }
}

/* Rows of shared memory into the output or the split workspace: for each share of the columns, 64 from
 * `column` on. */
template <class Config>
GPU_INLINE void tile_store_rows(const struct gpu_run *run, const struct tile_shared<Config> *shared,
                                const float *from, uint32_t column)
{
    const struct gpu_work_tile *work = &shared->work;
    const uint32_t lane = Config::thread() % GPU_WARP;

    GPU_LOOP
    for (uint32_t i = Config::thread() / GPU_WARP; i < Config::rows * Config::column_waves;
         i += Config::warps) {
        const uint32_t row = i % Config::rows, share = i / Config::rows;
        const uint32_t d = share * (Config::dv / Config::column_waves) + column + lane * 2;
        struct tile_partial part;
        uint32_t token, head;
        if (!tile_row_of(run, &shared->sequence, work->row0 + row, work->kv_head, &token, &head))
            continue;
        tile_combine_waves(shared, from + share * (64 * HIP_TILE_RESULT_PITCH), row, &part);
        if (work->splits == 1) {
            tile_store_output(run, shared, token, head, d, &part);
            continue;
        }
        const uint32_t partial = gpu_partial_index(work, work->split);
        float *out = GPU_GLOBAL(float, tile_partial_out<Config>(run, partial, row)) + d;
        out[0] = part.values[0];
        out[1] = part.values[1];
        if (d == 0) {
            float *lse = GPU_GLOBAL(float, tile_partial_lse<Config>(run, partial, row));
            lse[0] = part.max;
            lse[1] = part.sum;
        }
    }
}

/* Stores the results of all waves, and overwrites them. */
template <class Config>
GPU_INLINE void tile_epilogue(const struct gpu_run *run, struct tile_shared<Config> *shared, float *results,
                              float factor, struct tile_accumulator<Config> *acc)
{
    const uint32_t wave_row = Config::wave() % 4, wave_column = Config::wave() / 4;
    const float sum = Config::column_sum(acc->sum_high + acc->sum_low);
    const uint32_t lane = Config::thread() % Config::wave_size;

    if (wave_column == 0 && lane < 16) {
        shared->max[wave_row * 16 + lane] =
            acc->max == -GPU_INFINITY ? acc->max : tile_base(acc->max, factor);
        shared->sum[wave_row * 16 + lane] = sum;
    }
    GPU_LOOP
    for (uint32_t column = 0; column < Config::out_blocks * 16; column += 64) {
        tile_store_results<Config>(results + (wave_column * 64 + wave_row * 16) * HIP_TILE_RESULT_PITCH,
                                   acc->o);
        gpu_barrier();
        tile_store_rows(run, shared, results, column);
        gpu_barrier();
        GPU_UNROLL
        for (uint32_t n = 0; n + 4 < Config::out_blocks; n++) {
            GPU_UNROLL
            for (uint32_t i = 0; i < Config::acc_size; i++)
                acc->o[n][i] = acc->o[n + 4][i];
        }
    }
}

#endif
