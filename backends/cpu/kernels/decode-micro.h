/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Micro-kernels of decode: up to four query rows against a step of keys (scores) or of values (weighted sum),
 * which are read from the cache in place and converted in registers. Each also prefetches the next step, at
 * the pace at which it reads its own.
 *
 * The operations on one query row and their order never depend on how many rows share a call.
 */
#ifndef ATTN_CPU_KERNELS_DECODE_MICRO_H
#define ATTN_CPU_KERNELS_DECODE_MICRO_H

#include "kernels.h"
#include "simd/math.h"

/* Keys of a step, which is what one call works on, and a bit for each. */
#define STEP_KEYS 8u
#define STEP_ALL  ((UINT32_C(1) << STEP_KEYS) - 1)
/* Largest number of query rows of one call. */
#define STEP_ROWS 4u
/* Vectors of scores, and of weighted sums, that stay in registers. */
#define SCORE_VECS (VEC_REGISTERS == 32 ? 16u : 12u)
#define SUM_VECS   (VEC_REGISTERS == 32 ? 16u : 8u)
/* Ways to convert a step. */
#define STEP_TYPES (VEC_TYPES + 1u)
/* Distance of the score rows of two query rows, in floats. */
#define SCORE_STRIDE CPU_TILE_KEYS

/* The keys or values that a call reads, and those that it prefetches (the same ones where nothing follows).
 */
struct step {
    const char *now[STEP_KEYS];
    const char *next[STEP_KEYS];
    bool far; /* they are to come into the L2 cache */
};

/* A line of each of `keys` vectors, from byte `at` on. */
INLINE void prefetch_keys(const char *const *k, uint32_t keys, size_t at, bool far)
{
    if (far) {
        UNROLL
        for (uint32_t j = 0; j < keys; j++)
            __builtin_prefetch(k[j] + at, 0, 2);
    } else {
        UNROLL
        for (uint32_t j = 0; j < keys; j++)
            __builtin_prefetch(k[j] + at, 0, 3);
    }
}

/* The lines of n bytes. */
INLINE void prefetch_bytes(const char *p, size_t n, bool far)
{
    if (far) {
        UNROLL
        for (size_t at = 0; at < n; at += CACHE_LINE)
            __builtin_prefetch(p + at, 0, 2);
    } else {
        UNROLL
        for (size_t at = 0; at < n; at += CACHE_LINE)
            __builtin_prefetch(p + at, 0, 3);
    }
}

/* The vector at byte `at` of each key times the vectors of `rows` query rows, added to a[row * keys + key].
 */
INLINE void scores_add(enum vec_type type, uint32_t rows, uint32_t keys, const char *const *k, size_t at,
                       const float *q, uint32_t q_stride, vec *a)
{
    vec x[STEP_ROWS];
    UNROLL
    for (uint32_t r = 0; r < rows; r++)
        x[r] = vec_load_f32(q + (size_t)r * q_stride);
    UNROLL
    for (uint32_t j = 0; j < keys; j++) {
        const vec y = vec_load(type, k[j] + at);
        UNROLL
        for (uint32_t r = 0; r < rows; r++)
            a[r * keys + j] = vec_fma(x[r], y, a[r * keys + j]);
    }
}

/* The same for a block at byte `at` of each key: each converts its scale once. */
INLINE void scores_add_block(enum vec_type type, uint32_t rows, uint32_t keys, const char *const *k,
                             size_t at, const float *q, uint32_t q_stride, vec *a)
{
    UNROLL
    for (uint32_t j = 0; j < keys; j++) {
        UNROLL
        for (uint32_t i = 0; i < ATTN_BLOCK_ELEMENTS; i += VEC_LANES) {
            const vec y = block_load(type, k[j] + at, i);
            UNROLL
            for (uint32_t r = 0; r < rows; r++)
                a[r * keys + j] = vec_fma(vec_load_f32(q + (size_t)r * q_stride + i), y, a[r * keys + j]);
        }
    }
}

/* All of the keys in blocks, with the prefetch of the next ones. */
INLINE void scores_add_blocks(enum vec_type type, uint32_t rows, uint32_t keys, const char *const *k,
                              const char *const *next, bool far, uint32_t dim, const float *q,
                              uint32_t q_stride, vec *a)
{
    const size_t step = vec_block_bytes(type), full = vec_row_bytes(type, dim);
    for (size_t at = 0; at < full; at += step, q += ATTN_BLOCK_ELEMENTS) {
        prefetch_keys(next, keys, at, far);
        scores_add_block(type, rows, keys, k, at, q, q_stride, a);
    }
}

/* Scores of `rows` query rows and `keys` keys; rows * keys is a multiple of 4 and at most SCORE_VECS. */
INLINE void scores_block(enum vec_type type, uint32_t rows, uint32_t keys, const char *const *k,
                         const char *const *next, bool far, uint32_t dim, const float *q, uint32_t q_stride,
                         float *s)
{
    vec a[SCORE_VECS];
    UNROLL
    for (uint32_t i = 0; i < rows * keys; i++)
        a[i] = vec_zero();
    const size_t step = (size_t)VEC_LANES * vec_size(type);
    const size_t full = vec_has_blocks(type) ? 0 : dim / VEC_LANES * step;
    size_t at = 0;
    if (vec_has_blocks(type))
        scores_add_blocks(type, rows, keys, k, next, far, dim, q, q_stride, a);
    for (; at < full; at += step, q += VEC_LANES) {
        if (at % CACHE_LINE == 0)
            prefetch_keys(next, keys, at, far);
        scores_add(type, rows, keys, k, at, q, q_stride, a);
    }
    if (dim % VEC_LANES) /* the query holds zeros where this vector overlaps the last one */
        scores_add(type, rows, keys, k, (size_t)(dim - VEC_LANES) * vec_size(type), q, q_stride, a);

    if (keys == 2) {
        UNROLL
        for (uint32_t r = 0; r < rows; r += 2) {
            const vec4 x = vec_sum4(a[2 * r], a[2 * r + 1], a[2 * r + 2], a[2 * r + 3]);
            vec4_store_pairs(s + r * SCORE_STRIDE, s + (r + 1) * SCORE_STRIDE, x);
        }
        return;
    }
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        UNROLL
        for (uint32_t j = 0; j < keys; j += 4) {
            const vec *b = a + r * keys + j;
            vec4_store(s + r * SCORE_STRIDE + j, vec_sum4(b[0], b[1], b[2], b[3]));
        }
    }
}

/* Scores of `rows` query rows and a step of keys, to s[row * SCORE_STRIDE + key]. */
INLINE void scores_step(enum vec_type type, uint32_t rows, const struct step *k, uint32_t dim, const float *q,
                        uint32_t q_stride, float *s)
{
    const uint32_t keys = rows == 1 ? STEP_KEYS : rows == STEP_ROWS && SCORE_VECS < 16 ? 2 : 4;
    for (uint32_t j = 0; j < STEP_KEYS; j += keys)
        scores_block(type, rows, keys, k->now + j, k->next + j, k->far, dim, q, q_stride, s + j);
}

/* `wide` vectors of the output from element `at` on: out += weight * value over a step. */
INLINE void sums_block(enum vec_type type, uint32_t rows, uint32_t wide, const struct step *v, uint32_t at,
                       const float *p, int first, float *o, uint32_t o_stride)
{
    const uint32_t n = wide * VEC_LANES, blocks = (n + ATTN_BLOCK_ELEMENTS - 1) / ATTN_BLOCK_ELEMENTS;
    const size_t byte = vec_row_bytes(type, at);
    const size_t bytes = vec_has_blocks(type) ? blocks * vec_block_bytes(type) : n * vec_size(type);
    vec a[SUM_VECS];
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        UNROLL
        for (uint32_t i = 0; i < wide; i++)
            a[r * wide + i] = first ? vec_zero() : vec_load_f32(o + (size_t)r * o_stride + VEC_LANES * i);
    }
    UNROLL
    for (uint32_t j = 0; j < STEP_KEYS; j++) {
        vec x[SUM_VECS];
        UNROLL
        for (uint32_t i = 0; i < wide; i++)
            x[i] = vec_load_at(type, v->now[j], at + i * VEC_LANES);
        prefetch_bytes(v->next[j] + byte, bytes, v->far);
        UNROLL
        for (uint32_t r = 0; r < rows; r++) {
            const vec w = vec_broadcast(p + r * SCORE_STRIDE + j);
            UNROLL
            for (uint32_t i = 0; i < wide; i++)
                a[r * wide + i] = vec_fma(w, x[i], a[r * wide + i]);
        }
    }
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        UNROLL
        for (uint32_t i = 0; i < wide; i++)
            vec_store(o + (size_t)r * o_stride + VEC_LANES * i, a[r * wide + i]);
    }
}

/* out[row] += sum of p[row][key] * value[key] over a step, or = if `first`. */
INLINE void sums_step(enum vec_type type, uint32_t rows, const struct step *v, uint32_t dim, const float *p,
                      int first, float *o, uint32_t o_stride)
{
    const uint32_t wide = rows == 1 ? 4 : SUM_VECS / STEP_ROWS;
    uint32_t at = 0;
    for (; at + VEC_LANES * wide <= dim; at += VEC_LANES * wide)
        sums_block(type, rows, wide, v, at, p, first, o + at, o_stride);
    for (; at < dim; at += VEC_LANES)
        sums_block(type, rows, 1, v, vec_offset(at / VEC_LANES, dim), p, first, o + at, o_stride);
}

/* As many codes of 8 bits as a vector of the level holds. */
typedef uint8_t codes __attribute__((vector_size(VEC_LANES * sizeof(float))));

/* Whether n codes of e4m3 at each address of a step, a vector of them at least, have a NaN: 0x7f or 0xff. */
INLINE bool step_has_nan(const struct step *step, uint32_t n)
{
    uint64_t words[sizeof(codes) / sizeof(uint64_t)], any = 0;
    codes sums = {0}, x;
    for (uint32_t at = 0; at < n; at += sizeof x) {
        const uint32_t from = at + sizeof x <= n ? at : n - (uint32_t)sizeof x;
        UNROLL
        for (uint32_t j = 0; j < STEP_KEYS; j++) {
            memcpy(&x, step->now[j] + from, sizeof x);
            sums |= (x & 0x7f) + 1; /* has its highest bit for a NaN alone */
        }
    }
    memcpy(words, &sums, sizeof words);
    for (uint32_t i = 0; i < sizeof words / sizeof *words; i++)
        any |= words[i];
    return (any & UINT64_C(0x8080808080808080)) != 0;
}

/* How a step of vectors of n elements is converted: without a NaN in it e4m3 takes fewer instructions. */
INLINE uint32_t step_type(enum vec_type type, const struct step *step, uint32_t n)
{
    return type != VEC_E4M3 || n < sizeof(codes) || step_has_nan(step, n) ? type : VEC_E4M3_FINITE;
}

typedef void (*scores_fn)(const struct step *k, uint32_t dim, const float *q, uint32_t q_stride, float *s);
typedef void (*sums_fn)(const struct step *v, uint32_t dim, const float *p, int first, float *o,
                        uint32_t o_stride);

#define STEPS_OF(name, type, rows)                                                                           \
    static void scores_##name##_##rows(const struct step *k, uint32_t dim, const float *q,                   \
                                       uint32_t q_stride, float *s)                                          \
    {                                                                                                        \
        scores_step(type, rows, k, dim, q, q_stride, s);                                                     \
    }                                                                                                        \
    static void sums_##name##_##rows(const struct step *v, uint32_t dim, const float *p, int first,          \
                                     float *o, uint32_t o_stride)                                            \
    {                                                                                                        \
        sums_step(type, rows, v, dim, p, first, o, o_stride);                                                \
    }
#define STEPS_OF_TYPE(name, type)                                                                            \
    STEPS_OF(name, type, 1) STEPS_OF(name, type, 2) STEPS_OF(name, type, 3) STEPS_OF(name, type, 4)

#define STEPS_BY_ROWS(kind, name)                                                                            \
    {                                                                                                        \
        kind##_##name##_1, kind##_##name##_2, kind##_##name##_3, kind##_##name##_4                           \
    }

#ifdef VEC_INT8_ALONE
STEPS_OF_TYPE(int8, VEC_INT8)

static const scores_fn scores_table[STEP_TYPES][STEP_ROWS] = {[VEC_INT8] = STEPS_BY_ROWS(scores, int8)};
static const sums_fn sums_table[STEP_TYPES][STEP_ROWS] = {[VEC_INT8] = STEPS_BY_ROWS(sums, int8)};
#else
STEPS_OF_TYPE(f32, VEC_F32)
STEPS_OF_TYPE(f16, VEC_F16)
STEPS_OF_TYPE(bf16, VEC_BF16)
STEPS_OF_TYPE(int8, VEC_INT8)
STEPS_OF_TYPE(e4m3, VEC_E4M3)
STEPS_OF_TYPE(e5m2, VEC_E5M2)
STEPS_OF_TYPE(e4m3fnuz, VEC_E4M3FNUZ)
STEPS_OF_TYPE(e5m2fnuz, VEC_E5M2FNUZ)
STEPS_OF_TYPE(q8_0, VEC_Q8_0)
STEPS_OF_TYPE(q4_0, VEC_Q4_0)
STEPS_OF_TYPE(q4_1, VEC_Q4_1)
STEPS_OF_TYPE(q5_0, VEC_Q5_0)
STEPS_OF_TYPE(q5_1, VEC_Q5_1)
STEPS_OF_TYPE(iq4_nl, VEC_IQ4_NL)
STEPS_OF_TYPE(e4m3finite, VEC_E4M3_FINITE)

static const scores_fn scores_table[STEP_TYPES][STEP_ROWS] = {
    STEPS_BY_ROWS(scores, f32),      STEPS_BY_ROWS(scores, f16),      STEPS_BY_ROWS(scores, bf16),
    STEPS_BY_ROWS(scores, int8),     STEPS_BY_ROWS(scores, e4m3),     STEPS_BY_ROWS(scores, e5m2),
    STEPS_BY_ROWS(scores, e4m3fnuz), STEPS_BY_ROWS(scores, e5m2fnuz), STEPS_BY_ROWS(scores, q8_0),
    STEPS_BY_ROWS(scores, q4_0),     STEPS_BY_ROWS(scores, q4_1),     STEPS_BY_ROWS(scores, q5_0),
    STEPS_BY_ROWS(scores, q5_1),     STEPS_BY_ROWS(scores, iq4_nl),   STEPS_BY_ROWS(scores, e4m3finite)};
static const sums_fn sums_table[STEP_TYPES][STEP_ROWS] = {
    STEPS_BY_ROWS(sums, f32),      STEPS_BY_ROWS(sums, f16),      STEPS_BY_ROWS(sums, bf16),
    STEPS_BY_ROWS(sums, int8),     STEPS_BY_ROWS(sums, e4m3),     STEPS_BY_ROWS(sums, e5m2),
    STEPS_BY_ROWS(sums, e4m3fnuz), STEPS_BY_ROWS(sums, e5m2fnuz), STEPS_BY_ROWS(sums, q8_0),
    STEPS_BY_ROWS(sums, q4_0),     STEPS_BY_ROWS(sums, q4_1),     STEPS_BY_ROWS(sums, q5_0),
    STEPS_BY_ROWS(sums, q5_1),     STEPS_BY_ROWS(sums, iq4_nl),   STEPS_BY_ROWS(sums, e4m3finite)};
#endif

#endif
