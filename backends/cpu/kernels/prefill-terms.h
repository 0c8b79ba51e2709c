/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Operands of tile products: queries, keys and values, staged as bf16. Every other number is a sum of two or
 * three bf16, its terms, and a product of such numbers is the sum of the products of their terms: nothing is
 * rounded away that f32 would keep, but for weights and values, which keep 16 bits where results have fewer,
 * and weights 8 where all else is bf16.
 *
 * A number of 2^127 and more, or one that is not finite, has no terms. It is staged as 0, and what it
 * contributes is computed apart: to the scores of its key or row, or to the sums of those rows that see it.
 */
#ifndef ATTN_CPU_KERNELS_PREFILL_TERMS_H
#define ATTN_CPU_KERNELS_PREFILL_TERMS_H

#include "row-state.h"

/* Query rows of a work item. */
#define ITEM_ROWS CPU_PREFILL_TILES_ROWS
/* Terms of a number at most. */
#define TERMS 3u
/* Query rows of a block: with 64 keys their weights and a span of 128 dimensions stay in the L1 cache. */
#define BLOCK_ROWS (2 * TILE_ROWS)
/* Tiles that are staged at a time, at most; two terms of all fill this part of the L2 cache. */
#define STAGED_TILES 8u
#define STAGED_BYTES (UINT32_C(1) << 20)
/* Numbers of a row of factors. */
#define TILE_DEPTH   32u
#define KEYS_AT_ONCE TILE_DEPTH
/* Blocks of TILE_DEPTH keys whose terms of weights are kept for one product with their values. */
#define WEIGHT_BLOCKS 8u
#define WEIGHT_BLOCK  ((size_t)TILE_DEPTH * BLOCK_ROWS)
/* No score of factors below it, of 65536 dimensions, is infinite. */
#define LARGE 0x1p55f
/* Padding of rows in bf16, so that their distance is whole cache lines and no power of two. */
#define TERM_PAD 32u
/* Numbers of a tile of factors. */
#define FACTORS ((size_t)TILE_ROWS * TILE_DEPTH)

/* Weights that were not multiplied with their values yet: [row / 16][key / 2][row % 16][key % 2] of each term
 * of each block of keys. */
struct weights {
    uint16_t *terms;
    uint32_t count;               /* of blocks */
    size_t values[WEIGHT_BLOCKS]; /* where those of a block begin */
};

struct products {
    uint32_t q_terms, k_terms, v_terms, p_terms;
    uint32_t staged_tiles; /* at a time */
    uint32_t depth;        /* head_dim rounded up to TILE_DEPTH */
    uint32_t dims;         /* head_dim_vo rounded up to two tiles */
    uint32_t v_stride;     /* of two values before they are transposed */
    uint32_t row_stride;   /* of `rows` */
    uint64_t odd_rows;     /* a bit for each row with a number that has no terms */
    bool large;            /* some number of the queries is not below LARGE */
    bool raw;              /* queries are bf16 that need no conversion; factor is 1 */
    float factor, unit;    /* queries are multiplied with the first, a power of two, scores with the second */
    uint16_t *q[TERMS];    /* panels of TILE_ROWS rows: [dimension / 2][row][2] */
    float *span, *total;   /* [row / 16][dimension][16] */
    /* of the staged tiles; blocks share them */
    uint16_t *k[TERMS];      /* [tile][key / 16][dimension / 32][key % 16][dimension % 32] */
    uint16_t *v[TERMS];      /* [tile][key / 32][dimension][key % 32] */
    uint16_t *v_rows[TERMS]; /* [key % 32][dimension] */
    float *half;             /* scores over the second half of many dimensions */
    float *next_score;       /* what `score` is for the tile at next_base, whose scores are there */
    uint32_t next_base;      /* UINT32_MAX: none are */
    struct weights weights;
    float *rows; /* TILE_ROWS rows of any use */
};

#include "prefill-block.h"

_Static_assert(VEC_LANES == TILE_ROWS && CPU_TILE_KEYS == 2 * TILE_DEPTH, "a vector is a row of sums");

/* What a tile has that products must know of: a bit for each key with a number that has no terms. */
struct staged {
    const struct cpu_keys *keys;
    uint32_t tile;   /* its number among those staged */
    bool large_keys; /* some number of them may not be below LARGE */
    uint64_t odd_keys, odd_values;
};

/* Numbers of one term of a tile's keys, and values. */
INLINE size_t keys_of_tile(const struct products *own)
{
    return (size_t)CPU_TILE_KEYS * own->depth;
}

INLINE size_t values_of_tile(const struct products *own)
{
    return (size_t)CPU_TILE_KEYS * own->dims;
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
    own->v_stride = own->dims + TERM_PAD;
    const uint32_t tile_bytes = 2 * sizeof(uint16_t) * CPU_TILE_KEYS * (own->depth + own->dims);
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
    first->next_score = take_floats(scratch, used, (size_t)CPU_TILE_KEYS * KEY_STRIDE);
    first->weights.terms = take_terms(scratch, used, WEIGHT_BLOCKS * WEIGHT_BLOCK);
    first->rows = take_floats(scratch, used, (size_t)TILE_ROWS * first->row_stride);
    for (uint32_t b = 1; b < BLOCKS; b++) {
        struct products *other = &blocks[b].products;
        memcpy(other->k, first->k, sizeof first->k);
        memcpy(other->v, first->v, sizeof first->v);
        memcpy(other->v_rows, first->v_rows, sizeof first->v_rows);
        other->half = first->half;
        other->next_score = first->next_score;
        other->weights.terms = first->weights.terms;
        other->rows = first->rows;
    }
}

INLINE uint32_t products_staged_tiles(const struct prefill_block *w)
{
    return w->products.staged_tiles;
}

/* Keys of a span. What sums of f32 lose over 2^20 is less than weights lose that are rounded to bf16. */
INLINE uint32_t products_span_keys(const struct prefill_block *w)
{
    return w->products.p_terms == 1 ? UINT32_C(1) << 20 : CPU_SPAN_KEYS;
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
    if (type == VEC_F32 || vec_has_blocks(type) || scaled)
        return 3;
    return type == VEC_F16 ? 2 : 1;
}

/* Splits what queries are multiplied with, so that they keep their digits. Where scores of small numbers stay
 * finite without it, queries that are bf16 are taken as they are. */
static void products_scale(struct prefill_block *w)
{
    const struct cpu_run *run = w->run;
    int exponent;
    const double factor = (double)query_factor(run), fraction = frexp(fabs(factor), &exponent);
    w->products.raw =
        run->problem->q_dtype == ATTN_BF16 && run->q_rope == NULL && factor >= 0x1p-60 && factor <= 1;
    w->products.factor = (float)copysign(ldexp(1, exponent - 1), factor);
    w->products.unit = (float)(2 * fraction);
    if (fraction == 0)
        w->products.factor = 0;
    if (w->products.raw) {
        w->products.factor = 1;
        w->products.unit = (float)factor;
    }
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
    w->products.p_terms = w->rounds ? 1 : kept;
}

/* Whether numbers have terms, lane by lane. */
INLINE vec_bool has_terms(vec x)
{
    return vec_less(vec_abs(x), vec_set(0x1p127f));
}

/* Whether numbers are below LARGE, lane by lane. */
INLINE vec_bool is_small(vec x)
{
    return vec_less(vec_abs(x), vec_set(LARGE));
}

/* Writes n f32, which is a multiple of VEC_LANES, as terms at to[i] + at, every 32 of them `chunk` numbers
 * further. Returns whether a number has none. */
static bool split_row(const float *row, uint32_t n, uint32_t terms, uint16_t *const *to, size_t at,
                      size_t chunk)
{
    vec odd = vec_zero();
    for (uint32_t d = 0; d < n; d += VEC_LANES) {
        const size_t there = at + d / TILE_DEPTH * chunk + d % TILE_DEPTH;
        vec x = vec_load_f32(row + d);
        const vec_bool fits = has_terms(x);
        odd = vec_max(odd, vec_select(fits, vec_zero(), vec_set(1)));
        x = vec_select(fits, x, vec_zero());
        for (uint32_t i = 0; i < terms; i++)
            x = vec_sub(x, bf16_store(to[i] + there, x));
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

/* What products do with queries, keys and values, and the state before the first key. */
static void products_open(struct prefill_block *w)
{
    struct products *own = &w->products;
    products_scale(w);
    products_terms(w);
    own->odd_rows = 0;
    own->large = false;
    own->weights.count = 0;
    own->next_base = UINT32_MAX;
}

/* Sixteen rows of queries from r on as f32, times the factor. */
static void queries_converted(struct prefill_block *w, uint32_t r)
{
    struct products *own = &w->products;
    memset(own->rows, 0, sizeof *own->rows * TILE_ROWS * own->row_stride);
    for (uint32_t i = 0; i < TILE_ROWS && r + i < w->rows; i++) {
        float *row = own->rows + (size_t)i * own->row_stride;
        vec odd = vec_zero(), large = odd;
        prefill_query(w, r + i, own->factor, row);
        for (uint32_t d = 0; d < own->depth; d += VEC_LANES) {
            const vec x = vec_load_f32(row + d);
            odd = vec_max(odd, vec_select(has_terms(x), vec_zero(), vec_set(1)));
            large = vec_max(large, vec_select(is_small(x), vec_zero(), vec_set(1)));
        }
        own->large = own->large || vec_reduce_max(large) > 0;
        own->odd_rows |= (uint64_t)(vec_reduce_max(odd) > 0) << (r + i);
    }
    queries_panel(w, r);
}

/* Sixteen rows of queries from r on, to a panel, as they are. */
static void queries_raw(struct prefill_block *w, uint32_t r)
{
    struct products *own = &w->products;
    static const uint16_t none[TILE_DEPTH];
    uint32_t kinds[TILE_ROWS] = {0}, all = 0;
    for (uint32_t d = 0; d < own->depth; d += TILE_DEPTH) {
        const uint32_t n = w->dim - d < TILE_DEPTH ? w->dim - d : TILE_DEPTH;
        vec_int rows[TILE_ROWS];
        for (uint32_t i = 0; i < TILE_ROWS; i++) {
            uint16_t rest[TILE_DEPTH] = {0};
            const void *from = none;
            if (r + i < w->rows)
                from = prefill_query_address(w, r + i) + d * sizeof *rest;
            if (r + i < w->rows && n < TILE_DEPTH)
                from = memcpy(rest, from, n * sizeof *rest);
            rows[i] = bf16_load(from, &kinds[i]);
        }
        bf16_store_panel(own->q[0] + (size_t)r * own->depth + (size_t)d * TILE_ROWS, rows);
    }
    for (uint32_t i = 0; i < TILE_ROWS; i++) {
        own->odd_rows |= (uint64_t)((kinds[i] & BF16_ODD) != 0) << (r + i);
        all |= kinds[i];
    }
    own->large = own->large || all != 0;
}

static void products_queries(struct prefill_block *w)
{
    for (uint32_t r = 0; r < w->padded; r += TILE_ROWS)
        if (w->products.raw)
            queries_raw(w, r);
        else
            queries_converted(w, r);
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

/* A row of n bf16 and zeros up to a multiple of 32, every 32 of them `chunk` numbers further. Returns which
 * kinds of numbers it has, as bf16_copy. */
static uint32_t copy_row(const char *from, uint32_t n, uint16_t *to, size_t chunk)
{
    uint32_t kinds = 0, d = 0;
    for (; d + 32 <= n; d += 32, to += chunk)
        kinds |= bf16_copy(to, from + (size_t)d * sizeof *to);
    if (d < n) {
        uint16_t rest[32] = {0};
        memcpy(rest, from + (size_t)d * sizeof *to, (n - d) * sizeof *to);
        kinds |= bf16_copy(to, rest);
    }
    return kinds;
}

/* Stages key or value i of a tile at to[term] + at, every 32 numbers `chunk` further. Returns which kinds of
 * numbers it may have. */
static uint32_t stage_row(const struct prefill_block *w, const struct stage_side *side,
                          const struct cpu_keys *keys, uint32_t i, uint32_t terms, uint16_t *const *to,
                          size_t at, size_t chunk)
{
    if (side->type == VEC_BF16 && terms == 1) {
        float factor;
        return copy_row(side_vector(w, side, keys, i, &factor), side->dim, to[0] + at, chunk);
    }
    fetch_row(w, side, keys, i, w->products.rows);
    const bool odd = split_row(w->products.rows, (side->dim + 31) / 32 * 32, terms, to, at, chunk);
    return BF16_LARGE | (odd ? BF16_ODD : 0);
}

/* Where key i of the staged tile `slot` begins. */
INLINE size_t key_at(const struct products *own, uint32_t slot, uint32_t i)
{
    return slot * keys_of_tile(own) + (size_t)(i / TILE_ROWS) * TILE_ROWS * own->depth +
           (size_t)(i % TILE_ROWS) * TILE_DEPTH;
}

/* Where the values of 32 keys of a staged tile begin, from key i on. */
INLINE size_t values_at(const struct products *own, uint32_t slot, uint32_t i)
{
    return slot * values_of_tile(own) + (size_t)i * own->dims;
}

static void stage_keys(const struct prefill_block *w, const struct prefill_tile *tile, struct staged *staged)
{
    const struct products *own = &w->products;
    const struct stage_side side = side_of_keys(w, staged->keys);
    uint32_t all = 0;
    for (uint32_t i = tile->from; i < tile->to; i++) {
        if ((staged->keys->present >> i & 1) == 0)
            continue;
        const uint32_t kinds =
            stage_row(w, &side, staged->keys, i, own->k_terms, own->k, key_at(own, staged->tile, i), FACTORS);
        staged->odd_keys |= (uint64_t)((kinds & BF16_ODD) != 0) << i;
        all |= kinds;
    }
    staged->large_keys = all != 0;
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
            odd |= (uint64_t)((stage_row(w, &side, keys, i, own->v_terms, own->v_rows, at, TILE_DEPTH) &
                               BF16_ODD) != 0)
                   << i;
        else
            for (uint32_t term = 0; term < own->v_terms; term++)
                memset(own->v_rows[term] + at, 0, sizeof(uint16_t) * own->dims);
    }
    for (uint32_t term = 0; term < own->v_terms; term++)
        for (uint32_t d = 0; d < own->dims; d += 32)
            bf16_transpose(own->v_rows[term] + d, own->v_stride,
                           own->v[term] + values_at(own, slot, first) + (size_t)d * TILE_DEPTH, TILE_DEPTH);
    return odd;
}

static struct staged products_stage(const struct prefill_block *w, const struct prefill_tile *tile,
                                    const struct cpu_keys *keys, uint32_t slot)
{
    struct staged staged = {.keys = keys, .tile = slot};
    stage_keys(w, tile, &staged);
    for (uint32_t first = tile->from / TILE_DEPTH * TILE_DEPTH; first < tile->to; first += TILE_DEPTH)
        staged.odd_values |= stage_values(w, tile, keys, slot, first);
    return staged;
}

#endif
