/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Products of prefill by vector instructions: queries are panels with rows in the lanes, a key or a value of
 * a tile is broadcast or read as a vector. Operands lie in slots of 32 bits: an f32, or two numbers that
 * follow each other where products are summed, of a key and a query two dimensions, of weights and values two
 * keys. A row's sums are staged: tile (registers), span, total.
 *
 * Included behind what a kind of numbers defines: SLOT_NUMBERS, those of a slot, and product_add, the sum of
 * products of the slots of two vectors and of what was there. What else it defines is declared below.
 */
#ifndef ATTN_CPU_KERNELS_PREFILL_VECTORS_H
#define ATTN_CPU_KERNELS_PREFILL_VECTORS_H

/* Query rows of a work item and of a block, keys of a product, and tiles that are staged at a time. */
#define ITEM_ROWS    CPU_PREFILL_ROWS
#define BLOCK_ROWS   64u
#define KEYS_AT_ONCE SLOT_NUMBERS
#define STAGED_TILES 1u

struct products {
    uint32_t q_panel, k_stride, o_stride; /* slots of a panel; distance of staged keys; of values and sums */
    uint32_t row_stride;                  /* of `rows` */
    float *q, *span, *total;
    float *k, *v; /* of this tile; blocks share them */
    float *rows;  /* VEC_LANES queries before they are transposed, or any use; shared too */
};

/* What a tile has that products must know of. */
struct staged {
    bool not_finite; /* some value is not */
};

#include "prefill-micro.h"

/* VEC_LANES query rows, and as many of their dimensions, into columns of a panel. */
static void queries_into_panel(const struct prefill_block *w, const float *rows, float *panel);
/* Turns the scores of a vector of query rows, from r on, into weights. */
static void columns_softmax(struct prefill_block *w, uint32_t r, const struct prefill_tile *tile);
/* Adds values row by row, over the keys that each sees: 0 times a NaN or infinity of another key would not be
 * 0. */
static void sums_by_row(const struct prefill_block *w, const struct prefill_tile *tile);

/* Padding of staged keys and values, in floats, so that their distance is not a power of two. */
#define STAGE_PAD 16u

/* Slots of so many numbers. */
INLINE uint32_t slots_of(uint32_t numbers)
{
    return (numbers + SLOT_NUMBERS - 1) / SLOT_NUMBERS;
}

static uint32_t staged_stride(uint32_t dim)
{
    return (dim + SUM_DIMS - 1) / SUM_DIMS * SUM_DIMS + STAGE_PAD;
}

static void products_lay_out(struct prefill_block *w, float *scratch, size_t *used)
{
    struct products *own = &w->products;
    own->q_panel = vec_padded(w->dim) / SLOT_NUMBERS * PANEL_ROWS;
    own->k_stride = staged_stride(slots_of(w->dim));
    own->row_stride = staged_stride(w->dim > w->dim_vo ? w->dim : w->dim_vo);
    own->o_stride = staged_stride(w->dim_vo);
    own->q = take_floats(scratch, used, (size_t)(BLOCK_ROWS / PANEL_ROWS) * own->q_panel);
    own->span = take_floats(scratch, used, (size_t)BLOCK_ROWS * own->o_stride);
    own->total = take_floats(scratch, used, (size_t)BLOCK_ROWS * own->o_stride);
}

static void products_lay_out_shared(struct prefill_block *blocks, float *scratch, size_t *used)
{
    float *k = take_floats(scratch, used, (size_t)CPU_TILE_KEYS * blocks->products.k_stride);
    float *v = take_floats(scratch, used, (size_t)CPU_TILE_KEYS * blocks->products.o_stride);
    float *rows = take_floats(scratch, used, (size_t)VEC_LANES * blocks->products.row_stride);
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
    const uint32_t stride = w->products.row_stride, q_panel = w->products.q_panel;
    float *rows = w->products.rows;
    for (uint32_t r = 0; r < w->padded; r += VEC_LANES) {
        memset(rows, 0, sizeof *rows * VEC_LANES * stride);
        for (uint32_t i = 0; i < VEC_LANES && r + i < w->rows; i++)
            prefill_query(w, r + i, 1, rows + (size_t)i * stride);
        float *panel = w->products.q + (size_t)(r / PANEL_ROWS) * q_panel + r % PANEL_ROWS;
        for (uint32_t d = 0; d < w->dim; d += VEC_LANES)
            queries_into_panel(w, rows + d, panel + (size_t)slots_of(d) * PANEL_ROWS);
    }
}

static void scores_of(const struct prefill_block *w, const struct prefill_tile *tile)
{
    for (uint32_t r = 0; r < w->padded; r += PANEL_ROWS)
        panel_scores_tile(w->products.k, w->products.k_stride, tile->from, tile->to,
                          w->products.q + (size_t)(r / PANEL_ROWS) * w->products.q_panel, slots_of(w->dim),
                          w->score + r);
}

/* Adds the tile's weighted values to the span. */
static void sums(const struct prefill_block *w, const struct prefill_tile *tile)
{
    const uint32_t first = tile->from / SLOT_NUMBERS, n = slots_of(tile->to) - first;
    const uint32_t stride = w->products.o_stride;
    for (uint32_t d = 0; d < w->dim_vo; d += SUM_DIMS) {
        const float *v = w->products.v + (size_t)first * stride + d;
        const float *p = w->score + (size_t)first * SLOT_NUMBERS * KEY_STRIDE;
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

/* A staged tile for one block. A key that no row sees may share a slot with one that rows see. */
static void products_tile(struct prefill_block *w, const struct prefill_tile *tile,
                          const struct staged *staged, const struct staged *next)
{
    const bool whole = tile->unmasked && tile->from % SLOT_NUMBERS == 0 && tile->to % SLOT_NUMBERS == 0;
    (void)next;
    scores_of(w, tile);
    for (uint32_t r = 0; r < w->padded; r += VEC_LANES)
        columns_softmax(w, r, tile);
    if (staged->not_finite && !whole)
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
