/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the kernels for latent caches and the one that merges know of a row: whose it is, and its last word.
 */
#ifndef ATTN_GPU_LATENT_ROWS_H
#define ATTN_GPU_LATENT_ROWS_H

#include "rules.h"

#define LATENT_LOG2E 1.4426950408889634f

/* Token and head of a row of the sequence; false behind its last one. */
GPU_INLINE bool latent_row_of(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t row,
                              uint32_t *token, uint32_t *head)
{
    *token = row / run->group;
    *head = row - *token * run->group;
    return *token < s->q_len;
}

/* A row's last word: the sink, the division, the output's type. `peak` and `total` in base 2. */
GPU_INLINE void latent_emit(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                            uint32_t head, float peak, float total, const float values[16], uint32_t lane)
{
    const float own = gpu_sink(run, head), sink = own * LATENT_LOG2E;
    const float top = fmaxf(peak, sink), base = top == -GPU_INFINITY ? 0 : top;
    const float share = gpu_exp2(peak - base), whole = total * share + gpu_exp2(sink - base);
    const uint32_t dtype = run->problem.out_dtype;
    const int64_t row = (int64_t)s->row + token;
    const uint64_t to =
        run->out.base + (uint64_t)(row * run->out.token_stride + (int64_t)head * run->out.head_stride);
    const bool scaled = run->problem.out_scale > ATTN_SCALES_UNIT;
    const float scale = scaled ? gpu_scale_at(&run->out_scale, s->index, row, head) : 1;

    GPU_UNROLL
    for (uint32_t j = 0; j < 16; j++) {
        const uint32_t d = j * GPU_WARP + lane;
        float x = total == 0 ? 0 : values[j] * share / whole;
        if (scaled)
            x = gpu_divide(x, scale);
        if (d < run->problem.head_dim_vo)
            gpu_store(dtype, (unsigned char *)(to + d * GPU_SIZE(dtype)), x);
    }
    if (lane == 0 && run->lse.base != 0)
        *(float *)(run->lse.base +
                   (uint64_t)(row * run->lse.token_stride + (int64_t)head * run->lse.head_stride)) =
            whole == 0   ? -GPU_INFINITY
            : total == 0 ? own
                         : (float)(((double)base + gpu_log_f64((double)whole) * 1.4426950408889634) *
                                   0.6931471805599453);
}

#endif
