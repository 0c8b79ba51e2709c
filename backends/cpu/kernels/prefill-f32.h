/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Products of prefill in f32: keys and values of a tile are staged as dense f32. */
#ifndef ATTN_CPU_KERNELS_PREFILL_F32_H
#define ATTN_CPU_KERNELS_PREFILL_F32_H

#include "row-state.h"

#define SLOT_NUMBERS 1u

INLINE vec product_add(vec x, vec y, vec sum)
{
    return vec_fma(x, y, sum);
}

#include "prefill-vectors.h"

static void queries_into_panel(const struct prefill_block *w, const float *rows, float *panel)
{
    panel_transpose(rows, w->products.row_stride, vec_set(query_factor(w->run)), panel);
}

/* Stages keys or values of a tile, zeros for keys that do not exist. True if some element is not finite. */
static bool stage(const struct prefill_block *w, const struct prefill_tile *tile, const struct cpu_keys *keys,
                  const struct stage_side *side, float *to, uint32_t stride)
{
    const convert_fn convert = convert_table[side->type];
    vec not_finite = vec_zero();
    for (uint32_t i = tile->from; i < tile->to; i++) {
        float *row = to + (size_t)i * stride, factor;
        if ((keys->present >> i & 1) == 0) {
            memset(row, 0, side->dim * sizeof *row);
            continue;
        }
        const char *vector = side_vector(w, side, keys, i, &factor);
        not_finite = vec_add(not_finite, convert(vector, side->dim, vec_set(factor), row));
    }
    return vec_any_nan(not_finite);
}

static struct staged products_stage(const struct prefill_block *w, const struct prefill_tile *tile,
                                    const struct cpu_keys *keys, uint32_t slot)
{
    (void)slot;
    const struct stage_side k = side_of_keys(w, keys), v = side_of_values(w, keys);
    stage(w, tile, keys, &k, w->products.k, w->products.k_stride);
    return (struct staged){stage(w, tile, keys, &v, w->products.v, w->products.o_stride)};
}

/* Weights of the tile for a vector of query rows from r on, in place of the scores. Returns their sums. */
static vec weights_of(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile, vec base)
{
    vec sum = vec_zero();
    for (uint32_t i = tile->from; i < tile->to; i++) {
        float *s = w->score + (size_t)i * KEY_STRIDE + r;
        const vec p = vec_exp2(vec_sub(vec_load_f32(s), base));
        vec_store(s, p);
        sum = vec_add(sum, p);
    }
    return sum;
}

static void columns_softmax(struct prefill_block *w, uint32_t r, const struct prefill_tile *tile)
{
    columns_rules(w, r, tile, vec_set(1)); /* queries were multiplied with the factor of scores */
    const vec none = vec_set(-INFINITY), before = vec_load_f32(w->m + r);
    const vec m = vec_max(columns_largest(w, r, tile), before);
    const vec base = vec_select(vec_equal(m, none), vec_zero(), m);
    const vec sum = weights_of(w, r, tile, base);
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
                if (prefill_sees(w, tile, r, i))
                    sum = vec_fma(vec_broadcast(w->score + (size_t)i * KEY_STRIDE + r),
                                  vec_load_f32(w->products.v + (size_t)i * stride + d), sum);
            }
            vec_store(o, w->span_empty ? sum : vec_fma(vec_load_f32(o), factor, sum));
        }
    }
}

#endif
