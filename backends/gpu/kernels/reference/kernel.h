/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The reference kernel: every type, size, addressing and feature of a problem, no schedule.
 *
 * A CTA computes one query token and head. Its warps take the tiles of 64 keys in round-robin order,
 * beginning at multiples of 64. Each lane finds one key; then the lanes of a warp divide the columns of all
 * these keys' vectors among themselves. Sums are staged as docs/definition.md, section 6, asks: a tile from
 * zero, a span of 8 tiles, the total of a warp; then the warps' totals in order. So a row's bits depend on
 * its sequence alone.
 */
#ifndef ATTN_GPU_REFERENCE_KERNEL_H
#define ATTN_GPU_REFERENCE_KERNEL_H

#include "keys.h"
#include "vectors.h"

/* The rescale threshold: a factor of exp(8) costs no precision, while each rescaling costs a rounding. */
static constexpr float reference_rescale_threshold = 8.0f;

/* Rescales the sums so far to a new row max. */
template <class Config> GPU_INLINE void reference_rescale(struct reference_warp<Config> *w, float row_max)
{
    const float factor = gpu_exp(w->row_max - row_max);

    w->row_max = row_max;
    w->row_sum *= (double)factor;
    GPU_UNROLL
    for (uint32_t i = 0; i < Config::lane_columns; i++) {
        w->tile[i] *= factor;
        w->span[i] *= factor;
        w->total[i * GPU_WARP] *= factor;
    }
}

/* Up to 32 keys of a tile. */
template <class Config>
GPU_INLINE void reference_attend(const struct gpu_run *run, struct reference_warp<Config> *w, uint32_t first,
                                 uint32_t end)
{
    struct reference_keys keys;

    run = (const struct gpu_run *)gpu_again(run);
    reference_find_keys(run, w, first, end, &keys);
    if (keys.seen == 0)
        return;
    const bool seen = keys.seen >> w->lane & 1;
    const float product = reference_products(run, w, &keys);
    const double s = gpu_score(run, (double)product * w->q_scale * (double)keys.k_scale) + keys.bias;
    float row_max = seen && s > -(double)GPU_INFINITY ? (float)s : -GPU_INFINITY; /* no NaN */
    GPU_UNROLL
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2) {
        const float other = gpu_shuffle_xor_f32(row_max, mask);
        row_max = other > row_max ? other : row_max;
    }
    if (row_max > w->row_max + reference_rescale_threshold)
        reference_rescale(w, row_max);
    /* Before any key that weighs something there may be scores of -infinity, which weigh nothing. */
    const double base = w->row_max > -GPU_INFINITY ? (double)w->row_max : 0;
    const float p = seen ? gpu_exp((float)(s - base)) : 0;
    w->row_sum += (double)p;
    reference_add_values(run, w, &keys, seen ? p * keys.v_scale : 0);
}

template <class Config> GPU_INLINE void reference_end_span(struct reference_warp<Config> *w)
{
    GPU_UNROLL
    for (uint32_t i = 0; i < Config::lane_columns; i++) {
        w->total[i * GPU_WARP] += w->span[i];
        w->span[i] = 0;
    }
}

/* This warp's tiles. */
template <class Config>
GPU_INLINE void reference_kv_loop(const struct gpu_run *run, struct reference_warp<Config> *w, uint32_t warp)
{
    constexpr uint32_t warps = REFERENCE_WARPS, tile_keys = reference_kv_tile;
    const uint32_t least = w->row.lo / tile_keys;
    uint32_t tile = least + (warp + warps - least % warps) % warps;

    for (; w->row.lo < w->row.hi && tile * tile_keys < w->row.hi; tile += warps) {
        GPU_LOOP
        for (uint32_t offset = 0; offset < tile_keys; offset += GPU_WARP)
            reference_attend(run, w, tile * tile_keys + offset, w->row.hi);
        const bool ends = tile / warps % reference_span == reference_span - 1;
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::lane_columns; i++) {
            w->span[i] += w->tile[i];
            w->tile[i] = 0;
        }
        if (ends)
            reference_end_span(w);
    }
}

/* Stores this warp's sums and row max for the other warps. */
template <class Config>
GPU_INLINE void reference_share(struct reference_warp<Config> *w, struct reference_shared *shared,
                                uint32_t warp)
{
    GPU_UNROLL
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2)
        w->row_sum += gpu_shuffle_xor_f64(w->row_sum, mask);
    reference_end_span(w);
    if (w->lane == 0) {
        shared->row_sum[warp] = w->row_sum;
        shared->row_max[warp] = w->row_max;
    }
}

/* The sums of all warps, the sink, and the row's columns that are this thread's. */
GPU_INLINE void reference_epilogue(const struct gpu_run *run, const struct reference_shared *shared,
                                   uint32_t seq, uint32_t row, uint32_t head)
{
    const uint32_t dtype = run->problem.out_dtype, dim = run->problem.head_dim_vo;
    const uint64_t out =
        run->out.base + (uint64_t)(row * run->out.token_stride + head * run->out.head_stride);
    const float sink = gpu_sink(run, head), scale = gpu_scale_at(&run->out_scale, seq, row, head);
    double factor[REFERENCE_WARPS], row_max = -(double)GPU_INFINITY, row_sum = 0, lse = (double)sink;
    bool any = false;

    GPU_UNROLL
    for (uint32_t i = 0; i < REFERENCE_WARPS; i++) {
        any = any || shared->row_sum[i] != 0; /* every key that is seen adds to it, NaN too */
        row_max = (double)shared->row_max[i] > row_max ? (double)shared->row_max[i] : row_max;
    }
    if (any)
        row_max = (double)sink > row_max ? (double)sink : row_max;
    GPU_UNROLL
    for (uint32_t i = 0; i < REFERENCE_WARPS; i++) {
        factor[i] = shared->row_sum[i] != 0 ? gpu_exp_f64((double)shared->row_max[i] - row_max) : 0;
        row_sum += factor[i] * shared->row_sum[i];
    }
    if (any) {
        row_sum += sink > -GPU_INFINITY ? gpu_exp_f64((double)sink - row_max) : 0;
        lse = row_max + gpu_log_f64(row_sum);
    }
    if (run->lse.base != 0 && gpu_thread() == 0)
        *GPU_GLOBAL(float, run->lse.base + (uint64_t)(row * run->lse.token_stride +
                                                      head * run->lse.head_stride)) = (float)lse;
    for (uint32_t d = gpu_thread(); d < dim; d += gpu_threads()) {
        double sum = 0;
        GPU_UNROLL
        for (uint32_t i = 0; i < REFERENCE_WARPS; i++)
            sum += shared->row_sum[i] != 0 ? factor[i] * (double)shared->total[i][d] : 0;
        const float value = any ? (float)(sum / row_sum) : 0;
        gpu_store(dtype, GPU_GLOBAL(unsigned char, out + (uint64_t)d * GPU_SIZE(dtype)),
                  gpu_divide(value, scale));
    }
}

/* CTA: query head within query token. */
template <class Config>
GPU_INLINE void reference_attention(const struct gpu_run *run, struct reference_shared *shared)
{
    const uint32_t heads = run->problem.heads, row = gpu_cta() / heads, head = gpu_cta() % heads;
    const uint32_t warp = gpu_thread() / GPU_WARP;
    struct reference_warp<Config> w;

    if (run->batch.seqs == 0 || row >= (uint32_t)GPU_I32(run->batch.q_offsets)[run->batch.seqs])
        return;
    w.s = gpu_sequence(run, gpu_find_sequence(run, row));
    if (!GPU_TAKES(run->phase, w.s.q_len, run->group))
        return;
    w.lane = gpu_thread() % GPU_WARP;
    w.total = &shared->total[warp][w.lane];
    w.row = gpu_row(run, &w.s, row - w.s.row, head);
    run = (const struct gpu_run *)gpu_argument(run);
    reference_begin(run, &w, head, row);
    reference_kv_loop(run, &w, warp);
    reference_share(&w, shared, warp);
    gpu_barrier();
    reference_epilogue(run, shared, w.s.index, row, head);
}

/* A kernel of the list. Wider rows need more registers, and so fewer CTAs fit a multiprocessor. */
#define REFERENCE_KERNEL(name, dim, type)                                                                    \
    GPU_KERNEL(name, REFERENCE_THREADS, (dim) > 256 ? 1 : 2)(GPU_ARGUMENT(struct gpu_run, run))              \
    {                                                                                                        \
        GPU_SHARED struct reference_shared shared;                                                           \
        reference_attention<reference_config<dim, type>>(&run, &shared);                                     \
    }

#endif
