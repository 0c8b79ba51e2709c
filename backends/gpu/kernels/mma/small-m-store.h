/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Small M: rows of results straight from registers into the output. */
#ifndef ATTN_GPU_MMA_SMALL_M_STORE_H
#define ATTN_GPU_MMA_SMALL_M_STORE_H

#include "epilogue.h"
#include "small-m-query.h"

/* Where one of a lane's rows is stored, and the factor that normalises it. */
template <class C>
GPU_INLINE void small_m_row_target(const struct gpu_run *run, const mma_shared<C> *shared, uint32_t row,
                                   float max, float sum, uint64_t *to, float *factor)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t kv_head = shared->work.kv_head;
    uint32_t token, head;

    *to = 0;
    *factor = 0;
    for (uint32_t step = 4; step < GPU_WARP; step *= 2)
        sum += gpu_shuffle_xor_f32(sum, step);
    if (!small_m_row_of(run, s, row, kv_head, &token, &head))
        return;
    const struct mma_row_epilogue epilogue = mma_row_epilogue_of<C>(run, s, token, head, kv_head, max, sum);
    *to = epilogue.to;
    *factor = epilogue.factor;
    if (run->lse.base != 0 && gpu_thread() % GPU_WARP < 4)
        mma_store_lse_apart(run, s, token, head, sum, epilogue);
}

/* Stores the warp's rows as a 16-bit type: columns of results become rows by transposing 8 of both. */
template <class C>
GPU_INLINE void small_m_store_rows(const struct gpu_run *run, const mma_shared<C> *shared,
                                   const struct small_m_softmax *softmax, small_m_out_fragments<C> o)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const bool bf16 = run->problem.out_dtype == ATTN_BF16;
    uint64_t to[2];
    float factor[2];

    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++)
        small_m_row_target<C>(run, shared, lane % 4 * 2 + e, softmax->max[e], softmax->sum[e], &to[e],
                              &factor[e]);
    const uint64_t even = gpu_shuffle_u64(to[0], lane / 8), odd = gpu_shuffle_u64(to[1], lane / 8);
    const uint64_t own = lane / 4 % 2 != 0 ? odd : even;
    GPU_UNROLL
    for (uint32_t n = 0; n < C::DV / 16; n++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t pair =
                gpu_transpose_matrix(mma_pack(o[n][2 * h] * factor[0], o[n][2 * h + 1] * factor[1], bf16));
            if (own != 0)
                *GPU_GLOBAL(uint32_t, own + (n * 16 + h * 8 + lane % 4 * 2) * 2u) = pair;
        }
    }
}

#endif
