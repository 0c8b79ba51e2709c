/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Micro-kernels of products by vector instructions: scores with query rows in the lanes and keys broadcast,
 * weighted sums with dimensions in the lanes and weights broadcast, and the transposition of queries that the
 * first needs.
 *
 * The operations on one query row and their order never depend on how many rows share a call.
 */
#ifndef ATTN_CPU_KERNELS_PREFILL_MICRO_H
#define ATTN_CPU_KERNELS_PREFILL_MICRO_H

#include "prefill-block.h"

/* Dimensions of one call for weighted sums. */
#define SUM_DIMS (2 * VEC_LANES)
/* Dimensions that are summed before they are added to a score, which bounds its error for any vector. */
#define SCORE_DIMS 32u
/* Keys of one call for scores; query rows of one call for weighted sums, or one row less, or few. */
#define SCORE_KEYS (VEC_REGISTERS == 32 ? 13u : 6u)
#define SUM_ROWS   (VEC_REGISTERS == 32 ? 13u : 6u)
#define LAST_ROWS  4u

_Static_assert(BLOCK_ROWS % SUM_ROWS == SUM_ROWS - 1 || BLOCK_ROWS % SUM_ROWS == LAST_ROWS,
               "the last call for weighted sums ends with the block");

/* Scores of `keys` staged keys and a panel over dimensions [0, n), SCORE_DIMS at a time, into sum[]. */
INLINE void panel_partial(uint32_t keys, const float *k, uint32_t k_stride, const float *q, uint32_t n,
                          vec *sum)
{
    UNROLL
    for (uint32_t i = 0; i < 2 * keys; i++)
        sum[i] = vec_zero();
    for (uint32_t d0 = 0; d0 < n; d0 += SCORE_DIMS) {
        const uint32_t end = n - d0 < SCORE_DIMS ? n : d0 + SCORE_DIMS;
        vec a[2 * SCORE_KEYS];
        UNROLL
        for (uint32_t i = 0; i < 2 * keys; i++)
            a[i] = vec_zero();
        for (uint32_t d = d0; d < end; d++) {
            const float *column = q + (size_t)d * PANEL_ROWS;
            const vec x = vec_load_f32(column), y = vec_load_f32(column + VEC_LANES);
            UNROLL
            for (uint32_t j = 0; j < keys; j++) {
                const vec b = vec_broadcast(k + (size_t)j * k_stride + d);
                a[2 * j] = product_add(b, x, a[2 * j]);
                a[2 * j + 1] = product_add(b, y, a[2 * j + 1]);
            }
        }
        UNROLL
        for (uint32_t i = 0; i < 2 * keys; i++)
            sum[i] = vec_add(sum[i], a[i]);
    }
}

/*
 * Scores of `keys` (at most SCORE_KEYS) staged keys and a panel of query rows. One long sum would miss the
 * error bounds of large scores: the two halves of the dimensions are added up separately, each in short sums.
 */
INLINE void panel_scores(uint32_t keys, const float *k, uint32_t k_stride, const float *q, uint32_t dim,
                         float *s)
{
    const uint32_t half = (dim + 2 * SCORE_DIMS - 1) / (2 * SCORE_DIMS) * SCORE_DIMS;
    vec low[2 * SCORE_KEYS], high[2 * SCORE_KEYS];
    panel_partial(keys, k, k_stride, q, dim < half ? dim : half, low);
    if (dim > half) {
        panel_partial(keys, k + half, k_stride, q + (size_t)half * PANEL_ROWS, dim - half, high);
        UNROLL
        for (uint32_t i = 0; i < 2 * keys; i++)
            low[i] = vec_add(low[i], high[i]);
    }
    UNROLL
    for (uint32_t i = 0; i < 2 * keys; i++)
        vec_store(s + i / 2 * KEY_STRIDE + i % 2 * VEC_LANES, low[i]);
}

/*
 * SUM_DIMS dimensions of `rows` (at most SUM_ROWS) rows: out = out * factor + sum over n keys of weight *
 * value, or = the sum alone if `first`.
 */
INLINE void rows_sums(uint32_t rows, uint32_t n, const float *p, const float *v, uint32_t v_stride,
                      const float *factor, int first, float *o, uint32_t o_stride)
{
    vec a[2 * SUM_ROWS];
    UNROLL
    for (uint32_t i = 0; i < 2 * rows; i++)
        a[i] = vec_zero();
    for (uint32_t j = 0; j < n; j++, v += v_stride, p += SLOT_NUMBERS * KEY_STRIDE) {
        const vec x = vec_load_f32(v), y = vec_load_f32(v + VEC_LANES);
        UNROLL
        for (uint32_t r = 0; r < rows; r++) {
            const vec w = vec_broadcast(p + r);
            a[2 * r] = product_add(w, x, a[2 * r]);
            a[2 * r + 1] = product_add(w, y, a[2 * r + 1]);
        }
    }
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        float *to = o + (size_t)r * o_stride;
        if (!first) {
            const vec f = vec_broadcast(factor + r);
            a[2 * r] = vec_fma(vec_load_f32(to), f, a[2 * r]);
            a[2 * r + 1] = vec_fma(vec_load_f32(to + VEC_LANES), f, a[2 * r + 1]);
        }
        vec_store(to, a[2 * r]);
        vec_store(to + VEC_LANES, a[2 * r + 1]);
    }
}

/* Scores of staged keys [from, to), widened to whole blocks, and a panel. */
static void panel_scores_tile(const float *k, uint32_t k_stride, uint32_t from, uint32_t to, const float *q,
                              uint32_t dim, float *s)
{
    uint32_t j = from - from % SCORE_KEYS;
    for (; j < to && j + SCORE_KEYS <= CPU_TILE_KEYS; j += SCORE_KEYS)
        panel_scores(SCORE_KEYS, k + (size_t)j * k_stride, k_stride, q, dim, s + (size_t)j * KEY_STRIDE);
    if (j < to)
        panel_scores(CPU_TILE_KEYS % SCORE_KEYS, k + (size_t)j * k_stride, k_stride, q, dim,
                     s + (size_t)j * KEY_STRIDE);
}

/* VEC_LANES query rows, and as many of their dimensions, times `factor`, into columns of a panel. */
INLINE void panel_transpose(const float *q, size_t q_stride, vec factor, float *panel)
{
    vec a[VEC_LANES];
    UNROLL
    for (uint32_t i = 0; i < VEC_LANES; i++)
        a[i] = vec_mul(vec_load_f32(q + i * q_stride), factor);
    vec_transpose(a);
    UNROLL
    for (uint32_t i = 0; i < VEC_LANES; i++)
        vec_store(panel + i * PANEL_ROWS, a[i]);
}

#endif
