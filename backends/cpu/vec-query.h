/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Loads a query for the vectorised kernels: one row, or a latent and a rope piece of it. */
#ifndef ATTN_CPU_VEC_QUERY_H
#define ATTN_CPU_VEC_QUERY_H

#include "kernels.h"
#include "vec-types.h"

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

#endif
