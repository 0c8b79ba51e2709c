/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the vector kernels share: scratch, queries as f32, log-sum-exp of a row. */
#ifndef ATTN_CPU_KERNELS_ROW_STATE_H
#define ATTN_CPU_KERNELS_ROW_STATE_H

#include "kernels.h"
#include "simd/math.h"

#define LOG2E 1.44269504088896340736
#define LN2   0.69314718055994530942

/* Allocates `count` floats of the scratch, from a cache line on; without scratch they are only counted. */
INLINE float *take_floats(float *scratch, size_t *used, size_t count)
{
    const size_t at = *used = (*used + 15) / 16 * 16;
    *used += count;
    return scratch != NULL ? scratch + at : NULL;
}

/* The same for `count` objects of `size` bytes, which may hold pointers. */
INLINE void *take_objects(float *scratch, size_t *used, size_t count, size_t size)
{
    return take_floats(scratch, used, (count * size + sizeof(float) - 1) / sizeof(float));
}

/* Bits [from, to) of a word that has one for each key of a tile. */
INLINE uint64_t bits_between(uint32_t from, uint32_t to)
{
    if (from >= to)
        return 0;
    return (to >= CPU_TILE_KEYS ? ~UINT64_C(0) : (UINT64_C(1) << to) - 1) & ~((UINT64_C(1) << from) - 1);
}

/* Bits of the keys [lo, hi) in the tile at `base`. */
INLINE uint64_t bits_of_keys(uint32_t base, uint32_t lo, uint32_t hi)
{
    const uint32_t from = lo > base ? lo - base : 0, to = hi > base ? hi - base : 0;
    return from < CPU_TILE_KEYS ? bits_between(from, to) : 0;
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

/* Rows of each type to f32: vec_convert as a function of its own. */
typedef vec (*convert_fn)(const char *src, uint32_t n, vec factor, float *dst);

#define CONVERT_OF(name, type)                                                                               \
    static vec convert_##name(const char *src, uint32_t n, vec factor, float *dst)                           \
    {                                                                                                        \
        return vec_convert(type, src, n, factor, dst);                                                       \
    }
#ifdef VEC_INT8_ALONE
CONVERT_OF(int8, VEC_INT8)

static const convert_fn convert_table[VEC_TYPES] = {[VEC_INT8] = convert_int8};
#else
CONVERT_OF(f32, VEC_F32)
CONVERT_OF(f16, VEC_F16)
CONVERT_OF(bf16, VEC_BF16)
CONVERT_OF(int8, VEC_INT8)
CONVERT_OF(e4m3, VEC_E4M3)
CONVERT_OF(e5m2, VEC_E5M2)
CONVERT_OF(e4m3fnuz, VEC_E4M3FNUZ)
CONVERT_OF(e5m2fnuz, VEC_E5M2FNUZ)
CONVERT_OF(q8_0, VEC_Q8_0)
CONVERT_OF(q4_0, VEC_Q4_0)
CONVERT_OF(q4_1, VEC_Q4_1)
CONVERT_OF(q5_0, VEC_Q5_0)
CONVERT_OF(q5_1, VEC_Q5_1)
CONVERT_OF(iq4_nl, VEC_IQ4_NL)

static const convert_fn convert_table[VEC_TYPES] = {
    convert_f32,      convert_f16,  convert_bf16, convert_int8, convert_e4m3, convert_e5m2, convert_e4m3fnuz,
    convert_e5m2fnuz, convert_q8_0, convert_q4_0, convert_q4_1, convert_q5_0, convert_q5_1, convert_iq4_nl};
#endif

/* All columns of the work item's query token t and query head h as f32, times `factor`. */
static void query_convert(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t,
                          uint32_t h, float factor, float *to)
{
    const enum vec_type type = vec_type_of(run->problem->q_dtype);
    const uint32_t dim = run->problem->head_dim;
    const uint32_t first = run->q_rope != NULL ? run->problem->head_dim_vo : dim;
    const int64_t row = (int64_t)work->first_token + t;
    const float scale = cpu_scale_at(&run->q_scale, work->seq, row, h / run->q_scale_group) * vec_gain(type);
    const vec all = vec_set(factor * scale);
    convert_table[type](run->q + row * run->q_token + (int64_t)h * run->q_head, first, all, to);
    if (first < dim)
        convert_table[type](run->q_rope + row * run->q_rope_token + (int64_t)h * run->q_rope_head,
                            dim - first, all, to + first);
}

/* cpu_store in vectors. */
static void row_store(uint32_t dtype, void *to, const float *from, uint32_t count)
{
    const bool half = dtype == ATTN_F16 || dtype == ATTN_BF16;
    const uint32_t n = half ? count - count % VEC_LANES : 0;
    uint16_t *halves = to;
    for (uint32_t i = 0; dtype == ATTN_F16 && i < n; i += VEC_LANES)
        vec_store_half(VEC_F16, halves + i, vec_load_f32(from + i));
    for (uint32_t i = 0; dtype == ATTN_BF16 && i < n; i += VEC_LANES)
        vec_store_half(VEC_BF16, halves + i, vec_load_f32(from + i));
    if (n < count)
        cpu_store(dtype, halves + n, from + n, count - n);
}

/*
 * Natural log-sum-exp from a row max in units of log2, the sum of the weights, and what was left out of all
 * scores; -inf if the first two say "none". Where nobody asks for more than that, 0 in place of a finite one.
 */
INLINE float row_lse(const struct cpu_run *run, const struct attn_work_item *work, float row_max, float sum,
                     double base)
{
    if (run->lse == NULL && run->sinks == NULL && work->splits <= 1)
        return sum == 0 ? -INFINITY : 0; /* what NaN makes of it is not -inf */
    return (float)((double)row_max * LN2 + log((double)sum) + base);
}

#endif
