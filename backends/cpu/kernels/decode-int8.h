/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Scores of decode where queries and keys are int8: sums of products of codes, which are exact in integers,
 * in place of those of decode-micro.h. Scales multiply a row's sums afterwards.
 */
#ifndef ATTN_CPU_KERNELS_DECODE_INT8_H
#define ATTN_CPU_KERNELS_DECODE_INT8_H

#include "decode-block.h"

#ifdef DOT_CODES

_Static_assert(DOT_CODES <= CPU_PLACE_DIMS, "a key has the codes of an operation");

/* A staged query begins with the sum of its codes, which has a cache line of its own: so many floats. */
#define DOT_HEAD 16u

/* Whether scores are sums of integers. */
static bool int8_products(const struct attn_problem *problem)
{
    return problem->q_dtype == ATTN_INT8 && problem->k_dtype == ATTN_INT8 && problem->head_dim >= DOT_CODES;
}

/* Floats of a staged query. */
static uint32_t int8_stride(uint32_t dim)
{
    const uint32_t padded = (dim + DOT_CODES - 1) / DOT_CODES * DOT_CODES;
    return DOT_HEAD + vec_padded(padded * (uint32_t)sizeof(dot_code) / (uint32_t)sizeof(float));
}

INLINE dot_code *int8_codes(float *q)
{
    return (dot_code *)(void *)(q + DOT_HEAD);
}

/* Adds n codes at `from` to `to`, and returns their sum. */
static int32_t int8_copy(const char *from, uint32_t n, dot_code *to)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        to[i] = (int8_t)from[i];
        sum += (int8_t)from[i];
    }
    return sum;
}

/*
 * Stages the codes of the work item's query token t and query head h. Returns what sums of products with them
 * are multiplied with.
 */
static float int8_query(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t h,
                        float *to)
{
    const uint32_t dim = run->problem->head_dim;
    const uint32_t first = run->q_rope != NULL ? run->problem->head_dim_vo : dim;
    const uint32_t rest = dim % DOT_CODES, full = dim - rest;
    const int64_t row = (int64_t)work->first_token + t;
    dot_code *q = int8_codes(to);
    int32_t sum = int8_copy(run->q + row * run->q_token + (int64_t)h * run->q_head, first, q);
    if (first < dim)
        sum += int8_copy(run->q_rope + row * run->q_rope_token + (int64_t)h * run->q_rope_head, dim - first,
                         q + first);
    if (rest) { /* the last codes of a key overlap the ones before: zeros there */
        memmove(q + full + DOT_CODES - rest, q + full, rest * sizeof *q);
        memset(q + full, 0, (DOT_CODES - rest) * sizeof *q);
    }
    memcpy(to, &sum, sizeof sum);
    return query_factor(run) * cpu_scale_at(&run->q_scale, work->seq, row, h / run->q_scale_group);
}

/* DOT_CODES codes at `at` of each key times those of `rows` query rows, added to their sums. */
INLINE void int8_add(uint32_t rows, uint32_t keys, const char *const *k, size_t at, const dot_code *q,
                     size_t q_stride, dots *a)
{
    const uint32_t n = keys / DOT_KEYS;
    dot_operand x[STEP_ROWS];
    UNROLL
    for (uint32_t r = 0; r < rows; r++)
        x[r] = dot_query(q + r * q_stride);
    UNROLL
    for (uint32_t j = 0; j < n; j++) {
        const dot_operand y = dot_keys(k + j * DOT_KEYS, at);
        UNROLL
        for (uint32_t r = 0; r < rows; r++)
            a[r * n + j] = dot_add(a[r * n + j], y, x[r]);
    }
}

#if DOT_KEYS == 1
/* Sums of `rows` query rows and `keys` keys, rows `stride` floats apart. */
INLINE void dots_store(uint32_t rows, uint32_t keys, const dots *a, float *s, uint32_t stride)
{
    if (keys == 2) {
        UNROLL
        for (uint32_t r = 0; r < rows; r += 2)
            vec4_store_pairs(s + r * stride, s + (r + 1) * stride,
                             dot_sum4(a[2 * r], a[2 * r + 1], a[2 * r + 2], a[2 * r + 3]));
        return;
    }
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        UNROLL
        for (uint32_t j = 0; j < keys; j += 4) {
            const dots *b = a + r * keys + j;
            vec4_store(s + r * stride + j, dot_sum4(b[0], b[1], b[2], b[3]));
        }
    }
}
#endif

/* As scores_block, for staged queries; rows * keys is a multiple of 4. */
INLINE void int8_block(uint32_t rows, uint32_t keys, const char *const *k, const char *const *next, bool far,
                       uint32_t dim, const float *q, uint32_t q_stride, float *s)
{
    const size_t stride = q_stride * sizeof *q / sizeof(dot_code);
    const dot_code *code = (const dot_code *)(const void *)(q + DOT_HEAD);
    const uint32_t n = keys / DOT_KEYS, full = dim - dim % DOT_CODES;
    dots a[SCORE_VECS];
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        int32_t sum;
        memcpy(&sum, q + (size_t)r * q_stride, sizeof sum);
        UNROLL
        for (uint32_t j = 0; j < n; j++)
            a[r * n + j] = dot_begin(sum);
    }
    for (uint32_t at = 0; at < full; at += DOT_CODES) {
        if (at % CACHE_LINE == 0)
            prefetch_keys(next, keys, at, far);
        int8_add(rows, keys, k, at, code + at, stride, a);
    }
    if (full < dim)
        int8_add(rows, keys, k, dim - DOT_CODES, code + full, stride, a);
    dots_store(rows, keys, a, s, SCORE_STRIDE);
}

INLINE void int8_step(uint32_t rows, const struct step *k, uint32_t dim, const float *q, uint32_t q_stride,
                      float *s)
{
    const uint32_t most = rows == 1 ? STEP_KEYS : rows == STEP_ROWS && SCORE_VECS < 16 ? 2 : 4;
    const uint32_t keys = DOT_KEYS == 1 ? most : STEP_KEYS;
    for (uint32_t j = 0; j < STEP_KEYS; j += keys)
        int8_block(rows, keys, k->now + j, k->next + j, k->far, dim, q, q_stride, s + j);
}

#define INT8_STEP_OF(rows)                                                                                   \
    static void int8_scores_##rows(const struct step *k, uint32_t dim, const float *q, uint32_t q_stride,    \
                                   float *s)                                                                 \
    {                                                                                                        \
        int8_step(rows, k, dim, q, q_stride, s);                                                             \
    }
INT8_STEP_OF(1)
INT8_STEP_OF(2)
INT8_STEP_OF(3)
INT8_STEP_OF(4)

static const scores_fn int8_scores_table[STEP_ROWS] = {int8_scores_1, int8_scores_2, int8_scores_3,
                                                       int8_scores_4};

#else

/* Levels without products of integers: all scores are those of decode-micro.h. */
typedef int8_t dot_code;
#define int8_scores_table scores_table[VEC_INT8]

static bool int8_products(const struct attn_problem *problem)
{
    (void)problem;
    return false;
}

static uint32_t int8_stride(uint32_t dim)
{
    return dim;
}

static float int8_query(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t h,
                        float *to)
{
    (void)run, (void)work, (void)t, (void)h, (void)to;
    return 0;
}

INLINE dot_code *int8_codes(float *q)
{
    return (dot_code *)(void *)q;
}

#endif

#endif
