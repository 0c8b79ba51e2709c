/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the vector kernels share: scratch, queries as f32, log-sum-exp of a row. */
#ifndef ATTN_CPU_KERNELS_ROW_STATE_H
#define ATTN_CPU_KERNELS_ROW_STATE_H

#include "kernels.h"
#include "simd/math.h"

#define LOG2E 1.44269504088896340736
#define LN2   0.69314718055994530942

/* Allocates `count` floats of the scratch; without scratch they are only counted. */
INLINE float *take_floats(float *scratch, size_t *used, size_t count)
{
    const size_t at = *used;
    *used += count;
    return scratch != NULL ? scratch + at : NULL;
}

/* What a query is multiplied with: softmax_scale, and what makes scores units of log2 or of the soft cap. */
INLINE float query_factor(const struct cpu_run *run)
{
    const double unit = run->softcap > 0 ? 1.0 / (double)run->softcap : LOG2E;
    return (float)((double)run->scale * unit);
}

/* The soft cap in units of log2; 0 = none. */
INLINE float query_cap(const struct cpu_run *run)
{
    return (float)((double)run->softcap * LOG2E);
}

/* All columns of batch row `row` and query head h as f32, times `factor`. */
INLINE void query_convert(const struct cpu_run *run, int64_t row, uint32_t h, vec factor, float *to)
{
    const enum vec_type type = vec_type_of(run->problem->q_dtype);
    const uint32_t dim = run->problem->head_dim;
    const uint32_t first = run->q_rope != NULL ? run->problem->head_dim_vo : dim;
    vec_convert(type, run->q + row * run->q_token + (int64_t)h * run->q_head, first, factor, to);
    if (first < dim)
        vec_convert(type, run->q_rope + row * run->q_rope_token + (int64_t)h * run->q_rope_head, dim - first,
                    factor, to + first);
}

/* Natural log-sum-exp from a row max in units of log2 and the sum of the weights; -inf if both say "none". */
INLINE float row_lse(float row_max, float sum)
{
    return (float)((double)row_max * LN2 + log((double)sum));
}

#endif
