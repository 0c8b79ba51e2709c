/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Products of a warp group: four warps multiply 64 rows with matrices of shared memory (Hopper). A lane has
 * the accumulators that it has of m16n8k16, so all else is the same as with products of each warp: rules,
 * softmax, results.
 */
#ifndef ATTN_GPU_MMA_WGMMA_H
#define ATTN_GPU_MMA_WGMMA_H

#include "softmax.h"

/* Scores, or P, of a KV iteration, by tiles of keys. */
template <class C> using mma_iteration_scores = mma_score_fragments<C>[C::TILES];
/* P as an operand of products. */
template <class C> using mma_iteration_p = uint32_t[C::KEYS * C::P_SIZE / 32][4];

/* Begins the products of a warp group's queries with the keys of a stage. */
template <class C>
GPU_INLINE void mma_begin_scores_of(const unsigned char *queries, const unsigned char *keys,
                                    mma_iteration_scores<C> s)
{
    float(&all)[C::KEYS / 8][4] = *reinterpret_cast<float(*)[C::KEYS / 8][4]>(s);
    gpu_matrix matrix[2];

    gpu_matrices_of_all<C::KEYS>(queries, keys, matrix);
    gpu_wgmma_begin();
    GPU_UNROLL
    for (uint32_t kk = 0; kk < C::Q_ROW / 32; kk++) {
        const uint32_t at = kk / 4 * C::BLOCK_BYTES + kk % 4 * 32;
        const gpu_matrix a = gpu_matrix_from(matrix[0], at), b = gpu_matrix_from(matrix[1], at);
        if constexpr (C::E4M3)
            gpu_wgmma_rows_e4m3(all, a, b, kk != 0);
        else
            gpu_wgmma_rows<C::BF16_MMA>(all, a, b, kk != 0);
    }
    gpu_wgmma_commit();
}

/* The compiler moves no use of scores across this. */
template <class C> GPU_INLINE void mma_keep_scores(mma_iteration_scores<C> s)
{
    gpu_wgmma_keep(*reinterpret_cast<float(*)[C::KEYS / 8][4]>(s));
}

/* Waits until at most the latest `n` groups of products are under way; scores are among those that are done.
 */
template <class C, uint32_t n> GPU_INLINE void mma_wait_scores(mma_iteration_scores<C> s)
{
    gpu_wgmma_wait<n>();
    mma_keep_scores<C>(s);
}

/* Adds the products of P, in either type, with the values of a stage: 128 columns at once, or registers
 * spill. */
template <class C, bool bf16>
GPU_INLINE void mma_add_results(const unsigned char *values, const mma_iteration_p<C> p,
                                mma_out_fragments<C> o)
{
    constexpr uint32_t columns = C::DV < 128 ? C::DV : 128;
    const gpu_matrix matrix = gpu_matrix_of_all<C::KEYS>(values);

    gpu_wgmma_keep(o[0]);
    gpu_wgmma_begin();
    GPU_UNROLL
    for (uint32_t k = 0; k < C::KEYS / 16; k++) {
        GPU_UNROLL
        for (uint32_t first = 0; first < C::DV; first += columns)
            gpu_wgmma_columns<bf16>(*reinterpret_cast<float(*)[columns / 8][4]>(&o[0][first / 8]), p[k],
                                    gpu_matrix_from(matrix, first / 64 * C::BLOCK_BYTES + k * 16 * 128));
    }
}

/* The same in e4m3, of values whose rows are columns, the last of which sum P up. A row of 64 keys has two
 * columns side by side. */
template <class C>
GPU_INLINE void mma_add_results_e4m3(const unsigned char *values, const mma_iteration_p<C> p,
                                     mma_out_fragments<C> o)
{
    const gpu_matrix matrix = gpu_matrix_of_all<C::KEYS>(values);

    gpu_wgmma_keep(o[0]);
    gpu_wgmma_begin();
    GPU_UNROLL
    for (uint32_t k = 0; k < C::KEYS / 32; k++) {
        constexpr uint32_t first = C::KEYS < GPU_E4M3_ROW ? C::V_ROWS / 8 : 0; /* of two: its fragments */
        if constexpr (first > 0)
            gpu_wgmma_rows_e4m3(*reinterpret_cast<float(*)[first][4]>(&o[0][0]), p[k],
                                gpu_matrix_from(matrix, k * 32));
        gpu_wgmma_rows_e4m3(*reinterpret_cast<float(*)[C::V_ROWS / 8 + 1][4]>(&o[0][first]), p[k],
                            gpu_matrix_from(matrix, (first > 0 ? C::KEYS : 0) + k * 32));
    }
}

/* Begins these products, by code for each type of P. */
template <class C>
GPU_INLINE void mma_begin_results_of(bool bf16, const unsigned char *values, const mma_iteration_p<C> p,
                                     mma_out_fragments<C> o)
{
    if constexpr (C::E4M3)
        mma_add_results_e4m3<C>(values, p, o);
    else if (C::KV8 && bf16)
        mma_add_results<C, true>(values, p, o);
    else
        mma_add_results<C, C::BF16_MMA>(values, p, o);
}

/* Waits for all products. */
template <class C> GPU_INLINE void mma_wait_results(mma_out_fragments<C> o)
{
    gpu_wgmma_wait<0>();
    gpu_wgmma_keep(o[0]);
}

#endif
