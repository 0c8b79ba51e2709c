/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Products of prefill by tile instructions, which multiply bf16 and add in f32, over the operands of
 * prefill-terms.h.
 *
 * Scores are K Q^T, keys in the rows and query rows in the columns; weighted sums are V^T P^T, dimensions in
 * the rows and query rows in the columns. So scores come as prefill wants them, two scores below one another
 * are a pair of weights as the next product wants it, and only queries and values are transposed, when they
 * are staged.
 */
#ifndef ATTN_CPU_KERNELS_PREFILL_TILES_H
#define ATTN_CPU_KERNELS_PREFILL_TILES_H

#include "prefill-terms.h"

/* Dimensions that are added up one after the other; of more, the halves, which bounds the error of scores. */
#define ONE_SUM 128u
/* A span is multiplied with a smaller factor only when a score is larger by this, in units of log2. */
#define BASE_STEP 8.0f

/* Adds products of dimensions [d, end) and of one pair of terms to the scores of 32 keys and the block's
 * rows. */
INLINE void add_scores(const uint16_t *k, uint32_t k_stride, const uint16_t *q, uint32_t depth, uint32_t d,
                       uint32_t end)
{
    const size_t stride = sizeof *k * k_stride;
    const uint16_t *q_next = q + (size_t)depth * TILE_ROWS;
    for (; d < end; d += TILE_DEPTH) {
        const size_t at = (size_t)d * TILE_ROWS;
        tile_load(4, k + d, stride);
        tile_load(6, q + at, 64);
        tile_product(0, 4, 6);
        tile_load(7, q_next + at, 64);
        tile_product(1, 4, 7);
        tile_load(5, k + d + (size_t)TILE_ROWS * k_stride, stride);
        tile_product(2, 5, 6);
        tile_product(3, 5, 7);
    }
}

/* Scores of 32 keys over dimensions [d, end) to s; products of terms that are small first. */
static void scores_of(const struct products *own, size_t key, uint32_t d, uint32_t end, float *s)
{
    const size_t stride = sizeof *s * KEY_STRIDE;
    float *next = s + TILE_ROWS * KEY_STRIDE;
    tile_clear(0);
    tile_clear(1);
    tile_clear(2);
    tile_clear(3);
    for (uint32_t both = TERMS; both-- > 0;) {
        for (uint32_t i = 0; i <= both && i < own->k_terms; i++)
            if (both - i < own->q_terms)
                add_scores(own->k[i] + key, own->k_stride, own->q[both - i], own->depth, d, end);
    }
    tile_store(0, s, stride);
    tile_store(1, s + TILE_ROWS, stride);
    tile_store(2, next, stride);
    tile_store(3, next + TILE_ROWS, stride);
}

/* Adds the scores over the second half of many dimensions to those over the first. */
static void join_scores(const struct prefill_block *w, uint32_t key, uint32_t end)
{
    for (; key < end; key++) {
        for (uint32_t r = 0; r < BLOCK_ROWS; r += VEC_LANES) {
            const size_t at = (size_t)key * KEY_STRIDE + r;
            const vec half = vec_load_f32(w->products.half + at);
            vec_store(w->score + at, vec_add(vec_load_f32(w->score + at), half));
        }
    }
}

/* Scores of keys or rows with numbers that have no terms. */
static void odd_scores(const struct prefill_block *w, const struct prefill_tile *tile,
                       const struct staged *staged)
{
    const struct products *own = &w->products;
    const struct stage_side side = side_of_keys(w, staged->keys);
    float *k = own->rows, *q = own->rows + own->row_stride;
    for (uint32_t i = tile->from; i < tile->to; i++) {
        const bool odd_key = (staged->odd_keys >> i & 1) != 0;
        if ((tile->present >> i & 1) == 0 || (!odd_key && own->odd_rows == 0))
            continue;
        fetch_row(w, &side, staged->keys, i, k);
        for (uint32_t r = 0; r < w->rows; r++) {
            if (!odd_key && (own->odd_rows >> r & 1) == 0)
                continue;
            float sum = 0;
            prefill_query(w, r, own->factor, q);
            for (uint32_t d = 0; d < w->dim; d++)
                sum += q[d] * k[d];
            w->score[(size_t)i * KEY_STRIDE + r] = sum;
        }
    }
}

static void products_scores(struct prefill_block *w, const struct prefill_tile *tile,
                            const struct staged *staged)
{
    const struct products *own = &w->products;
    const bool halves = own->depth > ONE_SUM;
    const uint32_t first = halves ? own->depth / (2 * TILE_DEPTH) * TILE_DEPTH : own->depth;
    tile_fence();
    for (uint32_t key = tile->from / TILE_DEPTH * TILE_DEPTH; key < tile->to; key += TILE_DEPTH) {
        const size_t at = staged->tile * keys_of_tile(own) + (size_t)key * own->k_stride;
        scores_of(own, at, 0, first, w->score + (size_t)key * KEY_STRIDE);
        if (halves)
            scores_of(own, at, first, own->depth, own->half + (size_t)key * KEY_STRIDE);
    }
    tile_fence();
    if (halves)
        join_scores(w, tile->from, tile->to);
    if ((staged->odd_keys | w->products.odd_rows) != 0)
        odd_scores(w, tile, staged);
}

/* What the scores of products_scores have to be multiplied with. */
INLINE float products_unit(const struct prefill_block *w)
{
    return w->products.unit;
}

/* What weights are relative to from now on: before it was `before`, and no score is larger than `largest`. */
INLINE vec products_base(vec before, vec largest)
{
    return vec_select(vec_less(vec_add(before, vec_set(BASE_STEP)), largest), largest, before);
}

/*
 * Where the weights of keys i and i + 1, a pair of bf16 for each row, are from row r on. First and second
 * terms take the place of the scores.
 */
INLINE uint16_t *weights_at(const struct prefill_block *w, uint32_t term, uint32_t i, uint32_t r)
{
    if (term == 2)
        return w->products.third + (size_t)i * BLOCK_ROWS + 2 * (size_t)r;
    return (uint16_t *)(void *)(w->score + (size_t)(i + term) * KEY_STRIDE + r);
}

/*
 * Weights of the tile's keys [first, end) for a vector of query rows from r on, as `terms` bf16; 0 for keys
 * that no row sees, of which there are none if `whole`. Returns their sums.
 */
INLINE vec weights_of(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile,
                      uint32_t first, uint32_t end, vec unit, vec base, uint32_t terms, bool whole)
{
    const float *s = w->score + r;
    const vec less = vec_sub(vec_zero(), base);
    vec sum = vec_zero();
    for (uint32_t i = first; i < end; i += 2) {
        vec even = vec_exp2(vec_fma(vec_load_f32(s + (size_t)i * KEY_STRIDE), unit, less));
        vec odd = vec_exp2(vec_fma(vec_load_f32(s + (size_t)(i + 1) * KEY_STRIDE), unit, less));
        if (!whole && (i < tile->from || i >= tile->to))
            even = vec_zero();
        if (!whole && (i + 1 < tile->from || i + 1 >= tile->to))
            odd = vec_zero();
        sum = vec_add(sum, vec_add(even, odd));
        UNROLL
        for (uint32_t term = 0; term + 1 < terms; term++) { /* the last one rounds what is left */
            bf16_store_pairs(weights_at(w, term, i, r), bf16_cut_pairs(even, odd));
            even = vec_sub(even, bf16_cut(even));
            odd = vec_sub(odd, bf16_cut(odd));
        }
        bf16_store_pairs(weights_at(w, terms - 1, i, r), bf16_pairs(even, odd));
    }
    return sum;
}

/* Weights of the tile for a vector of query rows from r on. Returns their sums. */
static vec products_weights(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile,
                            vec unit, vec base)
{
    const uint32_t first = tile->from / TILE_DEPTH * TILE_DEPTH;
    const uint32_t end = (tile->to + TILE_DEPTH - 1) / TILE_DEPTH * TILE_DEPTH;
    if (w->products.p_terms == 2 && first == tile->from && end == tile->to)
        return weights_of(w, r, tile, first, end, unit, base, 2, true);
    if (w->products.p_terms == 2)
        return weights_of(w, r, tile, first, end, unit, base, 2, false);
    return weights_of(w, r, tile, first, end, unit, base, 3, false);
}

/* Multiplies the span of 16 rows with what their weights are now too large by. */
static void correct_span(const struct prefill_block *w, uint32_t r)
{
    const vec factor = vec_load_f32(w->correction + r), one = vec_set(1);
    float *span = w->products.span + (size_t)r * w->products.dims;
    if (vec_reduce_max(vec_select(vec_equal(factor, one), vec_zero(), one)) == 0)
        return;
    for (uint32_t d = 0; d < w->products.dims; d++, span += TILE_ROWS)
        vec_store(span, vec_mul(vec_load_f32(span), factor));
}

/* Adds weighted values of 32 keys to the sums of 32 dimensions and the block's rows: of one term of values,
 * the terms of weights from `least` down to 0, those that are small first. */
INLINE void add_sums(const struct prefill_block *w, const uint16_t *v, uint32_t key, uint32_t least)
{
    const size_t stride = sizeof *v * VALUES_STRIDE;
    tile_load(4, v, stride);
    tile_load(5, v + (size_t)TILE_ROWS * VALUES_STRIDE, stride);
    for (uint32_t term = least + 1; term-- > 0;) {
        const uint16_t *weights = weights_at(w, term, key, 0);
        const size_t pairs = sizeof(float) * (term == 2 ? BLOCK_ROWS : 2 * KEY_STRIDE);
        tile_load(6, weights, pairs);
        tile_product(0, 4, 6);
        tile_product(2, 5, 6);
        tile_load(7, weights + 2 * TILE_ROWS, pairs);
        tile_product(1, 4, 7);
        tile_product(3, 5, 7);
    }
}

/* Adds the tile's weighted values to 32 dimensions, from d on, of the span. */
static void add_to_span(const struct prefill_block *w, const struct prefill_tile *tile, uint32_t slot,
                        uint32_t d)
{
    const struct products *own = &w->products;
    const size_t values = slot * values_of_tile(own) + (size_t)d * VALUES_STRIDE;
    float *span = own->span + (size_t)d * TILE_ROWS, *next = span + (size_t)TILE_ROWS * own->dims;
    if (w->span_empty) {
        tile_clear(0);
        tile_clear(1);
        tile_clear(2);
        tile_clear(3);
    } else {
        tile_load(0, span, 64);
        tile_load(1, next, 64);
        tile_load(2, span + TILE_ROWS * TILE_ROWS, 64);
        tile_load(3, next + TILE_ROWS * TILE_ROWS, 64);
    }
    for (uint32_t key = tile->from / TILE_DEPTH * TILE_DEPTH; key < tile->to; key += TILE_DEPTH)
        for (uint32_t i = own->v_terms; i-- > 0;)
            add_sums(w, own->v[i] + values + key, key, own->p_terms - 1 - i);
    tile_store(0, span, 64);
    tile_store(1, next, 64);
    tile_store(2, span + TILE_ROWS * TILE_ROWS, 64);
    tile_store(3, next + TILE_ROWS * TILE_ROWS, 64);
}

/* The weight of key i and row r. */
static float weight_at(const struct prefill_block *w, uint32_t i, uint32_t r)
{
    float weight = 0;
    for (uint32_t term = 0; term < w->products.p_terms; term++) {
        uint16_t code;
        float value;
        memcpy(&code, weights_at(w, term, i & ~UINT32_C(1), r) + i % 2, sizeof code);
        const uint32_t bits = (uint32_t)code << 16;
        memcpy(&value, &bits, sizeof value);
        weight += value;
    }
    return weight;
}

/* Adds values that have no terms to the span of the rows that see them. */
static void odd_sums(const struct prefill_block *w, const struct prefill_tile *tile,
                     const struct staged *staged)
{
    const struct products *own = &w->products;
    const struct stage_side side = side_of_values(w, staged->keys);
    for (uint32_t i = tile->from; i < tile->to; i++) {
        if ((staged->odd_values >> i & 1) == 0)
            continue;
        fetch_row(w, &side, staged->keys, i, own->rows);
        for (uint32_t r = 0; r < w->rows; r++) {
            if (!prefill_sees(w, tile, r, i))
                continue;
            const float weight = weight_at(w, i, r);
            float *span = own->span + (size_t)r / TILE_ROWS * TILE_ROWS * own->dims + r % TILE_ROWS;
            for (uint32_t d = 0; d < w->dim_vo; d++, span += TILE_ROWS)
                if (!(fabsf(own->rows[d]) < 0x1p127f))
                    *span += weight * own->rows[d];
        }
    }
}

static void products_sums(struct prefill_block *w, const struct prefill_tile *tile,
                          const struct staged *staged)
{
    for (uint32_t r = 0; r < w->padded && !w->span_empty; r += TILE_ROWS)
        correct_span(w, r);
    tile_fence();
    for (uint32_t d = 0; d < w->products.dims; d += 2 * TILE_ROWS)
        add_to_span(w, tile, staged->tile, d);
    tile_fence();
    if (staged->odd_values != 0)
        odd_sums(w, tile, staged);
}

/* Adds the spans to totals that have something in them. */
static void products_close_span(struct prefill_block *w)
{
    const uint32_t dims = w->products.dims;
    for (uint32_t r = 0; r < w->padded; r += TILE_ROWS) {
        const vec m = vec_load_f32(w->m + r), one = vec_set(1);
        const vec factor = vec_select(vec_equal(m, vec_set(-INFINITY)), one,
                                      vec_exp2(vec_sub(vec_load_f32(w->m_total + r), m)));
        float *total = w->products.total + (size_t)r * dims;
        const float *span = w->products.span + (size_t)r * dims;
        for (uint32_t at = 0; at < dims * TILE_ROWS; at += TILE_ROWS)
            vec_store(total + at, vec_fma(vec_load_f32(total + at), factor, vec_load_f32(span + at)));
        vec_store(w->l_total + r, vec_fma(vec_load_f32(w->l_total + r), factor, vec_load_f32(w->l + r)));
    }
}

/* The total of row r times `factor`, and 0 for -0; rows are asked for in their order. */
static const float *products_row(const struct prefill_block *w, uint32_t r, float factor)
{
    const struct products *own = &w->products;
    const float *total = own->total + (size_t)r * own->dims;
    for (uint32_t d = 0; r % TILE_ROWS == 0 && d < own->dims; d += VEC_LANES) {
        vec a[VEC_LANES];
        UNROLL
        for (uint32_t i = 0; i < VEC_LANES; i++)
            a[i] = vec_load_f32(total + (size_t)(d + i) * TILE_ROWS);
        vec_transpose(a);
        UNROLL
        for (uint32_t i = 0; i < VEC_LANES; i++)
            vec_store(own->rows + (size_t)i * own->row_stride + d, a[i]);
    }
    float *row = own->rows + (size_t)(r % TILE_ROWS) * own->row_stride;
    for (uint32_t d = 0; d < own->dims; d += VEC_LANES)
        vec_store(row + d, vec_add(vec_mul(vec_load_f32(row + d), vec_set(factor)), vec_zero()));
    return row;
}

#endif
