/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Micro-kernels of the prefill tiles: scores with query rows in the lanes and keys broadcast, weighted sums
 * with dimensions in the lanes and weights broadcast, and the transposition of queries that the first needs.
 *
 * The operations on one row and their order never depend on how many rows share a call.
 */
#ifndef ATTN_CPU_PREFILL_MICRO_AVX2_H
#define ATTN_CPU_PREFILL_MICRO_AVX2_H

#include "vec-avx2.h"

/* Query rows of a panel of transposed queries: panel[dimension][row]. */
#define PANEL_ROWS 16u
/* Distance of a tile's keys in floats: score[key][row]. 64 rows, and off the powers of two. */
#define KEY_STRIDE 72u
/* Dimensions of one piece of a score. */
#define SCORE_DIMS 16u
/* Keys of one call for scores; rows of one call for sums. */
#define SCORE_KEYS 6u
#define SUM_ROWS   6u

/* Partial sums of `keys` staged keys and a panel over dimensions [0, n), in pieces of SCORE_DIMS, into sum[].
 */
INLINE void panel_partial(uint32_t keys, const float *k, uint32_t k_stride, const float *q, uint32_t n,
                          __m256 *sum)
{
    UNROLL
    for (uint32_t i = 0; i < 2 * keys; i++)
        sum[i] = _mm256_setzero_ps();
    for (uint32_t d0 = 0; d0 < n; d0 += SCORE_DIMS) {
        const uint32_t end = n - d0 < SCORE_DIMS ? n : d0 + SCORE_DIMS;
        __m256 a[2 * SCORE_KEYS];
        UNROLL
        for (uint32_t i = 0; i < 2 * keys; i++)
            a[i] = _mm256_setzero_ps();
        for (uint32_t d = d0; d < end; d++) {
            const float *column = q + (size_t)d * PANEL_ROWS;
            const __m256 x = _mm256_loadu_ps(column), y = _mm256_loadu_ps(column + 8);
            UNROLL
            for (uint32_t j = 0; j < keys; j++) {
                const __m256 b = _mm256_broadcast_ss(k + (size_t)j * k_stride + d);
                a[2 * j] = _mm256_fmadd_ps(b, x, a[2 * j]);
                a[2 * j + 1] = _mm256_fmadd_ps(b, y, a[2 * j + 1]);
            }
        }
        UNROLL
        for (uint32_t i = 0; i < 2 * keys; i++)
            sum[i] = _mm256_add_ps(sum[i], a[i]);
    }
}

/*
 * Scores of `keys` (at most 6) staged keys and a panel of 16 query rows. One long sum would miss the bounds
 * of large scores: the two halves of the dimensions are summed apart, each in short pieces.
 */
INLINE void panel_scores(uint32_t keys, const float *k, uint32_t k_stride, const float *q, uint32_t dim,
                         float *s)
{
    const uint32_t half = (dim + 2 * SCORE_DIMS - 1) / (2 * SCORE_DIMS) * SCORE_DIMS;
    __m256 low[2 * SCORE_KEYS], high[2 * SCORE_KEYS];
    panel_partial(keys, k, k_stride, q, dim < half ? dim : half, low);
    if (dim > half) {
        panel_partial(keys, k + half, k_stride, q + (size_t)half * PANEL_ROWS, dim - half, high);
        UNROLL
        for (uint32_t i = 0; i < 2 * keys; i++)
            low[i] = _mm256_add_ps(low[i], high[i]);
    }
    UNROLL
    for (uint32_t i = 0; i < 2 * keys; i++)
        _mm256_storeu_ps(s + i / 2 * KEY_STRIDE + i % 2 * 8, low[i]);
}

/*
 * Sixteen dimensions of `rows` (at most 6) rows: out = out * factor + sum over n keys of weight * value, or
 * = the sum alone if `first`.
 */
INLINE void rows_sums(uint32_t rows, uint32_t n, const float *p, const float *v, uint32_t v_stride,
                      const float *factor, int first, float *o, uint32_t o_stride)
{
    __m256 a[2 * SUM_ROWS];
    UNROLL
    for (uint32_t i = 0; i < 2 * rows; i++)
        a[i] = _mm256_setzero_ps();
    for (uint32_t j = 0; j < n; j++, v += v_stride, p += KEY_STRIDE) {
        const __m256 x = _mm256_loadu_ps(v), y = _mm256_loadu_ps(v + 8);
        UNROLL
        for (uint32_t r = 0; r < rows; r++) {
            const __m256 w = _mm256_broadcast_ss(p + r);
            a[2 * r] = _mm256_fmadd_ps(w, x, a[2 * r]);
            a[2 * r + 1] = _mm256_fmadd_ps(w, y, a[2 * r + 1]);
        }
    }
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        float *to = o + (size_t)r * o_stride;
        if (!first) {
            const __m256 f = _mm256_broadcast_ss(factor + r);
            a[2 * r] = _mm256_fmadd_ps(_mm256_loadu_ps(to), f, a[2 * r]);
            a[2 * r + 1] = _mm256_fmadd_ps(_mm256_loadu_ps(to + 8), f, a[2 * r + 1]);
        }
        _mm256_storeu_ps(to, a[2 * r]);
        _mm256_storeu_ps(to + 8, a[2 * r + 1]);
    }
}

/* Scores of staged keys [from, to), widened to whole blocks, and a panel. */
static void panel_scores_tile(const float *k, uint32_t k_stride, uint32_t from, uint32_t to, const float *q,
                              uint32_t dim, float *s)
{
    uint32_t j = from - from % SCORE_KEYS;
    for (; j < to && j + SCORE_KEYS <= 64; j += SCORE_KEYS)
        panel_scores(SCORE_KEYS, k + (size_t)j * k_stride, k_stride, q, dim, s + (size_t)j * KEY_STRIDE);
    if (j < to)
        panel_scores(64 % SCORE_KEYS, k + (size_t)j * k_stride, k_stride, q, dim, s + (size_t)j * KEY_STRIDE);
}

/* Eight rows of q, from dimension d to d + 8, times `factor`, into columns of a panel. */
INLINE void panel_transpose(const float *q, size_t q_stride, __m256 factor, float *panel)
{
    __m256 a[8], b[8];
    UNROLL
    for (uint32_t i = 0; i < 8; i++)
        a[i] = _mm256_mul_ps(_mm256_loadu_ps(q + i * q_stride), factor);
    UNROLL
    for (uint32_t i = 0; i < 4; i++) { /* pairs of rows, then of pairs, then of halves */
        b[2 * i] = _mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]);
    }
    UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        a[4 * i] = _mm256_shuffle_ps(b[4 * i], b[4 * i + 2], 0x44);
        a[4 * i + 1] = _mm256_shuffle_ps(b[4 * i], b[4 * i + 2], 0xee);
        a[4 * i + 2] = _mm256_shuffle_ps(b[4 * i + 1], b[4 * i + 3], 0x44);
        a[4 * i + 3] = _mm256_shuffle_ps(b[4 * i + 1], b[4 * i + 3], 0xee);
    }
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        _mm256_storeu_ps(panel + i * PANEL_ROWS, _mm256_permute2f128_ps(a[i], a[4 + i], 0x20));
        _mm256_storeu_ps(panel + (4 + i) * PANEL_ROWS, _mm256_permute2f128_ps(a[i], a[4 + i], 0x31));
    }
}

#endif
