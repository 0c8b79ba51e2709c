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

/*
 * Two tiles of sums side by side, over the same 16 rows of a: tiles 0 and 1, or 2 and 3. Chains of products
 * take them in turns: the sums of one are stored, and those of the next loaded, while the other pair is
 * multiplied.
 */
INLINE void pair_clear(bool second)
{
    if (second) {
        tile_clear(2);
        tile_clear(3);
    } else {
        tile_clear(0);
        tile_clear(1);
    }
}

INLINE void pair_load(bool second, const float *left, const float *right, size_t stride)
{
    if (second) {
        tile_load(2, left, stride);
        tile_load(3, right, stride);
    } else {
        tile_load(0, left, stride);
        tile_load(1, right, stride);
    }
}

INLINE void pair_store(bool second, float *left, float *right, size_t stride)
{
    if (second) {
        tile_store(2, left, stride);
        tile_store(3, right, stride);
    } else {
        tile_store(0, left, stride);
        tile_store(1, right, stride);
    }
}

/* Adds the products of tile 4 with `left`, tile 6, and `right`, tile 7. */
INLINE void pair_left(bool second, const uint16_t *left)
{
    tile_load(6, left, 64);
    if (second)
        tile_product(2, 4, 6);
    else
        tile_product(0, 4, 6);
}

INLINE void pair_right(bool second, const uint16_t *right)
{
    tile_load(7, right, 64);
    if (second)
        tile_product(3, 4, 7);
    else
        tile_product(1, 4, 7);
}

/* Scores of 16 keys over dimensions [d, end) to s; products of terms that are small first. */
INLINE void scores_of(const struct products *own, size_t key, uint32_t d, uint32_t end, bool second, float *s)
{
    const size_t next = (size_t)own->depth * TILE_ROWS;
    pair_clear(second);
    for (uint32_t both = TERMS; both-- > 0;) {
        for (uint32_t i = 0; i <= both && i < own->k_terms; i++) {
            if (both - i >= own->q_terms)
                continue;
            const uint16_t *k = own->k[i] + key, *q = own->q[both - i];
            for (uint32_t at = d; at < end; at += TILE_DEPTH) {
                tile_load(4, k + (size_t)at * TILE_ROWS, 64);
                pair_left(second, q + (size_t)at * TILE_ROWS);
                pair_right(second, q + next + (size_t)at * TILE_ROWS);
            }
        }
    }
    pair_store(second, s, s + TILE_ROWS, sizeof *s * KEY_STRIDE);
}

/* Scores of keys [key, end), which are multiples of TILE_DEPTH. */
static void scores_of_keys(const struct products *own, const struct staged *staged, uint32_t key,
                           uint32_t end, uint32_t d, uint32_t d_end, float *s)
{
    for (; key < end; key += TILE_DEPTH) {
        const size_t at = key_at(own, staged->tile, key);
        float *to = s + (size_t)key * KEY_STRIDE;
        scores_of(own, at, d, d_end, false, to);
        scores_of(own, at + (size_t)TILE_ROWS * own->depth, d, d_end, true, to + TILE_ROWS * KEY_STRIDE);
    }
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

static void scores_of_tile(struct prefill_block *w, const struct prefill_tile *tile,
                           const struct staged *staged)
{
    const struct products *own = &w->products;
    const bool halves = own->depth > ONE_SUM;
    const uint32_t first = halves ? own->depth / (2 * TILE_DEPTH) * TILE_DEPTH : own->depth;
    const uint32_t from = tile->from / TILE_DEPTH * TILE_DEPTH;
    tile_fence();
    scores_of_keys(own, staged, from, tile->to, 0, first, w->score);
    if (halves)
        scores_of_keys(own, staged, from, tile->to, first, own->depth, own->half);
    tile_fence();
    if (halves)
        join_scores(w, tile->from, tile->to);
}

/* Terms of weights of a block, of query rows from r on. */
INLINE uint16_t *weights_at(const struct products *own, uint32_t block, uint32_t term, uint32_t r)
{
    return own->weights.terms + (block * own->p_terms + term) * WEIGHT_BLOCK + (size_t)r * TILE_DEPTH;
}

/* What scores of a vector of query rows are multiplied with, and what is subtracted then: weights are powers
 * of 2. */
struct exponents {
    vec unit, base;
};

/*
 * Weights of the tile's keys [first, end) for a vector of query rows from r on, as `terms` bf16; 0 for keys
 * that no row sees, of which there are none if `whole`. Returns their sums.
 */
INLINE vec weights_of(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile,
                      uint32_t first, uint32_t end, struct exponents x, uint32_t terms, bool whole)
{
    const struct products *own = &w->products;
    const float *s = w->score + r;
    const vec less = vec_sub(vec_zero(), x.base);
    vec sum = vec_zero();
    for (uint32_t i = first; i < end; i += 2) {
        const uint32_t block = own->weights.count + (i - first) / TILE_DEPTH;
        vec even = vec_exp2(vec_fma(vec_load_f32(s + (size_t)i * KEY_STRIDE), x.unit, less));
        vec odd = vec_exp2(vec_fma(vec_load_f32(s + (size_t)(i + 1) * KEY_STRIDE), x.unit, less));
        if (!whole && (i < tile->from || i >= tile->to))
            even = vec_zero();
        if (!whole && (i + 1 < tile->from || i + 1 >= tile->to))
            odd = vec_zero();
        sum = vec_add(sum, vec_add(even, odd));
        UNROLL
        for (uint32_t term = 0; term + 1 < terms; term++) { /* the last one rounds what is left */
            bf16_store_pairs(weights_at(own, block, term, r) + i % TILE_DEPTH * TILE_ROWS,
                             bf16_cut_pairs(even, odd));
            even = vec_sub(even, bf16_cut(even));
            odd = vec_sub(odd, bf16_cut(odd));
        }
        bf16_store_pairs(weights_at(own, block, terms - 1, r) + i % TILE_DEPTH * TILE_ROWS,
                         bf16_pairs(even, odd));
    }
    return sum;
}

/* A pair of weights rounded to bf16 for each of a vector of query rows, whose scores are at s, to `to`.
 * Returns the sums. */
INLINE vec rounded_pair(const float *s, struct exponents x, bool even_seen, bool odd_seen, bool any_nan,
                        vec sum, uint16_t *to)
{
    const vec none = vec_set(-INFINITY);
    const vec even = even_seen ? vec_fma(vec_load_f32(s), x.unit, x.base) : none;
    const vec odd = odd_seen ? vec_fma(vec_load_f32(s + KEY_STRIDE), x.unit, x.base) : none;
    vec_int a = bf16_exp2(even), b = bf16_exp2(odd);
    if (any_nan) {
        a = bf16_nan(even, a);
        b = bf16_nan(odd, b);
    }
    const vec_int pairs = bf16_join(a, b);
    bf16_store_pairs(to, pairs);
    return bf16_add_pairs(sum, pairs);
}

/* The same as weights_of, rounded; sums are of rounded weights. x.base is what is added, less 1/2. */
INLINE vec rounded_weights(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile,
                           uint32_t first, uint32_t end, struct exponents x, bool whole, bool any_nan)
{
    const struct products *own = &w->products;
    vec sum = vec_zero();
    for (uint32_t key = first; key < end; key += TILE_DEPTH) {
        uint16_t *to = weights_at(own, own->weights.count + (key - first) / TILE_DEPTH, 0, r);
        const float *s = w->score + (size_t)key * KEY_STRIDE + r;
        UNROLL
        for (uint32_t i = 0; i < TILE_DEPTH; i += 2) {
            const bool even = whole || (key + i >= tile->from && key + i < tile->to);
            const bool odd = whole || (key + i + 1 >= tile->from && key + i + 1 < tile->to);
            sum = rounded_pair(s + (size_t)i * KEY_STRIDE, x, even, odd, any_nan, sum,
                               to + (size_t)i * TILE_ROWS);
        }
    }
    return sum;
}

/* What becomes of a whole tile's scores while those of the next are multiplied. */
struct rounding {
    const float *s;
    uint16_t *to;
    struct exponents x[2];
    vec sum[2];
};

/* The weights of pairs of keys [pair, end), of which the tile has 32. */
INLINE void round_pairs(struct rounding *now, uint32_t pair, uint32_t end)
{
    UNROLL
    for (; pair < end; pair++) {
        uint16_t *to = now->to + pair / 16 * WEIGHT_BLOCK + (size_t)(pair % 16) * 2 * TILE_ROWS;
        const float *s = now->s + (size_t)pair * 2 * KEY_STRIDE;
        now->sum[0] = rounded_pair(s, now->x[0], true, true, false, now->sum[0], to);
        now->sum[1] =
            rounded_pair(s + TILE_ROWS, now->x[1], true, true, false, now->sum[1], to + WEIGHT_BLOCK / 2);
    }
}

/*
 * Scores of 16 keys, of one term and `steps` products, to s; behind each product some of the eight pairs of
 * weights from `pair` on: the processor computes them while it multiplies tiles.
 */
INLINE void scores_between(const struct products *own, size_t key, uint32_t steps, bool second, float *s,
                           struct rounding *now, uint32_t pair)
{
    const uint16_t *q = own->q[0], *q_next = q + (size_t)steps * TILE_DEPTH * TILE_ROWS;
    pair_clear(second);
    UNROLL
    for (uint32_t i = 0; i < steps; i++) {
        const uint32_t from = pair + 8 * i / steps, to = pair + 8 * (i + 1) / steps, middle = (from + to) / 2;
        const size_t at = (size_t)i * TILE_DEPTH * TILE_ROWS;
        tile_load(4, own->k[0] + key + at, 64);
        pair_left(second, q + at);
        round_pairs(now, from, middle);
        pair_right(second, q_next + at);
        round_pairs(now, middle, to);
    }
    pair_store(second, s, s + TILE_ROWS, sizeof *s * KEY_STRIDE);
}

INLINE void scores_and_weights(const struct products *own, size_t key, uint32_t steps, struct rounding *now)
{
    const size_t next = (size_t)TILE_ROWS * steps * TILE_DEPTH;
    float *s = own->next_score;
    UNROLL
    for (uint32_t i = 0; i < CPU_TILE_KEYS / TILE_ROWS; i++)
        scores_between(own, key + i * next, steps, i % 2 != 0, s + (size_t)i * TILE_ROWS * KEY_STRIDE, now,
                       8 * i);
}

/* Weights of a whole tile, x of both vectors of query rows, and the scores of the next tile. */
static void weights_and_scores(struct prefill_block *w, const struct exponents *x, const struct staged *next,
                               vec *sum)
{
    struct products *own = &w->products;
    const size_t key = key_at(own, next->tile, 0);
    struct rounding now = {
        w->score, weights_at(own, own->weights.count, 0, 0), {x[0], x[1]}, {vec_zero(), vec_zero()}};
    tile_fence();
    if (own->depth == 4 * TILE_DEPTH)
        scores_and_weights(own, key, 4, &now);
    else if (own->depth == 2 * TILE_DEPTH)
        scores_and_weights(own, key, 2, &now);
    else
        scores_and_weights(own, key, own->depth / TILE_DEPTH, &now);
    tile_fence();
    sum[0] = now.sum[0];
    sum[1] = now.sum[1];
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

/* Adds the weighted values of all blocks to 16 dimensions, from d on, of the span: of each term of values,
 * the terms of weights whose products are not too small for its sum, those that are small first. */
INLINE void add_to_span(const struct prefill_block *w, uint32_t d, bool second, uint32_t v_terms,
                        uint32_t p_terms)
{
    const struct products *own = &w->products;
    float *span = own->span + (size_t)d * TILE_ROWS, *next = span + (size_t)TILE_ROWS * own->dims;
    if (w->span_empty)
        pair_clear(second);
    else
        pair_load(second, span, next, 64);
    for (uint32_t block = 0; block < own->weights.count; block++) {
        const size_t values = own->weights.values[block] + (size_t)d * TILE_DEPTH;
        for (uint32_t i = v_terms; i-- > 0;) {
            tile_load(4, own->v[i] + values, 64);
            for (uint32_t term = p_terms - i; term-- > 0;) {
                pair_left(second, weights_at(own, block, term, 0));
                pair_right(second, weights_at(own, block, term, TILE_ROWS));
            }
        }
    }
    pair_store(second, span, next, 64);
}

INLINE void add_all_to_span(const struct prefill_block *w, uint32_t v_terms, uint32_t p_terms)
{
    for (uint32_t d = 0; d < w->products.dims; d += 2 * TILE_ROWS) {
        add_to_span(w, d, false, v_terms, p_terms);
        add_to_span(w, d + TILE_ROWS, true, v_terms, p_terms);
    }
}

/* Multiplies the weights that there are with their values. */
static void products_flush(struct prefill_block *w)
{
    struct products *own = &w->products;
    if (own->weights.count == 0)
        return;
    tile_fence();
    if (own->p_terms == 1)
        add_all_to_span(w, 1, 1);
    else
        add_all_to_span(w, own->v_terms, own->p_terms);
    tile_fence();
    own->weights.count = 0;
    w->span_empty = false;
}

/* The weight of key i of a tile and row r. */
static float weight_at(const struct products *own, uint32_t first_block, uint32_t i, uint32_t r)
{
    const uint32_t block = first_block + i / TILE_DEPTH;
    float weight = 0;
    for (uint32_t term = 0; term < own->p_terms; term++) {
        const size_t at = i % TILE_DEPTH / 2 * (2 * TILE_ROWS) + 2 * (size_t)(r % TILE_ROWS) + i % 2;
        const uint32_t bits = (uint32_t)weights_at(own, block, term, r / TILE_ROWS * TILE_ROWS)[at] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        weight += value;
    }
    return weight;
}

/* Adds values that have no terms to the span of the rows that see them. The tile's weights begin at a block.
 */
static void odd_sums(const struct prefill_block *w, const struct prefill_tile *tile,
                     const struct staged *staged, uint32_t block)
{
    const struct products *own = &w->products;
    const struct stage_side side = side_of_values(w, staged->keys);
    const uint32_t first = tile->from / TILE_DEPTH * TILE_DEPTH;
    for (uint32_t i = tile->from; i < tile->to; i++) {
        if ((staged->odd_values >> i & 1) == 0)
            continue;
        fetch_row(w, &side, staged->keys, i, own->rows);
        for (uint32_t r = 0; r < w->rows; r++) {
            if (!prefill_sees(w, tile, r, i))
                continue;
            const float weight = weight_at(own, block, i - first, r);
            float *span = own->span + (size_t)r / TILE_ROWS * TILE_ROWS * own->dims + r % TILE_ROWS;
            for (uint32_t d = 0; d < w->dim_vo; d++, span += TILE_ROWS)
                if (!(fabsf(own->rows[d]) < 0x1p127f))
                    *span += weight * own->rows[d];
        }
    }
}

/* The scores of a tile, to w->score. */
static void tile_scores(struct prefill_block *w, const struct prefill_tile *tile, const struct staged *staged)
{
    struct products *own = &w->products;
    if (own->next_base == tile->base) {
        float *score = w->score;
        w->score = own->next_score;
        own->next_score = score;
    } else {
        scores_of_tile(w, tile, staged);
    }
    if ((staged->odd_keys | own->odd_rows) != 0)
        odd_scores(w, tile, staged);
}

/*
 * What weights of all rows are relative to from now on, to w->m, and by what sums are too large then, to
 * w->correction; spans are corrected, behind what is still to be added to them. A span is multiplied with a
 * smaller factor only when a score is larger by BASE_STEP.
 */
static void tile_bases(struct prefill_block *w, const struct prefill_tile *tile, struct exponents *x)
{
    const vec none = vec_set(-INFINITY), one = vec_set(1);
    vec changed = vec_zero();
    for (uint32_t r = 0; r < w->padded; r += VEC_LANES, x++) {
        const vec before = vec_load_f32(w->m + r);
        x->unit = columns_rules(w, r, tile, vec_set(w->products.unit));
        const vec largest = vec_max(vec_mul(columns_largest(w, r, tile), x->unit), before);
        const vec m = vec_select(vec_less(vec_add(before, vec_set(BASE_STEP)), largest), largest, before);
        x->base = vec_select(vec_equal(m, none), vec_zero(), m);
        const vec factor = vec_exp2(vec_sub(before, x->base));
        changed = vec_max(changed, vec_select(vec_equal(factor, one), vec_zero(), one));
        vec_store(w->correction + r, factor);
        vec_store(w->m + r, m);
    }
    if (vec_reduce_max(changed) == 0)
        return;
    products_flush(w);
    for (uint32_t r = 0; r < w->padded && !w->span_empty; r += TILE_ROWS)
        correct_span(w, r);
}

/* Weights of all rows, from scores. Their sums to sum. */
static void tile_weights(struct prefill_block *w, const struct prefill_tile *tile,
                         const struct staged *staged, const struct staged *next, struct exponents *x,
                         vec *sum)
{
    struct products *own = &w->products;
    const uint32_t first = tile->from / TILE_DEPTH * TILE_DEPTH;
    const uint32_t end = (tile->to + TILE_DEPTH - 1) / TILE_DEPTH * TILE_DEPTH;
    /* Weights of other keys need no care: there are none, or their scores are masked. */
    const bool whole = !tile->unmasked || (tile->from == first && tile->to == end);
    const bool plain = !own->large && !staged->large_keys && !w->bias_rules.distance && !tile->biased;
    if (own->p_terms == 1) {
        for (uint32_t r = 0; r < 2; r++)
            x[r].base = vec_sub(vec_set(-0.5f), x[r].base);
        if (plain && whole && end - first == CPU_TILE_KEYS && next != NULL && own->depth <= ONE_SUM) {
            weights_and_scores(w, x, next, sum);
            own->next_base = tile->base + CPU_TILE_KEYS;
            return;
        }
    }
    for (uint32_t r = 0; r < w->padded; r += VEC_LANES) {
        const uint32_t i = r / VEC_LANES;
        if (own->p_terms == 1 && plain && whole)
            sum[i] = rounded_weights(w, r, tile, first, end, x[i], true, false);
        else if (own->p_terms == 1)
            sum[i] = rounded_weights(w, r, tile, first, end, x[i], false, true);
        else if (own->p_terms == 2 && whole)
            sum[i] = weights_of(w, r, tile, first, end, x[i], 2, true);
        else if (own->p_terms == 2)
            sum[i] = weights_of(w, r, tile, first, end, x[i], 2, false);
        else
            sum[i] = weights_of(w, r, tile, first, end, x[i], 3, false);
    }
}

/* Leaves the tile's weights to be multiplied with its values. */
static void push_weights(struct products *own, const struct prefill_tile *tile, const struct staged *staged)
{
    for (uint32_t key = tile->from / TILE_DEPTH * TILE_DEPTH; key < tile->to; key += TILE_DEPTH)
        own->weights.values[own->weights.count++] = values_at(own, staged->tile, key);
}

/* A staged tile for one block, and the scores of the next. */
static void products_tile(struct prefill_block *w, const struct prefill_tile *tile,
                          const struct staged *staged, const struct staged *next)
{
    struct products *own = &w->products;
    struct exponents x[BLOCK_ROWS / VEC_LANES];
    vec sum[BLOCK_ROWS / VEC_LANES];
    tile_scores(w, tile, staged);
    tile_bases(w, tile, x);
    const uint32_t block = own->weights.count;
    tile_weights(w, tile, staged, next, x, sum);
    for (uint32_t r = 0; r < w->padded; r += VEC_LANES)
        vec_store(w->l + r,
                  vec_fma(vec_load_f32(w->l + r), vec_load_f32(w->correction + r), sum[r / VEC_LANES]));
    push_weights(own, tile, staged);
    if (staged->odd_values != 0) {
        products_flush(w);
        odd_sums(w, tile, staged, block);
    } else if ((own->weights.count + CPU_TILE_KEYS / TILE_DEPTH) * own->p_terms > WEIGHT_BLOCKS) {
        products_flush(w);
    }
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

/* The totals of 16 rows from r on by their sums of weights, and 0 for -0. */
static void rows_of_totals(const struct prefill_block *w, uint32_t r)
{
    const struct products *own = &w->products;
    const float *total = own->total + (size_t)r * own->dims;
    const vec factor = vec_div(vec_set(1), vec_load_f32(w->l_total + r));
    for (uint32_t d = 0; d < own->dims; d += VEC_LANES) {
        vec a[VEC_LANES];
        UNROLL
        for (uint32_t i = 0; i < VEC_LANES; i++)
            a[i] = vec_add(vec_mul(vec_load_f32(total + (size_t)(d + i) * TILE_ROWS), factor), vec_zero());
        vec_transpose(a);
        UNROLL
        for (uint32_t i = 0; i < VEC_LANES; i++)
            vec_store(own->rows + (size_t)i * own->row_stride + d, a[i]);
    }
}

/* That of row r; rows are asked for in their order. */
static const float *products_row(const struct prefill_block *w, uint32_t r)
{
    const struct products *own = &w->products;
    if (r % TILE_ROWS == 0)
        rows_of_totals(w, r);
    return own->rows + (size_t)(r % TILE_ROWS) * own->row_stride;
}

#endif
