/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Products of prefill by tile instructions, which multiply bf16 and add in f32. Every other number is a sum
 * of two or three bf16, its terms, and a product of such numbers is the sum of the products of their terms:
 * nothing is rounded away that f32 would keep, but for weights and values, which keep 16 bits where results
 * have fewer.
 *
 * Scores are K Q^T, keys in the rows and query rows in the columns; weighted sums are V^T P^T, dimensions in
 * the rows and query rows in the columns. So scores come as prefill wants them, two scores below one another
 * are a pair of weights as the next product wants it, and only queries and values are transposed, when they
 * are staged.
 *
 * A number of 2^127 and more, or one that is not finite, has no terms. It is staged as 0, and what it
 * contributes is computed apart: to the scores of its key or row, or to the sums of those rows that see it.
 */
#ifndef ATTN_CPU_KERNELS_PREFILL_TILES_H
#define ATTN_CPU_KERNELS_PREFILL_TILES_H

#include "row-state.h"

/* Terms of a number at most. */
#define TERMS 3u
/* Query rows of a block: with 64 keys their weights and a span of 128 dimensions stay in the L1 cache. */
#define BLOCK_ROWS (2 * TILE_ROWS)
/* Dimensions that are added up one after the other; of more, the halves, which bounds the error of scores. */
#define ONE_SUM 128u
/* Tiles that are staged at a time, at most; two terms of all fill this part of the L2 cache. */
#define STAGED_TILES 8u
#define STAGED_BYTES (UINT32_C(1) << 20)
/* Rows of a tile; numbers of a row of factors. */
#define TILE_ROWS  16u
#define TILE_DEPTH 32u
/* Padding of rows in bf16, so that their distance is whole cache lines and no power of two. */
#define TERM_PAD 32u
/* Distance of two dimensions of transposed values, in bf16. */
#define VALUES_STRIDE (CPU_TILE_KEYS + TERM_PAD)
/* A span is multiplied with a smaller factor only when a score is larger by this, in units of log2. */
#define BASE_STEP 8.0f

struct products {
    uint32_t q_terms, k_terms, v_terms, p_terms;
    uint32_t staged_tiles; /* at a time */
    uint32_t depth;        /* head_dim rounded up to TILE_DEPTH */
    uint32_t dims;         /* head_dim_vo rounded up to two tiles */
    uint32_t k_stride;     /* distance of two staged keys */
    uint32_t v_stride;     /* of two values before they are transposed */
    uint32_t row_stride;   /* of `rows` */
    uint64_t odd_rows;     /* a bit for each row with a number that has no terms */
    float factor, unit;    /* queries are multiplied with the first, a power of two, scores with the second */
    uint16_t *q[TERMS];    /* panels of TILE_ROWS rows: [dimension / 2][row][2] */
    float *span, *total;   /* [row / 16][dimension][16] */
    /* of the staged tiles; blocks share them */
    uint16_t *k[TERMS];      /* [tile][key][dimension] */
    uint16_t *v[TERMS];      /* [tile][dimension][key] */
    uint16_t *v_rows[TERMS]; /* [key % 32][dimension] */
    float *half;             /* scores over the second half of many dimensions */
    uint16_t *third;         /* third terms of weights, if they are needed: [key / 2][row][2] */
    float *rows;             /* TILE_ROWS rows of any use */
};

#include "prefill-block.h"

_Static_assert(VEC_LANES == TILE_ROWS && CPU_TILE_KEYS == 2 * TILE_DEPTH, "a vector is a row of sums");

/* What a tile has that products must know of: a bit for each key with a number that has no terms. */
struct staged {
    const struct cpu_keys *keys;
    uint32_t tile; /* its number among those staged */
    uint64_t odd_keys, odd_values;
};

/* Numbers of one term of a tile's keys, and values. */
INLINE size_t keys_of_tile(const struct products *own)
{
    return (size_t)CPU_TILE_KEYS * own->k_stride;
}

INLINE size_t values_of_tile(const struct products *own)
{
    return (size_t)own->dims * VALUES_STRIDE;
}

static uint16_t *take_terms(float *scratch, size_t *used, size_t count)
{
    return take_objects(scratch, used, count, sizeof(uint16_t));
}

static void products_lay_out(struct prefill_block *w, float *scratch, size_t *used)
{
    struct products *own = &w->products;
    own->depth = (w->dim + TILE_DEPTH - 1) / TILE_DEPTH * TILE_DEPTH;
    own->dims = (w->dim_vo + 2 * TILE_ROWS - 1) / (2 * TILE_ROWS) * (2 * TILE_ROWS);
    own->k_stride = own->depth + TERM_PAD;
    own->v_stride = own->dims + TERM_PAD;
    const uint32_t tile_bytes =
        2 * sizeof(uint16_t) * (CPU_TILE_KEYS * own->k_stride + own->dims * VALUES_STRIDE);
    own->staged_tiles = STAGED_TILES;
    while (own->staged_tiles > 1 && own->staged_tiles * tile_bytes > STAGED_BYTES)
        own->staged_tiles /= 2;
    own->row_stride = (own->depth > own->dims ? own->depth : own->dims) + VEC_LANES;
    for (uint32_t i = 0; i < TERMS; i++)
        own->q[i] = take_terms(scratch, used, (size_t)BLOCK_ROWS * own->depth);
    own->span = take_floats(scratch, used, (size_t)BLOCK_ROWS * own->dims);
    own->total = take_floats(scratch, used, (size_t)BLOCK_ROWS * own->dims);
}

static void products_lay_out_shared(struct prefill_block *blocks, float *scratch, size_t *used)
{
    struct products *first = &blocks->products;
    for (uint32_t i = 0; i < TERMS; i++) {
        first->k[i] = take_terms(scratch, used, first->staged_tiles * keys_of_tile(first));
        first->v[i] = take_terms(scratch, used, first->staged_tiles * values_of_tile(first));
        first->v_rows[i] = take_terms(scratch, used, (size_t)TILE_DEPTH * first->v_stride);
    }
    first->half = take_floats(scratch, used, (size_t)CPU_TILE_KEYS * KEY_STRIDE);
    first->third = take_terms(scratch, used, (size_t)BLOCK_ROWS * CPU_TILE_KEYS);
    first->rows = take_floats(scratch, used, (size_t)TILE_ROWS * first->row_stride);
    for (uint32_t b = 1; b < BLOCKS; b++) {
        struct products *other = &blocks[b].products;
        memcpy(other->k, first->k, sizeof first->k);
        memcpy(other->v, first->v, sizeof first->v);
        memcpy(other->v_rows, first->v_rows, sizeof first->v_rows);
        other->half = first->half;
        other->third = first->third;
        other->rows = first->rows;
    }
}

INLINE uint32_t products_staged_tiles(const struct prefill_block *w)
{
    return w->products.staged_tiles;
}

static void products_begin(void)
{
    tiles_begin();
}

static void products_end(void)
{
    tiles_end();
}

/* The bf16 that make up a number of this type exactly, or if it was multiplied with a scale, an f32. */
static uint32_t terms_of(enum vec_type type, bool scaled)
{
    if (type == VEC_F32 || scaled)
        return 3;
    return type == VEC_F16 ? 2 : 1;
}

/* Splits what queries are multiplied with, so that they keep their digits. */
static void products_scale(struct prefill_block *w)
{
    int exponent;
    const double factor = (double)query_factor(w->run), fraction = frexp(fabs(factor), &exponent);
    w->products.factor = (float)copysign(ldexp(1, exponent - 1), factor);
    w->products.unit = (float)(2 * fraction);
    if (fraction == 0)
        w->products.factor = 0;
}

/* Weights and values keep 16 bits where results have fewer. */
static void products_terms(struct prefill_block *w)
{
    const struct cpu_run *run = w->run;
    const bool scaled = cpu_has_scales(run);
    const uint32_t kept = run->problem->out_dtype == ATTN_BF16 || run->problem->out_dtype == ATTN_F16 ? 2 : 3;
    w->products.q_terms = terms_of(vec_type_of(run->problem->q_dtype), run->q_scale.base != NULL);
    w->products.k_terms = terms_of(w->k_type, scaled);
    const uint32_t v_terms = terms_of(w->v_type, scaled);
    w->products.v_terms = v_terms < kept ? v_terms : kept;
    w->products.p_terms = kept;
}

/* Whether numbers have terms, lane by lane. */
INLINE vec_bool has_terms(vec x)
{
    return vec_less(vec_abs(x), vec_set(0x1p127f));
}

/* Writes n f32, which is a multiple of VEC_LANES, as terms at to[i] + at. Returns whether a number has none.
 */
static bool split_row(const float *row, uint32_t n, uint32_t terms, uint16_t *const *to, size_t at)
{
    vec odd = vec_zero();
    for (uint32_t d = 0; d < n; d += VEC_LANES) {
        vec x = vec_load_f32(row + d);
        const vec_bool fits = has_terms(x);
        odd = vec_max(odd, vec_select(fits, vec_zero(), vec_set(1)));
        x = vec_select(fits, x, vec_zero());
        for (uint32_t i = 0; i < terms; i++)
            x = vec_sub(x, bf16_store(to[i] + at + d, x));
    }
    return vec_reduce_max(odd) > 0;
}

/* Sixteen rows of queries to a panel. */
static void queries_panel(struct prefill_block *w, uint32_t r)
{
    const struct products *own = &w->products;
    for (uint32_t d = 0; d < own->depth; d += VEC_LANES) {
        vec a[VEC_LANES];
        UNROLL
        for (uint32_t i = 0; i < VEC_LANES; i++) {
            a[i] = vec_load_f32(own->rows + (size_t)i * own->row_stride + d);
            a[i] = vec_select(has_terms(a[i]), a[i], vec_zero());
        }
        vec_transpose(a);
        for (uint32_t term = 0; term < own->q_terms; term++) {
            uint16_t *to = own->q[term] + (size_t)r * own->depth + (size_t)d * TILE_ROWS;
            UNROLL
            for (uint32_t i = 0; i < VEC_LANES; i += 2) {
                const vec_int pairs = bf16_pairs(a[i], a[i + 1]);
                bf16_store_pairs(to + (size_t)i * TILE_ROWS, pairs);
                a[i] = vec_sub(a[i], bf16_even(pairs));
                a[i + 1] = vec_sub(a[i + 1], bf16_odd(pairs));
            }
        }
    }
}

static void products_queries(struct prefill_block *w)
{
    struct products *own = &w->products;
    products_scale(w);
    products_terms(w);
    own->odd_rows = 0;
    for (uint32_t r = 0; r < w->padded; r += TILE_ROWS) {
        memset(own->rows, 0, sizeof *own->rows * TILE_ROWS * own->row_stride);
        for (uint32_t i = 0; i < TILE_ROWS && r + i < w->rows; i++) {
            float *row = own->rows + (size_t)i * own->row_stride;
            vec odd = vec_zero();
            prefill_query(w, r + i, own->factor, row);
            for (uint32_t d = 0; d < own->depth; d += VEC_LANES)
                odd = vec_max(odd, vec_select(has_terms(vec_load_f32(row + d)), vec_zero(), vec_set(1)));
            own->odd_rows |= (uint64_t)(vec_reduce_max(odd) > 0) << (r + i);
        }
        queries_panel(w, r);
    }
}

/* The vector of key i as f32, behind it zeros. */
static void fetch_row(const struct prefill_block *w, const struct stage_side *side,
                      const struct cpu_keys *keys, uint32_t i, float *to)
{
    float factor;
    const char *vector = side_vector(w, side, keys, i, &factor);
    memset(to, 0, sizeof *to * w->products.row_stride);
    convert_table[side->type](vector, side->dim, vec_set(factor), to);
}

/* A row of n bf16 and zeros up to a multiple of 32. Returns whether a number has no terms. */
static bool copy_row(const char *from, uint32_t n, uint16_t *to)
{
    int odd = 0;
    uint32_t d = 0;
    for (; d + 32 <= n; d += 32)
        odd |= bf16_copy(to + d, from + (size_t)d * sizeof *to);
    if (d < n) {
        uint16_t rest[32] = {0};
        memcpy(rest, from + (size_t)d * sizeof *to, (n - d) * sizeof *to);
        odd |= bf16_copy(to + d, rest);
    }
    return odd != 0;
}

/* Stages key or value i of a tile at to[term] + at. Returns whether a number of it has no terms. */
static bool stage_row(const struct prefill_block *w, const struct stage_side *side,
                      const struct cpu_keys *keys, uint32_t i, uint32_t terms, uint16_t *const *to, size_t at)
{
    if (side->type == VEC_BF16 && terms == 1) {
        float factor;
        return copy_row(side_vector(w, side, keys, i, &factor), side->dim, to[0] + at);
    }
    fetch_row(w, side, keys, i, w->products.rows);
    return split_row(w->products.rows, (side->dim + 31) / 32 * 32, terms, to, at);
}

static uint64_t stage_keys(const struct prefill_block *w, const struct prefill_tile *tile,
                           const struct cpu_keys *keys, uint32_t slot)
{
    const struct products *own = &w->products;
    const struct stage_side side = side_of_keys(w, keys);
    uint64_t odd = 0;
    for (uint32_t i = tile->from; i < tile->to; i++) {
        const size_t at = slot * keys_of_tile(own) + (size_t)i * own->k_stride;
        if ((keys->present >> i & 1) != 0)
            odd |= (uint64_t)stage_row(w, &side, keys, i, own->k_terms, own->k, at) << i;
    }
    return odd;
}

/* Values of 32 keys from `first` on; those that no row sees are 0. */
static uint64_t stage_values(const struct prefill_block *w, const struct prefill_tile *tile,
                             const struct cpu_keys *keys, uint32_t slot, uint32_t first)
{
    const struct products *own = &w->products;
    const struct stage_side side = side_of_values(w, keys);
    uint64_t odd = 0;
    for (uint32_t i = first; i < first + TILE_DEPTH; i++) {
        const size_t at = (size_t)(i - first) * own->v_stride;
        if (i >= tile->from && i < tile->to && (keys->present >> i & 1) != 0)
            odd |= (uint64_t)stage_row(w, &side, keys, i, own->v_terms, own->v_rows, at) << i;
        else
            for (uint32_t term = 0; term < own->v_terms; term++)
                memset(own->v_rows[term] + at, 0, sizeof(uint16_t) * own->dims);
    }
    for (uint32_t term = 0; term < own->v_terms; term++)
        for (uint32_t d = 0; d < own->dims; d += 32)
            bf16_transpose(own->v_rows[term] + d, own->v_stride,
                           own->v[term] + slot * values_of_tile(own) + (size_t)d * VALUES_STRIDE + first,
                           VALUES_STRIDE);
    return odd;
}

static struct staged products_stage(const struct prefill_block *w, const struct prefill_tile *tile,
                                    const struct cpu_keys *keys, uint32_t slot)
{
    struct staged staged = {.keys = keys, .tile = slot, .odd_keys = stage_keys(w, tile, keys, slot)};
    for (uint32_t first = tile->from / TILE_DEPTH * TILE_DEPTH; first < tile->to; first += TILE_DEPTH)
        staged.odd_values |= stage_values(w, tile, keys, slot, first);
    return staged;
}

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

/* Adds the spans to the totals. */
static void products_close_span(struct prefill_block *w)
{
    const uint32_t dims = w->products.dims;
    if (w->total_empty) { /* the span is the total, and room for the next is where that was */
        float *total = w->products.span;
        w->products.span = w->products.total;
        w->products.total = total;
        memcpy(w->l_total, w->l, sizeof w->l);
        return;
    }
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
