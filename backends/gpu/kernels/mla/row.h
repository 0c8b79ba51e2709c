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

/* Adds the sink, divides by the row sum, and stores O in its type and the LSE. Row max and sum are in base 2.
 */
GPU_INLINE void mla_store_row(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                              uint32_t head, float row_max, float row_sum, const float values[16],
                              uint32_t lane)
{
    const float own = gpu_sink(run, head), sink = own * mla_log2e;
    const float top = fmaxf(row_max, sink), base = top == -GPU_INFINITY ? 0 : top;
    const float share = gpu_exp2(row_max - base), whole = row_sum * share + gpu_exp2(sink - base);
    const uint32_t dtype = run->problem.out_dtype;
    const int64_t row = (int64_t)s->row + token;
    const uint64_t to =
        run->out.base + (uint64_t)(row * run->out.token_stride + (int64_t)head * run->out.head_stride);
    const bool scaled = run->problem.out_scale > ATTN_SCALES_UNIT;
    const float scale = scaled ? gpu_scale_at(&run->out_scale, s->index, row, head) : 1;
    const float value_scale = mla_scale_per_key(run) ? 1 : gpu_scale_at(&run->k.scale, 0, 0, 0);

    GPU_UNROLL
    for (uint32_t j = 0; j < 16; j++) {
        const uint32_t d = j * GPU_WARP + lane;
        float x = row_sum == 0 ? 0 : values[j] * share / whole * value_scale;
        if (scaled)
            x = gpu_divide(x, scale);
        if (d < run->problem.head_dim_vo)
            gpu_store(dtype, (unsigned char *)(to + d * GPU_SIZE(dtype)), x);
    }
    if (lane == 0 && run->lse.base != 0)
        *(float *)(run->lse.base +
                   (uint64_t)(row * run->lse.token_stride + (int64_t)head * run->lse.head_stride)) =
            whole == 0     ? -GPU_INFINITY
            : row_sum == 0 ? own
                           : (float)(((double)base + gpu_log_f64((double)whole) * 1.4426950408889634) *
                                     0.6931471805599453);
}

#endif
