/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Combines the splits of a row, by the work-group that stores its split last. */
#ifndef ATTN_HIP_COMBINE_H
#define ATTN_HIP_COMBINE_H

#include "epilogue.h"

/* Partial results that a thread loads before it uses the first. */
constexpr uint32_t tile_loads_in_flight = 4;

/* True for the work-group that comes last of those that have splits of a sequence and head. */
template <class Config>
GPU_INLINE bool tile_is_last(const struct gpu_run *run, struct tile_shared<Config> *shared)
{
    const struct gpu_work_tile *work = &shared->work;

    gpu_fence();
    gpu_barrier();
    if (Config::thread() == 0) {
        uint32_t *counter =
            GPU_GLOBAL(uint32_t, run->counters) + (uint64_t)work->seq * run->problem.kv_heads + work->kv_head;
        gpu_fence(); /* of all that the barrier orders before it */
        shared->combines = gpu_atomic_add(counter, 1) + 1 == work->splits;
        if (shared->combines) {
            *counter = 0;
            gpu_fence();
        }
    }
    gpu_barrier();
    return tile_uniform(shared->combines) != 0;
}

/* Adds `count` splits from `first` on, of which each thread knows the weight of one. */
template <class Config>
GPU_INLINE void tile_add_splits(const struct gpu_run *run, const struct gpu_work_tile *work, uint32_t first,
                                uint32_t count, uint32_t row, uint32_t d, float weight, float values[2])
{
    constexpr uint32_t batch = tile_loads_in_flight;

    GPU_LOOP
    for (uint32_t j = 0; j < count; j += batch) {
        struct gpu_u64 part[batch];
        GPU_UNROLL
        for (uint32_t u = 0; u < batch; u++) {
            const uint32_t partial = gpu_partial_index(work, first + (j + u < count ? j + u : j));
            part[u] = gpu_load_volatile_u64(tile_partial_out<Config>(run, partial, row) + d * 4);
        }
        GPU_UNROLL
        for (uint32_t u = 0; u < batch; u++) {
            const float share = gpu_shuffle_f32(weight, (j + u) % GPU_WARP);
            if (j + u < count) {
                values[0] += gpu_f32_of_bits(part[u].x[0]) * share;
                values[1] += gpu_f32_of_bits(part[u].x[1]) * share;
            }
        }
    }
}

/* Two columns of a row, 32 splits at a time. */
template <class Config>
GPU_INLINE void tile_combine_row(const struct gpu_run *run, const struct gpu_work_tile *work, uint32_t row,
                                 uint32_t d, struct tile_partial *out)
{
    const uint32_t lane = Config::thread() % GPU_WARP;

    out->max = -GPU_INFINITY;
    out->sum = out->values[0] = out->values[1] = 0;
    GPU_LOOP
    for (uint32_t first = 0; first < work->splits; first += GPU_WARP) {
        const uint32_t count = work->splits - first < GPU_WARP ? work->splits - first : GPU_WARP;
        const uint32_t own = gpu_partial_index(work, first + (lane < count ? lane : 0));
        const struct gpu_u64 lse = gpu_load_volatile_u64(tile_partial_lse<Config>(run, own, row));
        const float own_max = lane < count ? gpu_f32_of_bits(lse.x[0]) : -GPU_INFINITY;
        float max = __builtin_fmaxf(out->max, own_max);
        GPU_UNROLL
        for (uint32_t step = 1; step < GPU_WARP; step *= 2)
            max = __builtin_fmaxf(max, gpu_shuffle_xor_f32(max, step));
        const float base = max == -GPU_INFINITY ? 0 : max, down = gpu_exp2_fast(out->max - base);
        const float weight = gpu_exp2_fast(own_max - base);
        out->max = max;
        out->sum = out->sum * down + (lane < count ? gpu_f32_of_bits(lse.x[1]) * weight : 0);
        out->values[0] *= down;
        out->values[1] *= down;
        tile_add_splits<Config>(run, work, first, count, row, d, weight, out->values);
    }
    GPU_UNROLL
    for (uint32_t step = 1; step < GPU_WARP; step *= 2)
        out->sum += gpu_shuffle_xor_f32(out->sum, step);
}

template <class Config>
GPU_INLINE void tile_combine(const struct gpu_run *run, const struct tile_shared<Config> *shared)
{
    constexpr uint32_t columns = Config::dv / 64;
    const struct gpu_work_tile *work = &shared->work;
    const uint32_t lane = Config::thread() % GPU_WARP;

    GPU_LOOP
    for (uint32_t i = Config::thread() / GPU_WARP; i < Config::rows * columns; i += Config::warps) {
        const uint32_t row = i / columns, d = i % columns * 64 + lane * 2;
        struct tile_partial part;
        uint32_t token, head;
        if (!tile_row_of(run, &shared->sequence, row, work->kv_head, &token, &head))
            break;
        tile_combine_row<Config>(run, work, row, d, &part);
        tile_store_output(run, shared, token, head, d, &part);
    }
}

#endif
