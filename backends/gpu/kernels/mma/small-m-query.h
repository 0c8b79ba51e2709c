/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Small M: queries of 16 bits from global memory into the registers of every warp. */
#ifndef ATTN_GPU_MMA_SMALL_M_QUERY_H
#define ATTN_GPU_MMA_SMALL_M_QUERY_H

#include "query.h"
#include "small-m-score.h"

/* Token and head of a row; false behind the last one. Most sequences have one token. */
GPU_INLINE bool small_m_row_of(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t row,
                               uint32_t kv_head, uint32_t *token, uint32_t *head)
{
    *token = 0;
    *head = kv_head * run->group + row;
    return s->q_len == 1 ? row < run->group : mma_row_of(run, s, row, kv_head, token, head);
}

/* All queries into registers, with zeros behind the last column and the last row. */
template <class C>
GPU_INLINE void small_m_load_queries(const struct gpu_run *run, const struct gpu_sequence *s,
                                     uint32_t kv_head, small_m_query_fragments<C> q)
{
    const uint32_t row = gpu_thread() % GPU_WARP / 4, column = gpu_thread() % 4 * 2;
    uint32_t token, head, dim = run->problem.head_dim;

    if (!small_m_row_of(run, s, row, kv_head, &token, &head))
        token = head = dim = 0;
    const uint64_t base = mma_query_address(run, s, token, head);
    if (((base | dim * 2) & 3) == 0) {
        GPU_UNROLL
        for (uint32_t i = 0; i < C::DK / 8; i++) {
            const uint32_t d = i * 8 + column;
            q[i / 2][i % 2] = 0;
            if (d < dim)
                q[i / 2][i % 2] = *GPU_GLOBAL(const uint32_t, base + d * 2u);
        }
        return;
    }
    GPU_LOOP
    for (uint32_t d = column; d < C::DK; d += 8) { /* this is rare: all words move on by one place */
        GPU_UNROLL
        for (uint32_t i = 0; i + 1 < C::DK / 8; i++)
            q[i / 2][i % 2] = q[(i + 1) / 2][(i + 1) % 2];
        q[C::DK / 16 - 1][1] =
            (d < dim ? *GPU_GLOBAL(const uint16_t, base + d * 2u) : 0u) |
            (d + 1 < dim ? (uint32_t)*GPU_GLOBAL(const uint16_t, base + d * 2u + 2) << 16 : 0u);
    }
}

#endif
