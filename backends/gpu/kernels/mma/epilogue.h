/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Rows of results into the output: straight from registers, or gathered in shared memory first. */
#ifndef ATTN_GPU_MMA_EPILOGUE_H
#define ATTN_GPU_MMA_EPILOGUE_H

#include "config.h"

/* How a row's result is normalised: attention sink and division by the row sum. */
struct mma_row_epilogue {
    float factor;
    float base; /* what exponents count from, in base 2 */
    float sum;  /* with the sink */
};

/* The scale of all values of a work tile. */
template <class C>
GPU_INLINE float mma_value_scale(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t kv_head)
{
    if (!C::SCALES || mma_scale_per_key<C>(run->problem.v_scale))
        return 1;
    return gpu_scale_at(&run->v.scale, C::E4M3 || (C::KV8 && C::PREFILL_ONLY) ? s->index : 0, 0,
                        kv_head); /* of e4m3 a sequence may have its own */
}

/* `max` and `sum` in base 2. */
GPU_INLINE struct mma_row_epilogue mma_row_epilogue_of(const struct gpu_run *run, uint32_t head, float max,
                                                       float sum)
{
    const float sink = gpu_sink(run, head) * GPU_LOG2E, highest = fmaxf(max, sink);
    struct mma_row_epilogue epilogue;

    epilogue.base = highest == -GPU_INFINITY ? 0 : highest;
    const float correction = gpu_exp2_fast(max - epilogue.base);
    epilogue.sum = sum * correction + gpu_exp2_fast(sink - epilogue.base);
    epilogue.factor = sum == 0 ? 0 : correction / epilogue.sum;
    return epilogue;
}

/* The logarithm of a row's sum, where it is wanted. */
GPU_INLINE void mma_store_lse(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                              uint32_t head, float sum, const struct mma_row_epilogue *epilogue)
{
    const int64_t row = (int64_t)s->row + token;

    if (run->lse.base == 0)
        return;
    *(float *)(run->lse.base +
               (uint64_t)(row * run->lse.token_stride + (int64_t)head * run->lse.head_stride)) =
        epilogue->sum == 0 ? -GPU_INFINITY
        : sum == 0
            ? gpu_sink(run, head)
            : (float)(((double)epilogue->base + gpu_log_f64((double)epilogue->sum) * 1.4426950408889634) *
                      0.6931471805599453);
}

/* Stores numbers of a row in any type and with any stride, one after the other: this is rare. */
template <class C>
GPU_INLINE void mma_store_row_any(const struct gpu_run *run, const struct gpu_sequence *s, int64_t row,
                                  uint32_t head, uint64_t to, float values[C::LANE_COLUMNS])
{
    const uint32_t dtype = run->problem.out_dtype, from = gpu_thread() % GPU_WARP * C::LANE_COLUMNS;

    GPU_LOOP
    for (uint32_t d = from; d < from + C::LANE_COLUMNS && d < run->problem.head_dim_vo; d++) {
        float x = values[0];
        GPU_UNROLL
        for (uint32_t j = 0; j + 1 < C::LANE_COLUMNS; j++)
            values[j] = values[j + 1];
        if (run->problem.out_scale > ATTN_SCALES_UNIT)
            x = gpu_divide(x, gpu_scale_at(&run->out_scale, s->index, row, head));
        gpu_store(dtype, (unsigned char *)(to + d * GPU_SIZE(dtype)), x);
    }
}

/* Stores numbers of a row as a 16-bit type, four at once. */
template <class C>
GPU_INLINE void mma_store_row_16bit(const struct gpu_run *run, uint64_t to,
                                    const float values[C::LANE_COLUMNS])
{
    const bool bf16 = run->problem.out_dtype == ATTN_BF16;

    GPU_UNROLL
    for (uint32_t j = 0; j < C::LANE_COLUMNS; j += 4) {
        const uint32_t d = gpu_thread() % GPU_WARP * C::LANE_COLUMNS + j;
        const uint64_t low = mma_pack(values[j], values[j + 1], bf16);
        const uint64_t high = mma_pack(values[j + 2], values[j + 3], bf16);
        if (d < run->problem.head_dim_vo)
            *(uint64_t *)(to + d * 2u) = high << 32 | low;
    }
}

/* Stores numbers of a row as f32, four at once. */
template <class C>
GPU_INLINE void mma_store_row_f32(uint64_t to, uint32_t dim, const float values[C::LANE_COLUMNS])
{
    GPU_UNROLL
    for (uint32_t j = 0; j < C::LANE_COLUMNS; j += 4) {
        const uint32_t d = gpu_thread() % GPU_WARP * C::LANE_COLUMNS + j;
        const struct gpu_u128 part = {{gpu_f32_bits(values[j]), gpu_f32_bits(values[j + 1]),
                                       gpu_f32_bits(values[j + 2]), gpu_f32_bits(values[j + 3])}};
        if (d < dim)
            gpu_store_global_u128(to + d * 4u, part);
    }
}

/* Stores numbers of a row as 8-bit codes, four at once. */
template <class C>
GPU_INLINE void mma_store_row_8bit(const struct gpu_run *run, float scale, uint64_t to,
                                   float values[C::LANE_COLUMNS])
{
    const uint32_t from = gpu_thread() % GPU_WARP * C::LANE_COLUMNS;
    uint32_t codes = 0;

    GPU_LOOP
    for (uint32_t i = 0; i < C::LANE_COLUMNS; i++) {
        codes = codes >> 8 | gpu_encode8(run->problem.out_dtype, gpu_divide(values[0], scale)) << 24;
        GPU_UNROLL
        for (uint32_t j = 0; j + 1 < C::LANE_COLUMNS; j++)
            values[j] = values[j + 1];
        if (i % 4 == 3 && from + i < run->problem.head_dim_vo)
            *(uint32_t *)(to + from + i - 3) = codes;
    }
}

/* A lane's numbers of a row. */
template <class C> struct mma_row_values {
    float x[C::LANE_COLUMNS];
};

/* Small M: stores that are rare lie apart. */
template <class C>
GPU_COLD void mma_store_row_apart(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                                  uint32_t head, uint64_t to, mma_row_values<C> values)
{
    if (C::CODES_OUT && GPU_SIZE(run->problem.out_dtype) == 1 && (to & 3) == 0 &&
        run->problem.head_dim_vo % 4 == 0)
        mma_store_row_8bit<C>(run, gpu_scale_at(&run->out_scale, s->index, (int64_t)s->row + token, head), to,
                              values.x);
    else
        mma_store_row_any<C>(run, s, (int64_t)s->row + token, head, to, values.x);
}

GPU_COLD void mma_store_lse_apart(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                                  uint32_t head, float sum, struct mma_row_epilogue epilogue)
{
    mma_store_lse(run, s, token, head, sum, &epilogue);
}

/* Stores a row. */
template <class C>
GPU_INLINE void mma_store_row(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                              uint32_t head, uint32_t kv_head, float max, float sum,
                              float values[C::LANE_COLUMNS])
{
    const uint32_t dtype = run->problem.out_dtype;
    const struct mma_row_epilogue epilogue = mma_row_epilogue_of(run, head, max, sum);
    const float factor = epilogue.factor * mma_value_scale<C>(run, s, kv_head);
    const uint64_t to = mma_output_of(run, s, token, head);

    GPU_UNROLL
    for (uint32_t j = 0; j < C::LANE_COLUMNS; j++)
        values[j] *= factor;
    if ((dtype == ATTN_BF16 || dtype == ATTN_F16) && run->problem.out_scale <= ATTN_SCALES_UNIT &&
        (to & 7) == 0 && run->problem.head_dim_vo % 4 == 0)
        mma_store_row_16bit<C>(run, to, values);
    else if (C::KV32 && dtype == ATTN_F32 && (to & 15) == 0 && run->problem.head_dim_vo % 4 == 0)
        mma_store_row_f32<C>(to, run->problem.head_dim_vo, values);
    else if constexpr (C::SMALL_M) {
        mma_row_values<C> copy;
        GPU_UNROLL
        for (uint32_t j = 0; j < C::LANE_COLUMNS; j++)
            copy.x[j] = values[j];
        mma_store_row_apart<C>(run, s, token, head, to, copy);
    } else if (C::CODES_OUT && GPU_SIZE(dtype) == 1 && (to & 3) == 0 && run->problem.head_dim_vo % 4 == 0)
        mma_store_row_8bit<C>(run, gpu_scale_at(&run->out_scale, s->index, (int64_t)s->row + token, head), to,
                              values);
    else
        mma_store_row_any<C>(run, s, (int64_t)s->row + token, head, to, values);
    if (gpu_thread() % GPU_WARP != 0 || run->lse.base == 0)
        return;
    if constexpr (C::SMALL_M)
        mma_store_lse_apart(run, s, token, head, sum, epilogue);
    else
        mma_store_lse(run, s, token, head, sum, &epilogue);
}

/* ---------------------------------------------------------------- straight from registers */

/*
 * Whether rows go straight from registers to the output: warps have rows of their own, keys are not split,
 * and the output has 16 or 32 bits and is aligned. No warp waits for another. The host gives other runs one
 * buffer of queries by the same condition (backends/cuda/mma.c).
 */
template <class C>
GPU_INLINE bool mma_stores_directly(const struct gpu_run *run, const struct gpu_work_tile *p)
{
    const uint32_t dtype = run->problem.out_dtype;

    return C::STORES_ROWS && p->splits == 1 &&
           (dtype == ATTN_BF16 || dtype == ATTN_F16 || dtype == ATTN_F32) &&
           run->problem.out_scale <= ATTN_SCALES_UNIT && run->problem.head_dim_vo % 8 == 0 &&
           ((run->out.base | (uint64_t)run->out.token_stride | (uint64_t)run->out.head_stride) & 15) == 0;
}

/*
 * What normalises a lane's rows, of which each four lanes have the same. Where neither sinks nor logarithms
 * of sums are wanted, as mostly, that is one division: code that seldom runs is waited for, as are constants.
 */
template <class C>
GPU_INLINE void mma_find_factors(const struct gpu_run *run, const struct gpu_sequence *s,
                                 const struct gpu_work_tile *p, uint32_t row0, mma_row_pairs<C> max,
                                 mma_row_pairs<C> sum, mma_row_pairs<C> factor)
{
    const float scale = mma_value_scale<C>(run, s, p->kv_head);
    const bool simple = run->sinks == 0 && run->lse.base == 0;
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP - C::FIRST_WARP;

    GPU_UNROLL
    for (uint32_t i = 0; i < C::M_FRAGMENTS * 2; i++) {
        float *all = &sum[i / 2][i % 2];
        *all += gpu_shuffle_xor_f32(*all, 1);
        *all += gpu_shuffle_xor_f32(*all, 2);
        factor[i / 2][i % 2] = simple && *all != 0 ? 1 / *all * scale : 0;
    }
    GPU_LOOP
    for (uint32_t i = simple ? C::M_FRAGMENTS * 2 : 0; i < C::M_FRAGMENTS * 2; i++) {
        float own_max = -GPU_INFINITY, own_sum = 0;
        uint32_t token, head;
        GPU_UNROLL
        for (uint32_t j = 0; j < C::M_FRAGMENTS * 2; j++) {
            own_max = i == j ? max[j / 2][j % 2] : own_max;
            own_sum = i == j ? sum[j / 2][j % 2] : own_sum;
        }
        if (!mma_row_of(run, s, p->row0 + row0 + i * 8 + lane / 4, p->kv_head, &token, &head))
            continue;
        const struct mma_row_epilogue epilogue = mma_row_epilogue_of(run, head, own_max, own_sum);
        GPU_UNROLL
        for (uint32_t j = 0; j < C::M_FRAGMENTS * 2; j++)
            factor[j / 2][j % 2] = i == j ? epilogue.factor * scale : factor[j / 2][j % 2];
        if (warp % C::COLUMN_WARPS == 0 && lane % 4 == 0)
            mma_store_lse(run, s, token, head, own_sum, &epilogue);
    }
}

/* Results of a lane's rows, converted, into the place of the warp's queries, of which row0 is the first.
 * `marks`: where warp groups multiply, not 0 for each row that has a result which is not finite. */
template <class C>
GPU_INLINE void mma_stage_rows(unsigned char *place, uint32_t row0, bool bf16, mma_row_pairs<C> factor,
                               mma_out_fragments<C> o, uint32_t marks[2])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t row = m * 16 + h * 8 + lane / 4;
            const float f = factor[m][h];
            unsigned char *at = place + mma_row_at<C>(row0 + row, C::DK * 2) + lane % 4 * (C::CODES ? 8 : 4);
            GPU_UNROLL
            for (uint32_t n = 0; n < C::WARP_DV / 8; n += 2) {
                const float even[2] = {o[m][n][2 * h] * f, o[m][n][2 * h + 1] * f};
                const float odd[2] = {o[m][n + 1][2 * h] * f, o[m][n + 1][2 * h + 1] * f};
                const uint32_t first = mma_pack(even[0], C::CODES ? odd[0] : even[1], bf16),
                               second = mma_pack(C::CODES ? even[1] : odd[0], odd[1], bf16);
                *(uint32_t *)(void *)(at + mma_chunk_at<C>(row, n, C::DK * 2)) = first;
                *(uint32_t *)(void *)(at + (C::CODES ? n * 16 + 4 : mma_chunk_at<C>(row, n + 1, C::DK * 2))) =
                    second;
                if (C::WGMMA)
                    marks[h] = gpu_mark_nonfinite(gpu_mark_nonfinite(marks[h], first, bf16), second, bf16);
            }
        }
    }
}

/* Stores a lane's results as f32: four lanes have 32 bytes of a row that lie together. */
template <class C>
GPU_INLINE void mma_store_rows_f32(const struct gpu_run *run, const uint64_t *out, uint32_t column0,
                                   mma_row_pairs<C> factor, mma_out_fragments<C> o)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint64_t to = out[m * 16 + h * 8 + lane / 4];
            const float f = factor[m][h];
            GPU_UNROLL
            for (uint32_t n = 0; n < C::WARP_DV / 8; n++) {
                const float *even = &o[m][n - n % 2][2 * h], *odd = &o[m][n - n % 2 + 1][2 * h];
                const uint32_t column =
                    column0 + (C::CODES ? (n - n % 2) * 8 + lane % 4 * 4 + n % 2 * 2 : n * 8 + lane % 4 * 2);
                const float x = C::CODES ? even[n % 2] : o[m][n][2 * h],
                            y = C::CODES ? odd[n % 2] : o[m][n][2 * h + 1];
                if (to != 0 && column < run->problem.head_dim_vo)
                    gpu_store_global_f32x2(to + column * 4, x * f, y * f);
            }
        }
    }
}

/* Stores rows that are staged at `place`, whose first row is row0 there: 16 bytes of a lane, of some rows
 * before the first of them is stored. */
template <class C>
GPU_INLINE void mma_store_staged(const struct gpu_run *run, const uint64_t *out, const unsigned char *place,
                                 uint32_t row0, uint32_t column0)
{
    constexpr uint32_t chunks = C::WARP_DV / 8, rows = GPU_WARP / chunks, all = C::M_FRAGMENTS * 16 / rows,
                       at_once = all < 8 ? all : 8, pitch = C::WGMMA ? 128 : C::DK * 2 + C::ROW_PADDING;
    const uint32_t lane = gpu_thread() % GPU_WARP, row = lane / chunks, chunk = lane % chunks;
    const uint32_t own = mma_row_at<C>(row0 + row, C::DK * 2) + mma_chunk_at<C>(row, chunk, C::DK * 2);
    const bool inside = column0 + chunk * 16 < run->problem.head_dim_vo * 2;

    GPU_UNROLL
    for (uint32_t i = 0; i < all; i += at_once) {
        struct gpu_u128 part[at_once];
        uint64_t to[at_once];
        GPU_UNROLL
        for (uint32_t j = 0; j < at_once; j++) {
            const uint32_t from = (i + j) * rows, flipped = C::WGMMA ? from % 8 * 16 : 0;
            part[j] = gpu_load_u128(place + (own ^ flipped) + from * pitch);
            to[j] = out[row + from];
        }
        GPU_UNROLL
        for (uint32_t j = 0; j < at_once; j++)
            if (to[j] != 0 && inside)
                gpu_store_global_u128(to[j] + column0 + chunk * 16, part[j]);
    }
}

/* Stores all of a warp's rows. Where warp groups multiply, returns whether a result of 16 bits is not finite:
 * one that these bits made infinite too, whose work tile is computed once more for nothing. */
template <class C>
GPU_INLINE bool mma_store_rows(const struct gpu_run *run, const mma_shared<C> *shared, unsigned char *queries,
                               const struct gpu_work_tile *p, mma_row_pairs<C> max, mma_row_pairs<C> sum,
                               mma_out_fragments<C> o)
{
    const uint32_t warp = gpu_thread() / GPU_WARP - C::FIRST_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t row0 = warp / C::COLUMN_WARPS * C::M_FRAGMENTS * 16,
                   column0 = warp % C::COLUMN_WARPS * C::WARP_DV * 2;
    /* Only warps with the same rows read these queries, and scores have been exchanged since; or all warps
     * do, and have waited for each other since. */
    const uint32_t first = C::WGMMA ? row0 : 0; /* elsewhere rows of a warp lie together */
    unsigned char *place = queries + (row0 - first) * mma_row_pitch<C>(C::DK * 2) + column0;
    const uint64_t *out = shared->out + row0;
    uint32_t marks[2] = {0, 0};
    mma_row_pairs<C> factor;

    mma_find_factors<C>(run, mma_computed_sequence<C>(shared), p, row0, max, sum, factor);
    if (run->problem.out_dtype == ATTN_F32) {
        mma_store_rows_f32<C>(run, out, column0 / 2, factor, o);
        return false;
    }
    gpu_warp_barrier(); /* the queries have been read */
    if (run->problem.out_dtype == ATTN_BF16)
        mma_stage_rows<C>(place, first, true, factor, o, marks);
    else
        mma_stage_rows<C>(place, first, false, factor, o, marks);
    gpu_warp_barrier();
    mma_store_staged<C>(run, out, place, first, column0);
    return C::WGMMA && ((marks[0] != 0 && out[lane / 4] != 0) || (marks[1] != 0 && out[8 + lane / 4] != 0));
}

#endif
