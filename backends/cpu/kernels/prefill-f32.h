/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Products of prefill in f32: keys and values of a tile are staged as dense f32, queries as panels with rows
 * in the lanes. A row's sums are staged: tile (registers), span, total.
 */
#ifndef ATTN_CPU_KERNELS_PREFILL_F32_H
#define ATTN_CPU_KERNELS_PREFILL_F32_H

#include "row-state.h"

/* Query rows of a work item and of a block, keys of a product, and tiles that are staged at a time. */
#define ITEM_ROWS    CPU_PREFILL_ROWS
#define BLOCK_ROWS   64u
#define KEYS_AT_ONCE 1u
#define STAGED_TILES 1u

struct products {
    uint32_t q_panel, k_stride, o_stride; /* floats of a panel; distance of staged keys; of values and sums */
    float *q, *span, *total;
    float *k, *v; /* of this tile; blocks share them */
    float *rows;  /* VEC_LANES queries before they are transposed; shared too */
};

#include "prefill-micro.h"

/* Padding of staged keys and values, in floats, so that their distance is not a power of two. */
#define STAGE_PAD 16u

/* What a tile has that products must know of. */
struct staged {
    bool not_finite; /* some value is not */
};

static uint32_t staged_stride(uint32_t dim)
{
    return (dim + SUM_DIMS - 1) / SUM_DIMS * SUM_DIMS + STAGE_PAD;
}

static void products_lay_out(struct prefill_block *w, float *scratch, size_t *used)
{
    struct products *own = &w->products;
    own->q_panel = vec_padded(w->dim) * PANEL_ROWS;
    own->k_stride = staged_stride(w->dim);
    own->o_stride = staged_stride(w->dim_vo);
    own->q = take_floats(scratch, used, (size_t)(BLOCK_ROWS / PANEL_ROWS) * own->q_panel);
    own->span = take_floats(scratch, used, (size_t)BLOCK_ROWS * own->o_stride);
    own->total = take_floats(scratch, used, (size_t)BLOCK_ROWS * own->o_stride);
}

static void products_lay_out_shared(struct prefill_block *blocks, float *scratch, size_t *used)
{
    float *k = take_floats(scratch, used, (size_t)CPU_TILE_KEYS * blocks->products.k_stride);
    float *v = take_floats(scratch, used, (size_t)CPU_TILE_KEYS * blocks->products.o_stride);
    float *rows = take_floats(scratch, used, (size_t)VEC_LANES * blocks->products.k_stride);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        blocks[b].products.k = k;
        blocks[b].products.v = v;
        blocks[b].products.rows = rows;
    }
}

INLINE uint32_t products_staged_tiles(const struct prefill_block *w)
{
    (void)w;
    return STAGED_TILES;
}

/* Keys of a span. */
INLINE uint32_t products_span_keys(const struct prefill_block *w)
{
    (void)w;
    return CPU_SPAN_KEYS;
}

static void products_begin(void)
{
}

static void products_end(void)
{
}

/* Nothing differs from block to block. */
static void products_open(struct prefill_block *w)
{
    (void)w;
}

static void products_queries(struct prefill_block *w)
{
    const struct cpu_run *run = w->run;
    const vec factor = vec_set(query_factor(run));
    const uint32_t stride = w->products.k_stride, q_panel = w->products.q_panel;
    float *rows = w->products.rows;
    for (uint32_t r = 0; r < w->padded; r += VEC_LANES) {
        memset(rows, 0, sizeof *rows * VEC_LANES * stride);
        for (uint32_t i = 0; i < VEC_LANES && r + i < w->rows; i++)
            prefill_query(w, r + i, 1, rows + (size_t)i * stride);
        float *panel = w->products.q + (size_t)(r / PANEL_ROWS) * q_panel + r % PANEL_ROWS;
        for (uint32_t d = 0; d < w->dim; d += VEC_LANES)
            panel_transpose(rows + d, stride, factor, panel + (size_t)d * PANEL_ROWS);
    }
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

static void scores_of(const struct prefill_block *w, const struct prefill_tile *tile)
{
    for (uint32_t r = 0; r < w->padded; r += PANEL_ROWS)
        panel_scores_tile(w->products.k, w->products.k_stride, tile->from, tile->to,
                          w->products.q + (size_t)(r / PANEL_ROWS) * w->products.q_panel, w->dim,
                          w->score + r);
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

/* Turns the scores of a vector of query rows, from r on, into weights. */
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

/* Adds the tile's weighted values to the span. */
static void sums(const struct prefill_block *w, const struct prefill_tile *tile)
{
    const uint32_t n = tile->to - tile->from, stride = w->products.o_stride;
    for (uint32_t d = 0; d < w->dim_vo; d += SUM_DIMS) {
        const float *v = w->products.v + (size_t)tile->from * stride + d;
        const float *p = w->score + (size_t)tile->from * KEY_STRIDE;
        for (uint32_t r = 0, count; r < w->rows; r += count) { /* a call may include rows behind the last */
            float *o = w->products.span + (size_t)r * stride + d;
            const uint32_t left = w->rows - r;
            count = left <= LAST_ROWS ? LAST_ROWS : left < SUM_ROWS ? SUM_ROWS - 1 : SUM_ROWS;
            if (count == LAST_ROWS)
                rows_sums(LAST_ROWS, n, p + r, v, stride, w->correction + r, w->span_empty, o, stride);
            else if (count == SUM_ROWS)
                rows_sums(SUM_ROWS, n, p + r, v, stride, w->correction + r, w->span_empty, o, stride);
            else
                rows_sums(SUM_ROWS - 1, n, p + r, v, stride, w->correction + r, w->span_empty, o, stride);
        }
    }
}

/* The same row by row, over the keys that each sees: 0 times a NaN or infinity of another key would not be 0.
 */
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

/* A staged tile for one block. */
static void products_tile(struct prefill_block *w, const struct prefill_tile *tile,
                          const struct staged *staged, const struct staged *next)
{
    (void)next;
    scores_of(w, tile);
    for (uint32_t r = 0; r < w->padded; r += VEC_LANES)
        columns_softmax(w, r, tile);
    if (staged->not_finite && !tile->unmasked)
        sums_by_row(w, tile);
    else
        sums(w, tile);
    w->span_empty = false;
}

/* Nothing is left for later. */
static void products_flush(const struct prefill_block *w)
{
    (void)w;
}

/* Adds the spans to totals that have something in them. */
static void products_close_span(struct prefill_block *w)
{
    for (uint32_t r = 0; r < w->rows; r++) {
        const float c = w->m[r] == -INFINITY ? 1 : vec_exp2_scalar(w->m_total[r] - w->m[r]);
        const vec factor = vec_set(c);
        float *total = w->products.total + (size_t)r * w->products.o_stride;
        const float *span = w->products.span + (size_t)r * w->products.o_stride;
        for (uint32_t d = 0; d < w->dim_vo; d += VEC_LANES)
            vec_store(total + d, vec_fma(vec_load_f32(total + d), factor, vec_load_f32(span + d)));
        w->l_total[r] = w->l_total[r] * c + w->l[r];
    }
}

/* The total of row r by its sum of weights, and 0 for -0; rows are asked for in their order. */
static const float *products_row(const struct prefill_block *w, uint32_t r)
{
    float *o = w->products.total + (size_t)r * w->products.o_stride;
    const vec factor = vec_set(1 / w->l_total[r]);
    for (uint32_t d = 0; d < w->dim_vo; d += VEC_LANES)
        vec_store(o + d, vec_add(vec_mul(vec_load_f32(o + d), factor), vec_zero()));
    return o;
}

#endif
