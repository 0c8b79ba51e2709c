/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Combines partial results: of the warp groups of a CTA, and of the CTAs that took splits of the keys. */
#ifndef ATTN_GPU_MMA_COMBINE_H
#define ATTN_GPU_MMA_COMBINE_H

#include "epilogue.h"
#include "partial.h"

/*
 * Row maxima in base 2, row sums, and results of rows that exist, from registers into the shared memory of
 * the warp group.
 */
template <class C>
GPU_INLINE void mma_gather_results(mma_shared<C> *shared, float *to, uint32_t rows, uint32_t row_warp,
                                   uint32_t group, uint32_t column_warp, mma_row_pairs<C> max,
                                   mma_row_pairs<C> sum, mma_out_fragments<C> o)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const float row_sum = mma_row_sum(sum[m][h]);
            if (lane % 4 == 0) {
                shared->max[row_warp * C::GROUPS + group][m * 16 + h * 8 + lane / 4] = max[m][h];
                shared->sum[row_warp * C::GROUPS + group][m * 16 + h * 8 + lane / 4] = row_sum;
            }
        }
    }
    mma_row_barrier<C>(); /* the last tile has been read */
    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t row = (row_warp * C::M_FRAGMENTS + m) * 16 + h * 8 + lane / 4;
            if (row < rows)
                mma_write_row<C>(to + group * C::GROUP_FLOATS + row * C::RESULT_PITCH, column_warp, o[m], h);
        }
    }
    mma_row_barrier<C>();
}

/* Combines the results of `groups` warp groups for one row. */
template <class C>
GPU_INLINE void mma_combine_groups(const mma_shared<C> *shared, const float *from, uint32_t groups,
                                   uint32_t row, float *max, float *sum, float values[C::LANE_COLUMNS])
{
    const uint32_t warp = row / (C::M_FRAGMENTS * 16) * C::GROUPS, row_in_warp = row % (C::M_FRAGMENTS * 16);
    const uint32_t lane = gpu_thread() % GPU_WARP;

    *max = -GPU_INFINITY;
    *sum = 0;
    GPU_UNROLL
    for (uint32_t g = 0; g < C::GROUPS; g++)
        if (g < groups)
            *max = fmaxf(*max, shared->max[warp + g][row_in_warp]);
    const float base = *max == -GPU_INFINITY ? 0 : *max;
    GPU_UNROLL
    for (uint32_t j = 0; j < C::LANE_COLUMNS; j++)
        values[j] = 0;
    GPU_UNROLL
    for (uint32_t g = 0; g < C::GROUPS && g < groups; g++) {
        const float weight = gpu_exp2_fast(shared->max[warp + g][row_in_warp] - base);
        const float *at =
            from + g * C::GROUP_FLOATS + row * C::RESULT_PITCH + lane % C::ROW_LANES * C::LANE_COLUMNS;
        *sum += shared->sum[warp + g][row_in_warp] * weight;
        GPU_UNROLL
        for (uint32_t j = 0; j < C::LANE_COLUMNS; j++)
            values[j] += at[j] * weight;
    }
}

/*
 * Stores rows of shared memory in the output, or in the workspace if keys are split between CTAs: of the
 * results of `groups` warp groups rows `begin`, `begin` + `step` and so on.
 */
template <class C>
GPU_INLINE void mma_store_tile(const struct gpu_run *run, const struct gpu_sequence *s,
                               const mma_shared<C> *shared, const float *from, const struct gpu_work_tile *p,
                               uint32_t groups, uint32_t begin, uint32_t step)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_LOOP
    for (uint32_t row = begin; row < C::ROWS; row += step) {
        uint32_t token, head;
        float max, sum, values[C::LANE_COLUMNS];
        if (!mma_row_of(run, s, p->row0 + row, p->kv_head, &token, &head))
            break;
        mma_combine_groups<C>(shared, from, groups, row, &max, &sum, values);
        if (C::GROUPS == 1 || p->splits == 1) {
            mma_store_row<C>(run, s, token, head, p->kv_head, max, sum, values);
            continue;
        }
        const uint32_t split = gpu_partial_index(p, p->split);
        float *out = mma_partial_out<C>(run, split, row) + lane * C::LANE_COLUMNS;
        GPU_UNROLL
        for (uint32_t j = 0; j < C::LANE_COLUMNS; j++)
            if (lane < C::ROW_LANES)
                out[j] = values[j];
        if (lane == 0) {
            mma_partial_lse<C>(run, split, row)[0] = max;
            mma_partial_lse<C>(run, split, row)[1] = sum;
        }
    }
}

/* A barrier for the threads that share a work tile: of one warp, or of the CTA. */
GPU_INLINE void mma_work_barrier(bool alone)
{
    if (alone)
        gpu_warp_barrier();
    else
        gpu_barrier();
}

/*
 * Decode: true in the CTA, or the warp that has work tiles `alone`, that finishes last of those that have
 * splits of a sequence and KV head.
 */
template <class C>
GPU_INLINE bool mma_is_last_split(const struct gpu_run *run, mma_shared<C> *shared,
                                  const struct gpu_work_tile *p, bool alone)
{
    mma_work_barrier(alone);
    if ((alone ? gpu_thread() % GPU_WARP : gpu_thread()) == 0) {
        uint32_t *counter = (uint32_t *)run->counters + (uint64_t)p->seq * run->problem.kv_heads + p->kv_head;
        /* Back to 0 with the last one: a store would have to be waited for. */
        shared->is_last_split = gpu_atomic_wrap(counter, p->splits - 1) + 1 == p->splits;
    }
    mma_work_barrier(alone);
    return shared->is_last_split != 0;
}

/* A row combined from splits, 32 at a time: each lane computes the weight of one. */
template <class C> struct mma_combined {
    float max;
    float sum; /* over the lane's splits */
    float values[C::LANE_COLUMNS];
};

/*
 * Loads that a combining warp has under way decide how long it takes: those of `Splits` splits of each of
 * `Rows` rows begin before the first of them is used. In decode one CTA combines all rows of a tile. Tiles of
 * 8 rows have registers for more splits, and a short sequence, of which each CTA has one KV tile, waits for
 * one round of loads.
 */
template <class C>
constexpr uint32_t MMA_SPLITS_AT_ONCE = C::SMALL_M &&C::DV == 128 ? 16
                                        : C::DV > 256             ? 4
                                                                  : 8;
template <class C>
constexpr uint32_t MMA_ROWS_AT_ONCE = C::SMALL_M || C::DV > 256              ? 1
                                      : C::ROWS == 16 || C::LANE_COLUMNS > 4 ? 2
                                                                             : 4;

/* The weight of the split that this lane has, whose maximum and sum are in `lse`. */
template <class C>
GPU_INLINE float mma_combine_weight(mma_combined<C> *m, const struct gpu_u64 lse, bool exists)
{
    const float split_max = exists ? gpu_f32_of_bits(lse.x[0]) : -GPU_INFINITY;
    float max = fmaxf(m->max, split_max);

    for (uint32_t step = 1; step < GPU_WARP; step *= 2)
        max = fmaxf(max, gpu_shuffle_xor_f32(max, step));
    const float base = max == -GPU_INFINITY ? 0 : max, correction = gpu_exp2_fast(m->max - base);
    const float weight = gpu_exp2_fast(split_max - base);
    m->max = max;
    m->sum = m->sum * correction + (exists ? gpu_f32_of_bits(lse.x[1]) * weight : 0);
    GPU_UNROLL
    for (uint32_t j = 0; j < C::LANE_COLUMNS; j++)
        m->values[j] *= correction;
    return weight;
}

/* Loads a part of the results of `Splits` splits of a row, from the i-th of [first, first + count). */
template <class C, uint32_t Splits>
GPU_INLINE void mma_load_partials(const struct gpu_run *run, const struct gpu_work_tile *p, uint32_t row,
                                  uint32_t first, uint32_t i, uint32_t count,
                                  struct gpu_u128 to[Splits][C::LANE_COLUMNS / 4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t u = 0; u < Splits; u++) {
        const uint32_t split = gpu_partial_index(p, first + (i + u < count ? i + u : i));
        const float *at = mma_partial_out<C>(run, split, row) + lane % C::ROW_LANES * C::LANE_COLUMNS;
        GPU_UNROLL
        for (uint32_t j = 0; j < C::LANE_COLUMNS / 4; j++)
            to[u][j] = gpu_load_volatile_u128((uint64_t)(at + 4 * j));
    }
}

/* Adds these to a row. */
template <class C, uint32_t Splits>
GPU_INLINE void mma_add_partials(const struct gpu_u128 from[Splits][C::LANE_COLUMNS / 4], float weight,
                                 uint32_t i, uint32_t count, mma_combined<C> *m)
{
    GPU_UNROLL
    for (uint32_t u = 0; u < Splits; u++) {
        const float share = gpu_shuffle_f32(weight, (i + u) % GPU_WARP);
        GPU_UNROLL
        for (uint32_t j = 0; j < C::LANE_COLUMNS; j++)
            if (i + u < count)
                m->values[j] += gpu_f32_of_bits(from[u][j / 4].x[j % 4]) * share;
    }
}

/* Combines rows `row`, `row` + `step` and so on of a tile, of which those below `rows` exist. */
template <class C, uint32_t Rows, uint32_t Splits>
GPU_INLINE void mma_combine_rows(const struct gpu_run *run, const struct gpu_work_tile *p, uint32_t row,
                                 uint32_t step, uint32_t rows, mma_combined<C> m[Rows])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t r = 0; r < Rows; r++) {
        m[r].max = -GPU_INFINITY;
        m[r].sum = 0;
        GPU_UNROLL
        for (uint32_t j = 0; j < C::LANE_COLUMNS; j++)
            m[r].values[j] = 0;
    }
    GPU_LOOP
    for (uint32_t first = 0; first < p->splits; first += GPU_WARP) {
        const uint32_t count = p->splits - first < GPU_WARP ? p->splits - first : GPU_WARP;
        const uint32_t own = gpu_partial_index(p, first + (lane < count ? lane : 0));
        struct gpu_u64 lse[Rows];
        float weight[Rows];
        GPU_UNROLL
        for (uint32_t r = 0; r < Rows; r++) {
            lse[r] = gpu_load_volatile_u64(
                (uint64_t)mma_partial_lse<C>(run, own, row + step * r < rows ? row + step * r : row));
            weight[r] = 0;
        }
        GPU_LOOP
        for (uint32_t i = 0; i < count; i += Splits) {
            struct gpu_u128 loaded[Rows][Splits][C::LANE_COLUMNS / 4];
            GPU_UNROLL
            for (uint32_t r = 0; r < Rows; r++)
                mma_load_partials<C, Splits>(run, p, row + step * r < rows ? row + step * r : row, first, i,
                                             count, loaded[r]);
            GPU_UNROLL
            for (uint32_t r = 0; r < Rows; r++) {
                if (i == 0)
                    weight[r] = mma_combine_weight<C>(&m[r], lse[r], lane < count);
                mma_add_partials<C, Splits>(loaded[r], weight[r], i, count, &m[r]);
            }
        }
    }
    GPU_UNROLL
    for (uint32_t r = 0; r < Rows; r++)
        for (uint32_t mask = 1; mask < GPU_WARP; mask *= 2)
            m[r].sum += gpu_shuffle_xor_f32(m[r].sum, mask);
}

/* Combines the splits of rows `begin`, `begin` + `step` and so on of a tile, and stores them. */
template <class C, uint32_t Rows, uint32_t Splits>
GPU_INLINE void mma_combine_splits(const struct gpu_run *run, const struct gpu_sequence *s,
                                   const struct gpu_work_tile *p, uint32_t begin, uint32_t step)
{
    const uint32_t all = s->q_len * run->group - p->row0, rows = all < C::ROWS ? all : C::ROWS;

    GPU_LOOP
    for (uint32_t first = begin; first < rows; first += step * Rows) {
        mma_combined<C> m[Rows];
        mma_combine_rows<C, Rows, Splits>(run, p, first, step, rows, m);
        GPU_LOOP
        for (uint32_t row = first; row < rows && row < first + step * Rows; row += step) {
            uint32_t token, head;
            mma_row_of(run, s, p->row0 + row, p->kv_head, &token, &head);
            mma_store_row<C>(run, s, token, head, p->kv_head, m[0].max, m[0].sum, m[0].values);
            GPU_UNROLL
            for (uint32_t r = 0; r + 1 < Rows; r++) /* so that the code of a store exists once */
                m[r] = m[r + 1];
        }
    }
}

/* Decode: combines the splits of all rows of a tile, in the CTA or the warp that finished last. */
template <class C>
GPU_INLINE void mma_combine_tile(const struct gpu_run *run, const struct gpu_sequence *s,
                                 const struct gpu_work_tile *p, bool alone)
{
    mma_combine_splits<C, MMA_ROWS_AT_ONCE<C>, MMA_SPLITS_AT_ONCE<C>>(
        run, s, p, alone ? 0 : gpu_thread() / GPU_WARP, alone ? 1 : C::WARPS);
}

#endif
