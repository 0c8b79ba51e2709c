/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Products of prefill in bf16, where queries, keys, values and results are bf16: pairs of numbers that are
 * multiplied and added to an f32 by one instruction. Queries, keys and values are what they are, weights are
 * rounded, and row sums are of rounded weights.
 */
#ifndef ATTN_CPU_KERNELS_PREFILL_BF16_H
#define ATTN_CPU_KERNELS_PREFILL_BF16_H

#include "row-state.h"

#define SLOT_NUMBERS 2u

INLINE vec product_add(vec x, vec y, vec sum)
{
    return bf16_product(x, y, sum);
}

#include "prefill-vectors.h"

static void queries_into_panel(const struct prefill_block *w, const float *rows, float *panel)
{
    vec a[VEC_LANES];
    UNROLL
    for (uint32_t i = 0; i < VEC_LANES; i++)
        a[i] = vec_load_f32(rows + (size_t)i * w->products.row_stride);
    vec_transpose(a);
    UNROLL
    for (uint32_t i = 0; i < VEC_LANES; i += 2)
        bf16_store_pairs((uint16_t *)(void *)(panel + i / 2 * PANEL_ROWS), bf16_pairs(a[i], a[i + 1]));
}

/* The vector of key i of a tile, with zeros up to `count` numbers; all zeros if it does not exist. */
static void copy_vector(const struct prefill_block *w, const struct prefill_tile *tile,
                        const struct cpu_keys *keys, const struct stage_side *side, uint32_t i,
                        uint32_t count, uint16_t *to)
{
    float factor;
    const bool exists = i >= tile->from && i < tile->to && (keys->present >> i & 1) != 0;
    const uint32_t n = exists ? side->dim : 0;
    if (exists)
        memcpy(to, side_vector(w, side, keys, i, &factor), n * sizeof *to);
    memset(to + n, 0, (count - n) * sizeof *to);
}

static void stage_keys(const struct prefill_block *w, const struct prefill_tile *tile,
                       const struct cpu_keys *keys)
{
    const struct stage_side side = side_of_keys(w, keys);
    for (uint32_t i = tile->from; i < tile->to; i++) {
        float *row = w->products.k + (size_t)i * w->products.k_stride;
        copy_vector(w, tile, keys, &side, i, 2 * slots_of(w->dim), (uint16_t *)(void *)row);
    }
}

/* Pairs of values of two keys. True if some is not finite. */
static bool stage_values(const struct prefill_block *w, const struct prefill_tile *tile,
                         const struct cpu_keys *keys)
{
    const struct stage_side side = side_of_values(w, keys);
    const uint32_t count = vec_padded(w->dim_vo);
    uint16_t *even = (uint16_t *)(void *)w->products.rows, *odd = even + count;
    bool not_finite = false;
    for (uint32_t i = tile->from - tile->from % 2; i < tile->to; i += 2) {
        float *row = w->products.v + (size_t)(i / 2) * w->products.o_stride;
        copy_vector(w, tile, keys, &side, i, count, even);
        copy_vector(w, tile, keys, &side, i + 1, count, odd);
        for (uint32_t d = 0; d < count; d += VEC_LANES) {
            const vec_int pairs = bf16_interleave(even + d, odd + d);
            not_finite = not_finite || bf16_any_nonfinite(pairs);
            bf16_store_pairs((uint16_t *)(void *)(row + d), pairs);
        }
    }
    return not_finite;
}

static struct staged products_stage(const struct prefill_block *w, const struct prefill_tile *tile,
                                    const struct cpu_keys *keys, uint32_t slot)
{
    (void)slot;
    stage_keys(w, tile, keys);
    return (struct staged){stage_values(w, tile, keys)};
}

/* Weights of the tile for a vector of query rows from r on: those of two keys in place of the first one's
 * scores, which are multiplied with `unit`. Returns their sums. */
static vec weights_of(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile, vec unit,
                      vec base)
{
    const vec none = vec_set(-INFINITY), less = vec_sub(vec_set(-0.5f), base); /* see bf16_exp2 */
    vec sum = vec_zero();
    for (uint32_t i = tile->from - tile->from % 2; i < tile->to; i += 2) {
        float *s = w->score + (size_t)i * KEY_STRIDE + r;
        vec even = none, odd = none;
        if (i >= tile->from)
            even = vec_fma(vec_load_f32(s), unit, less);
        if (i + 1 < tile->to)
            odd = vec_fma(vec_load_f32(s + KEY_STRIDE), unit, less);
        const vec_int pairs = bf16_join(bf16_nan(even, bf16_exp2(even)), bf16_nan(odd, bf16_exp2(odd)));
        bf16_store_pairs((uint16_t *)(void *)s, pairs);
        sum = bf16_add_pairs(sum, pairs);
    }
    return sum;
}

static void columns_softmax(struct prefill_block *w, uint32_t r, const struct prefill_tile *tile)
{
    const vec unit = columns_rules(w, r, tile, vec_set(query_factor(w->run)));
    const vec none = vec_set(-INFINITY), before = vec_load_f32(w->m + r);
    const vec m = vec_max(vec_mul(columns_largest(w, r, tile), unit), before);
    const vec base = vec_select(vec_equal(m, none), vec_zero(), m);
    const vec sum = weights_of(w, r, tile, unit, base);
    const vec factor = vec_exp2(vec_sub(before, base));
    vec_store(w->correction + r, factor);
    vec_store(w->l + r, vec_add(vec_mul(vec_load_f32(w->l + r), factor), sum));
    vec_store(w->m + r, m);
}

static void sums_by_row(const struct prefill_block *w, const struct prefill_tile *tile)
{
    const uint32_t stride = w->products.o_stride;
    for (uint32_t r = 0; r < w->rows; r++) {
        const vec factor = vec_set(w->correction[r]);
        for (uint32_t d = 0; d < w->dim_vo; d += VEC_LANES) {
            float *o = w->products.span + (size_t)r * stride + d;
            vec sum = vec_zero();
            for (uint32_t i = tile->from; i < tile->to; i++) {
                const vec weight = vec_broadcast(w->score + (size_t)(i - i % 2) * KEY_STRIDE + r);
                const vec value = vec_load_f32(w->products.v + (size_t)(i / 2) * stride + d);
                if (prefill_sees(w, tile, r, i))
                    sum = vec_fma(bf16_of_pairs(weight, i % 2), bf16_of_pairs(value, i % 2), sum);
            }
            vec_store(o, w->span_empty ? sum : vec_fma(vec_load_f32(o), factor, sum));
        }
    }
}

#endif
