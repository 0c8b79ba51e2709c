/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which token and head a row of the MLA kernels is, and how its finished O and LSE are stored. */
#ifndef ATTN_GPU_MLA_ROW_H
#define ATTN_GPU_MLA_ROW_H

#include "rules.h"

static constexpr float mla_log2e = 1.4426950408889634f;

/* Token and head of a row of the sequence; false after its last one. */
GPU_INLINE bool mla_row_of(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t row,
                           uint32_t *token, uint32_t *head)
{
    *token = row / run->group;
    *head = row - *token * run->group;
    return *token < s->q_len;
}

/* Whether scales may differ from key to key: by the problem alone, so that strides never change a bit. P has
 * them then, else the results. */
GPU_INLINE bool mla_scale_per_key(const struct gpu_run *run)
{
    return run->problem.k_scale >= ATTN_SCALES_HEAD;
}

/* A row sum with the sink: the share of it that one of its numbers has, and the sum itself. Base 2. */
struct mla_whole_sum {
    float own, base, share, sum;
};

GPU_INLINE struct mla_whole_sum mla_add_sink(const struct gpu_run *run, uint32_t head, float row_max,
                                             float row_sum)
{
    struct mla_whole_sum whole;

    whole.own = gpu_sink(run, head);
    const float sink = whole.own * mla_log2e, top = fmaxf(row_max, sink);
    whole.base = top == -GPU_INFINITY ? 0 : top;
    whole.share = gpu_exp2(row_max - whole.base);
    whole.sum = row_sum * whole.share + gpu_exp2(sink - whole.base);
    return whole;
}

/* Stores the LSE of a row if it is wanted. */
GPU_INLINE void mla_store_lse(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                              uint32_t head, float row_max, float row_sum)
{
    if (run->lse.base == 0)
        return;
    const struct mla_whole_sum whole = mla_add_sink(run, head, row_max, row_sum);
    const int64_t row = (int64_t)s->row + token;
    *(float *)(run->lse.base +
               (uint64_t)(row * run->lse.token_stride + (int64_t)head * run->lse.head_stride)) =
        whole.sum == 0 ? -GPU_INFINITY
        : row_sum == 0 ? whole.own
                       : (float)(((double)whole.base + gpu_log_f64((double)whole.sum) * 1.4426950408889634) *
                                 0.6931471805599453);
}

/* What turns sums of P times values into results. */
GPU_INLINE float mla_row_factor(const struct gpu_run *run, uint32_t head, float row_max, float row_sum)
{
    const struct mla_whole_sum whole = mla_add_sink(run, head, row_max, row_sum);
    const float value_scale = mla_scale_per_key(run) ? 1 : gpu_scale_at(&run->k.scale, 0, 0, 0);

    return whole.share / whole.sum * value_scale;
}

/* Address of the result of a row of the batch. */
GPU_INLINE uint64_t mla_result_at(const struct gpu_run *run, int64_t row, uint32_t head)
{
    return run->out.base + (uint64_t)(row * run->out.token_stride + (int64_t)head * run->out.head_stride);
}

/* Adds the sink, divides by the row sum, and stores O in its type, f32 or one of 16 bits. Row max and sum are
 * in base 2. */
GPU_INLINE void mla_store_row(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                              uint32_t head, float row_max, float row_sum, const float values[16],
                              uint32_t lane)
{
    const uint32_t dtype = run->problem.out_dtype, columns = run->problem.head_dim_vo;
    const int64_t row = (int64_t)s->row + token;
    const uint64_t to = mla_result_at(run, row, head);
    const bool scaled = run->problem.out_scale > ATTN_SCALES_UNIT;
    const float factor = mla_row_factor(run, head, row_max, row_sum);
    float x[16];

    GPU_UNROLL
    for (uint32_t j = 0; j < 16; j++)
        x[j] = row_sum == 0 ? 0 : values[j] * factor;
    if (scaled) {
        const float scale = gpu_scale_at(&run->out_scale, s->index, row, head);
        GPU_UNROLL
        for (uint32_t j = 0; j < 16; j++)
            x[j] = gpu_divide(x[j], scale);
    }
    if (dtype == ATTN_F32) {
        GPU_UNROLL
        for (uint32_t j = 0; j < 16; j++)
            if (j * GPU_WARP + lane < columns)
                GPU_GLOBAL(float, to)[j * GPU_WARP + lane] = x[j];
    } else {
        GPU_UNROLL
        for (uint32_t j = 0; j < 16; j++)
            if (j * GPU_WARP + lane < columns)
                GPU_GLOBAL(uint16_t, to)
        [j * GPU_WARP + lane] = dtype == ATTN_F16 ? gpu_f32_to_f16(x[j]) : gpu_f32_to_bf16(x[j]);
    }
}

#endif
