/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Products of decode by tile instructions, for keys and values of int8 and bf16 and groups of many query
 * heads, where the other products are bound by arithmetic.
 *
 * Scores are K Q^T: sixteen keys are the rows of a tile as they lie in a page, and query rows its columns.
 * Sums are P V: query rows are the rows, and values are interleaved on their way to a tile, four of int8 or
 * two of bf16 of the same dimension side by side. A number of a query, and a weight, is split into terms with
 * columns or rows of their own. For int8 these are three digits to base 256 of a fixed-point number, relative
 * to the largest of its row, and products and sums are exact; else as many bf16 as the number has digits for.
 *
 * What terms cannot express, above all a number that is not finite, makes a score or a sum that is not
 * finite, or the row's largest number is out of range. Such a row's scores or sums of a tile are computed
 * again by the other products. Nothing of a row depends on another row.
 */
#ifndef ATTN_CPU_KERNELS_DECODE_PRODUCTS_H
#define ATTN_CPU_KERNELS_DECODE_PRODUCTS_H

#include "decode-int8.h"

#ifdef VEC_TILES

/* Bytes of a row of a tile, of a tile, and floats of a tile of sums. */
#define PIECE      64u
#define TILE_BYTES (TILE_ROWS * PIECE)
#define TILE_SUMS  (TILE_ROWS * VEC_LANES)
/* Query heads of a group from which on these products are faster, with values of int8 and of bf16; a test
 * defines its own. */
#ifndef TILED_GROUP_INT8
#define TILED_GROUP_INT8 8u
#define TILED_GROUP_BF16 12u
#endif
/* kv heads whose queries are staged at once, those that share a tile of keys, and bytes of staged values,
 * which stay in the L1 cache. */
#define PRODUCT_HEADS  32u
#define TOGETHER_HEADS 8u
#define VALUE_BYTES    8192u
/* Terms of a number at most; columns of query rows, whose terms are side by side. */
#define MOST_TERMS 3u
#define FOUR       4u
/* Bits of the largest fixed-point number of a row; a row whose largest number is smaller than this has none.
 */
#define FIXED_BITS 22u
#define FIXED_MIN  0x1p-80f

_Static_assert(VEC_LANES == TILE_ROWS, "a vector is a row of sums");

/* Whether vectors of a type are whole rows of tiles. */
static bool tiled_type(uint32_t dtype, uint32_t dim)
{
    return (dtype == ATTN_INT8 || dtype == ATTN_BF16) && dim * vec_size(vec_type_of(dtype)) % PIECE == 0;
}

static uint32_t tiled_groups(uint32_t rows, uint32_t each)
{
    return (rows + each - 1) / each;
}

/* The bf16 that make up a number of a query exactly, or if it was multiplied with a scale, an f32; 1 of
 * codes. */
static uint32_t query_terms(const struct attn_problem *problem)
{
    if (int8_products(problem))
        return 1;
    if (problem->k_dtype == ATTN_INT8 || problem->q_dtype == ATTN_F32 || problem->q_scale != ATTN_SCALES_NONE)
        return MOST_TERMS;
    return problem->q_dtype == ATTN_BF16 ? 1 : 2;
}

/* Tiles of queries that a loop may need. */
static size_t tiled_query_tiles(const struct decode_products *own, uint32_t all_rows)
{
    size_t most = 0;
    for (uint32_t rows = 1; rows <= CPU_DECODE_ROWS; rows++) {
        const uint32_t heads = all_rows / rows < PRODUCT_HEADS ? all_rows / rows : PRODUCT_HEADS;
        const size_t tiles = (size_t)heads * tiled_groups(rows, own->q_rows);
        most = tiles > most ? tiles : most;
    }
    return most;
}

static void tiled_lay_out(struct decode_block *w, const struct attn_problem *problem, float *scratch,
                          size_t *used)
{
    struct decode_products *own = &w->products;
    const uint32_t k_dtype = problem->k_dtype, v_dtype = problem->mla != 0 ? k_dtype : problem->v_dtype;
    const size_t pieces = (size_t)w->dim * vec_size(vec_type_of(k_dtype)) / PIECE;
    const size_t columns = (w->dim_vo + 4 * TILE_ROWS - 1) / (4 * TILE_ROWS) * 4;
    own->scores_in_int = k_dtype == ATTN_INT8;
    own->sums_in_int = v_dtype == ATTN_INT8;
    own->used =
        tiled_type(k_dtype, w->dim) && tiled_type(v_dtype, w->dim_vo) &&
        problem->heads / problem->kv_heads >= (own->sums_in_int ? TILED_GROUP_INT8 : TILED_GROUP_BF16);
    if (!own->used)
        return;
    own->q_terms = query_terms(problem);
    own->q_rows = own->q_terms == MOST_TERMS ? FOUR : TILE_ROWS / own->q_terms;
    own->p_terms = own->sums_in_int || problem->out_dtype == ATTN_F32 ? MOST_TERMS : 2;
    own->p_rows = TILE_ROWS / own->p_terms;
    own->value_heads = VALUE_BYTES / ((uint32_t)columns * (own->sums_in_int ? 1 : 2) * TILE_BYTES);
    own->value_heads = own->value_heads == 0                  ? 1
                       : own->value_heads < problem->kv_heads ? own->value_heads
                                                              : problem->kv_heads;
    own->together = TOGETHER_HEADS;
    const size_t tiles = tiled_query_tiles(own, decode_rows(problem));
    own->q = take_objects(scratch, used, tiles * pieces, TILE_BYTES);
    own->unit = take_floats(scratch, used, decode_rows(problem));
    own->odd = take_objects(scratch, used, decode_rows(problem), sizeof *own->odd);
    own->query = take_floats(scratch, used, w->dim);
    own->keys = take_objects(scratch, used, 2 * pieces, TILE_BYTES);
    own->v = take_objects(scratch, used, own->value_heads * columns * (own->sums_in_int ? 1 : 2), TILE_BYTES);
    own->p_groups = tiled_groups(CPU_DECODE_ROWS, own->p_rows);
    own->p = take_objects(scratch, used, (size_t)own->value_heads * own->p_groups * 2, TILE_BYTES);
    own->p_unit = take_floats(scratch, used, decode_rows(problem));
    own->sums = take_objects(scratch, used, 4, TILE_BYTES);
}

/* What numbers up to `largest` are multiplied with to be fixed-point numbers; *unit is its inverse. */
INLINE float fixed_scale(float largest, float *unit)
{
    uint32_t bits;
    memcpy(&bits, &largest, sizeof bits);
    const uint32_t exponent = bits >> 23; /* `largest` is below 2^(exponent - 126) */
    const uint32_t up = (127 + 126 + FIXED_BITS - exponent) << 23, down = (exponent + 1 - FIXED_BITS) << 23;
    float scale;
    memcpy(&scale, &up, sizeof scale);
    memcpy(unit, &down, sizeof *unit);
    return scale;
}

/* The largest size of n numbers, a multiple of VEC_LANES; NaN if there is one. */
INLINE float largest_of(const float *x, uint32_t n)
{
    vec max = vec_zero(), probe = vec_zero();
    for (uint32_t i = 0; i < n; i += VEC_LANES) {
        const vec y = vec_load_f32(x + i);
        max = vec_max(vec_abs(y), max);
        probe = vec_fma(y, vec_zero(), probe);
    }
    return vec_any_nan(probe) ? NAN : vec_reduce_max(max);
}

/* One query row's columns in its group's tiles: of four rows, then of their next terms. */
static void stage_query(const struct decode_block *w, const float *q, uint32_t i, char *tiles)
{
    const struct decode_products *own = &w->products;
    const uint32_t r = i % w->rows % own->q_rows;
    const uint32_t column = r / FOUR * FOUR * own->q_terms + r % FOUR;
    const float largest = largest_of(q, w->dim);
    uint32_t words[MOST_TERMS][TILE_ROWS];
    float scale = 1;
    own->odd[i] = false;
    own->unit[i] = own->scores_in_int ? 0 : query_factor(w->run);
    if (own->scores_in_int && largest != 0) {
        own->odd[i] = !(largest >= FIXED_MIN && largest < INFINITY);
        scale = own->odd[i] ? 0 : fixed_scale(largest, &own->unit[i]);
    }
    const uint32_t step = own->scores_in_int ? 4 * VEC_LANES : 2 * VEC_LANES;
    for (uint32_t d = 0; d < w->dim; d += step, tiles += TILE_BYTES) {
        if (own->scores_in_int)
            int8_terms(q + d, scale, words);
        else
            bf16_terms(q + d, own->q_terms, words);
        for (uint32_t term = 0; term < own->q_terms; term++)
            for (uint32_t row = 0; row < TILE_ROWS; row++)
                memcpy(tiles + row * PIECE + (column + term * FOUR) * sizeof(uint32_t), &words[term][row],
                       sizeof(uint32_t));
    }
}

/* The same of a query whose codes are its only terms. */
static void stage_codes(const struct decode_block *w, const dot_code *q, uint32_t i, char *tiles)
{
    const uint32_t column = i % w->rows % w->products.q_rows;
    w->products.odd[i] = false;
    w->products.unit[i] = 1;
    for (uint32_t d = 0; d < w->dim; d += PIECE, tiles += TILE_BYTES)
        for (uint32_t row = 0; row < TILE_ROWS; row++, q += 4)
            for (uint32_t j = 0; j < 4; j++)
                tiles[row * PIECE + column * 4 + j] = (char)q[j];
}

static size_t query_tile(const struct decode_block *w, uint32_t head, uint32_t group)
{
    const uint32_t pieces = w->dim * vec_size(w->k_type) / PIECE;
    return (size_t)(head * w->products.groups + group) * pieces * TILE_BYTES;
}

/*
 * Stages the queries. For int8 they are those of the other products; for bf16 they keep their digits, and
 * scores are multiplied with what the others multiply queries with.
 */
static void tiled_queries(struct decode_block *w)
{
    struct decode_products *own = &w->products;
    const struct cpu_run *run = w->run;
    own->groups = tiled_groups(w->rows, own->q_rows);
    for (uint32_t i = 0; i < w->heads * w->rows; i++) {
        char *tiles = own->q + query_tile(w, i / w->rows, i % w->rows / own->q_rows);
        float *q = w->q + (size_t)i * w->q_stride;
        if (w->ints) {
            stage_codes(w, int8_codes(q), i, tiles);
            continue;
        }
        if (!own->scores_in_int) {
            const uint32_t t = i % w->rows / run->group;
            query_convert(run, w->work, t, (w->head + i / w->rows) * run->group + i % run->group, 1,
                          own->query);
            q = own->query;
        }
        stage_query(w, q, i, tiles);
    }
}

/* Whether the keys of a block have the distance of tokens. */
INLINE bool block_whole(const struct cursor *cursor, uint32_t block)
{
    const int64_t *offsets = cursor->offsets + cursor->first[block];
    uint64_t apart = 0;
    for (uint32_t j = 0; j < TILE_ROWS; j++)
        apart |= (uint64_t)(offsets[j] - offsets[0] - (int64_t)j * cursor->token_stride);
    return apart == 0;
}

/* Sixteen keys of one kv head. */
struct block_keys {
    const char *at;
    size_t stride; /* modulo 2^64 */
};

/* Where a block's keys are for one kv head; those of a block that is not whole are copied to `copy`. */
INLINE struct block_keys block_keys_of(const struct cursor *cursor, uint32_t block, uint32_t head, bool whole,
                                       uint32_t bytes, char *copy)
{
    const int64_t *offsets = cursor->offsets + cursor->first[block];
    const char *base = cursor->base + (int64_t)head * cursor->head_stride;
    if (whole)
        return (struct block_keys){base + offsets[0], (size_t)cursor->token_stride};
    for (uint32_t j = 0; j < TILE_ROWS; j++)
        memcpy(copy + (size_t)j * bytes, base + offsets[j], bytes);
    tile_fence();
    return (struct block_keys){copy, bytes};
}

/*
 * Prefetches the keys or values of `count` blocks from `block` on for one kv head; those behind the last one
 * are the first ones of `next`.
 */
INLINE void prefetch_blocks(const struct cursor *cursor, const struct cursor *next, uint32_t block,
                            uint32_t head, uint32_t count, uint32_t bytes)
{
    for (uint32_t end = block + count; block < end; block++) {
        const bool inside = block < cursor->count;
        const struct cursor *from = inside ? cursor : next;
        const uint32_t i = inside ? block : block - cursor->count;
        if (i >= from->count || head >= from->heads)
            return;
        const int64_t *offsets = from->offsets + from->first[i];
        const char *base = from->base + (int64_t)head * from->head_stride;
        for (uint32_t j = 0; j < TILE_ROWS; j++)
            for (uint32_t d = 0; d < bytes; d += CACHE_LINE)
                __builtin_prefetch(base + offsets[j] + d, 0, 3);
    }
}

/* Scores of two blocks for a group of queries, [key][column], to sums and behind them. */
INLINE void block_scores(bool ints, const struct block_keys *k, const char *q, uint32_t pieces, float *sums)
{
    tile_clear(0);
    tile_clear(1);
    for (uint32_t i = 0; i < pieces; i++) {
        tile_load(2, q + (size_t)i * TILE_BYTES, PIECE);
        tile_load(3, k[0].at + (size_t)i * PIECE, k[0].stride);
        tile_product_of(ints, 0, 3, 2);
        tile_load(4, k[1].at + (size_t)i * PIECE, k[1].stride);
        tile_product_of(ints, 1, 4, 2);
    }
    tile_store(0, sums, PIECE);
    tile_store(1, sums + TILE_SUMS, PIECE);
}

/* The sum of the terms of four rows of queries: sixteen keys of each. */
INLINE void join_scores_of(bool ints, uint32_t terms, const float *sums, vec *out)
{
    vec a[FOUR];
    UNROLL
    for (uint32_t i = 0; i < FOUR; i++) {
        a[i] = vec_zero();
        UNROLL
        for (uint32_t term = terms; term-- > 0;) {
            const vec x = vec_load_fours(sums + i * VEC_LANES + term * FOUR, FOUR * VEC_LANES);
            if (ints)
                a[i] = vec_fma(vec_of_ints(x), vec_set((float)(1u << 8 * term)), a[i]);
            else
                a[i] = vec_add(a[i], x);
        }
    }
    vec_transpose4(a, out);
}

/* A group of queries whose products with one or two blocks are under way. */
struct pending {
    size_t row;
    uint32_t rows, key[2], blocks;
};

INLINE void pending_finish(const struct decode_block *w, bool ints, uint32_t terms, const struct pending *p,
                           const float *sums)
{
    for (uint32_t i = 0; i < p->blocks; i++, sums += TILE_SUMS)
        for (uint32_t r = 0; r < p->rows; r += FOUR) {
            vec x[FOUR];
            join_scores_of(ints, terms, sums + (size_t)r * terms, x);
            for (uint32_t j = 0; j < FOUR && r + j < p->rows; j++)
                vec_store(w->score + (p->row + r + j) * SCORE_STRIDE + p->key[i],
                          vec_mul(x[j], vec_set(w->products.unit[p->row + r + j])));
        }
}

INLINE void tiled_scores_of(const struct decode_block *w, bool ints, uint32_t terms, size_t row,
                            const struct cursor *keys, const struct cursor *next)
{
    const struct decode_products *own = &w->products;
    const uint32_t bytes = w->dim * (ints ? 1 : 2), pieces = bytes / PIECE;
    const size_t copy = (size_t)pieces * TILE_BYTES;
    struct pending before = {.blocks = 0};
    float *sums = own->sums, *sums_before = own->sums + 2 * TILE_SUMS;
    for (uint32_t b = 0; b < keys->count; b += 2) {
        const uint32_t blocks = keys->count - b < 2 ? 1 : 2, last = b + blocks - 1;
        const bool whole = block_whole(keys, b), last_whole = block_whole(keys, last);
        for (uint32_t h = 0; h < keys->heads; h++) {
            const struct block_keys k[2] = {
                block_keys_of(keys, b, h, whole, bytes, own->keys),
                block_keys_of(keys, last, h, last_whole, bytes, own->keys + copy)};
            if (h + 1 < keys->heads)
                prefetch_blocks(keys, next, b, h + 1, 2, bytes);
            else
                prefetch_blocks(keys, next, b + 2, 0, 2, bytes);
            for (uint32_t g = 0; g < own->groups; g++) {
                const uint32_t r = g * own->q_rows, left = w->rows - r;
                block_scores(ints, k, own->q + query_tile(w, (uint32_t)(row / w->rows) + h, g), pieces, sums);
                pending_finish(w, ints, terms, &before, sums_before);
                before = (struct pending){row + (size_t)h * w->rows + r,
                                          left < own->q_rows ? left : own->q_rows,
                                          {keys->first[b], keys->first[last]},
                                          blocks};
                float *swap = sums;
                sums = sums_before;
                sums_before = swap;
                tile_fence();
            }
        }
    }
    pending_finish(w, ints, terms, &before, sums_before);
}

/* Q·K as by decode_qk, of all rows. */
static void tiled_scores(const struct decode_block *w, size_t row, const struct cursor *keys,
                         const struct cursor *next)
{
    const uint32_t terms = w->products.q_terms;
    if (w->ints)
        tiled_scores_of(w, true, 1, row, keys, next);
    else if (w->products.scores_in_int)
        tiled_scores_of(w, true, MOST_TERMS, row, keys, next);
    else if (terms == 1)
        tiled_scores_of(w, false, 1, row, keys, next);
    else if (terms == 2)
        tiled_scores_of(w, false, 2, row, keys, next);
    else
        tiled_scores_of(w, false, MOST_TERMS, row, keys, next);
}

/* Whether a row's scores have to be computed again: a number that is not finite among those it sees. */
static bool tiled_row_odd(const struct decode_block *w, size_t row, uint64_t seen)
{
    const float *s = w->score + row * SCORE_STRIDE;
    vec probe = vec_zero();
    if (w->products.scores_in_int)
        return w->products.odd[row];
    for (uint32_t i = 0; i < CPU_TILE_KEYS; i += VEC_LANES) {
        const vec_bool lanes = vec_lanes((uint32_t)(seen >> i) & vec_all_lanes());
        probe = vec_fma(vec_select(lanes, vec_load_f32(s + i), vec_zero()), vec_zero(), probe);
    }
    return vec_any_nan(probe);
}

/* Bytes of the tiles of a kv head's values. */
INLINE size_t value_bytes(const struct decode_block *w, bool ints)
{
    return (size_t)((w->dim_vo + 63) / 64 * 4) * (ints ? 1 : 2) * TILE_BYTES;
}

/* Interleaves a block of values into their tiles. */
INLINE void interleave_block(const struct decode_block *w, bool ints, const struct cursor *values, uint32_t i,
                             char *to)
{
    const int64_t *offsets = values->offsets + values->first[i / values->heads];
    const char *base = values->base + (int64_t)(i % values->heads) * values->head_stride;
    const uint32_t block = values->first[i / values->heads] / TILE_ROWS;
    const size_t column = (ints ? 1 : 2) * TILE_BYTES; /* bytes of the keys of sixteen dimensions */
    const uint32_t bytes = w->dim_vo * (ints ? 1 : 2);
    for (uint32_t at = 0; at < bytes; at += PIECE) {
        if (ints) {
            for (uint32_t j = 0; j < 4; j++)
                bytes_interleave(base + at, offsets + 4 * j, to + (4 * j + block) * PIECE, column);
            to += 4 * column;
        } else {
            char *half = to + block / 2 * TILE_BYTES + block % 2 * (TILE_BYTES / 2);
            for (uint32_t j = 0; j < 8; j++)
                words_interleave(base + at, offsets + 2 * j, half + j * PIECE, column);
            to += 2 * column;
        }
    }
}

/* The tiles of weights of row r of a kv head, one of those whose values are staged together. */
INLINE char *weight_tiles(const struct decode_products *own, uint32_t head, uint32_t r)
{
    return own->p + (size_t)(head * own->p_groups + r / own->p_rows) * 2 * TILE_BYTES;
}

/* Weights of the rows of a kv head to rows of tiles. */
static void stage_weights(const struct decode_block *w, bool ints, size_t row, uint32_t head)
{
    const struct decode_products *own = &w->products;
    for (uint32_t r = 0; r < w->rows; r++) {
        const float *p = w->score + (row + r) * SCORE_STRIDE;
        char *to = weight_tiles(own, head, r) + r % own->p_rows * PIECE;
        if (w->seen[row + r] == 0)
            continue;
        if (ints) {
            const float largest = largest_of(p, CPU_TILE_KEYS);
            float scale = 0, *unit = &own->p_unit[row + r];
            *unit = largest == 0 ? 0 : NAN;
            if (largest >= FIXED_MIN && largest < INFINITY)
                scale = fixed_scale(largest, unit);
            int8_weights(p, scale, to, own->p_rows * PIECE);
        } else {
            bf16_weights(p, own->p_terms, to, own->p_rows * PIECE, TILE_BYTES);
        }
    }
}

/* Sixty-four dimensions of a row, row r of four tiles of sums, in their order. */
INLINE void join_sums(const struct decode_products *own, bool ints, uint32_t r, size_t row, float *to,
                      uint32_t dims)
{
    const uint32_t terms = ints ? MOST_TERMS : own->p_terms;
    vec a[4], x[4];
    UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        const float *s = own->sums + j * TILE_SUMS + r * VEC_LANES;
        a[j] = vec_zero();
        for (uint32_t term = terms; term-- > 0;) {
            const vec y = vec_load_f32(s + term * own->p_rows * VEC_LANES);
            a[j] = ints ? vec_fma(vec_of_ints(y), vec_set((float)(1u << 8 * term)), a[j]) : vec_add(a[j], y);
        }
        if (ints)
            a[j] = vec_mul(a[j], vec_set(own->p_unit[row]));
    }
    if (ints)
        bytes_order(a, x);
    else
        words_order(a, x);
    for (uint32_t j = 0; j * VEC_LANES < dims; j++)
        vec_store(to + j * VEC_LANES, x[j]);
}

/* Sums of n rows of a kv head whose weights are in the tiles at p, and values at v. */
INLINE void head_sums(const struct decode_block *w, bool ints, size_t row, uint32_t n, const char *p,
                      const char *v)
{
    const struct decode_products *own = &w->products;
    const size_t column = (ints ? 1 : 2) * TILE_BYTES;
    tile_load(5, p, PIECE);
    if (!ints)
        tile_load(6, p + TILE_BYTES, PIECE);
    for (uint32_t d = 0; d < w->dim_vo; d += 64, v += 4 * column) {
        tile_clear(0);
        tile_clear(1);
        tile_clear(2);
        tile_clear(3);
        tile_load(4, v, PIECE);
        tile_product_of(ints, 0, 5, 4);
        tile_load(7, v + column, PIECE);
        tile_product_of(ints, 1, 5, 7);
        tile_load(4, v + 2 * column, PIECE);
        tile_product_of(ints, 2, 5, 4);
        tile_load(7, v + 3 * column, PIECE);
        tile_product_of(ints, 3, 5, 7);
        if (!ints) {
            tile_load(4, v + TILE_BYTES, PIECE);
            tile_product(0, 6, 4);
            tile_load(7, v + column + TILE_BYTES, PIECE);
            tile_product(1, 6, 7);
            tile_load(4, v + 2 * column + TILE_BYTES, PIECE);
            tile_product(2, 6, 4);
            tile_load(7, v + 3 * column + TILE_BYTES, PIECE);
            tile_product(3, 6, 7);
        }
        tile_store(0, own->sums, PIECE);
        tile_store(1, own->sums + TILE_SUMS, PIECE);
        tile_store(2, own->sums + 2 * TILE_SUMS, PIECE);
        tile_store(3, own->sums + 3 * TILE_SUMS, PIECE);
        tile_fence();
        for (uint32_t r = 0; r < n; r++)
            if (w->seen[row + r] != 0)
                join_sums(own, ints, r, row + r, w->tile + (row + r) * w->o_stride + d,
                          w->dim_vo - d < 64 ? w->dim_vo - d : 64);
    }
}

/* The cursor of some of the heads of another. */
INLINE struct cursor cursor_heads(const struct cursor *all, uint32_t first, uint32_t heads)
{
    struct cursor some = *all;
    some.base += (int64_t)first * all->head_stride;
    some.heads = heads;
    return some;
}

/* Sums of kv heads whose values are staged together. */
INLINE void heads_sums(const struct decode_block *w, bool ints, size_t row, const struct cursor *values,
                       const struct cursor *then)
{
    const struct decode_products *own = &w->products;
    const size_t bytes = value_bytes(w, ints);
    memset(own->v, 0, values->count * TILE_ROWS < CPU_TILE_KEYS ? bytes * values->heads : 0);
    for (uint32_t h = 0; h < values->heads; h++)
        stage_weights(w, ints, row + (size_t)h * w->rows, h);
    for (uint32_t i = 0; i < values->count * values->heads; i++) {
        if (then->count != 0)
            prefetch_blocks(then, then, i / values->heads, i % values->heads, 1, w->dim_vo * (ints ? 1 : 2));
        interleave_block(w, ints, values, i, own->v + i % values->heads * bytes);
    }
    tile_fence();
    for (uint32_t h = 0; h < values->heads; h++) {
        for (uint32_t r = 0; r < w->rows; r += own->p_rows) {
            const uint32_t left = w->rows - r;
            head_sums(w, ints, row + (size_t)h * w->rows + r, left < own->p_rows ? left : own->p_rows,
                      weight_tiles(own, h, r), own->v + h * bytes);
        }
    }
}

INLINE void tiled_sums_of(const struct decode_block *w, bool ints, size_t row, const struct cursor *values,
                          const struct cursor *next)
{
    const uint32_t most = w->products.value_heads;
    for (uint32_t h = 0; h < values->heads; h += most) {
        const uint32_t left = values->heads - h;
        const struct cursor now = cursor_heads(values, h, left < most ? left : most);
        const struct cursor then = cursor_heads(values, h + most, left < 2 * most ? left - most : most);
        heads_sums(w, ints, row + (size_t)h * w->rows, &now, left > most ? &then : next);
    }
}

/* P·V as by decode_pv, of all rows. */
static void tiled_sums(const struct decode_block *w, size_t row, const struct cursor *values,
                       const struct cursor *next)
{
    if (w->products.sums_in_int)
        tiled_sums_of(w, true, row, values, next);
    else
        tiled_sums_of(w, false, row, values, next);
}

/* From here to tiled_end the tiles are there. */
static void tiled_begin(struct decode_block *w)
{
    if (!w->products.used)
        return;
    w->rules.step = TILE_ROWS;
    tiles_begin();
}

static void tiled_end(const struct decode_block *w)
{
    if (w->products.used)
        tiles_end();
}

#else

/* Levels without tiles do not use these products. */
#define PRODUCT_HEADS DECODE_ROWS

static void tiled_lay_out(struct decode_block *w, const struct attn_problem *problem, float *scratch,
                          size_t *used)
{
    (void)problem, (void)scratch, (void)used;
    w->products.used = false;
}

static void tiled_begin(struct decode_block *w)
{
    (void)w;
}

static void tiled_end(const struct decode_block *w)
{
    (void)w;
}

static void tiled_queries(struct decode_block *w)
{
    (void)w;
}

static void tiled_scores(const struct decode_block *w, size_t row, const struct cursor *keys,
                         const struct cursor *next)
{
    (void)w, (void)row, (void)keys, (void)next;
}

static bool tiled_row_odd(const struct decode_block *w, size_t row, uint64_t seen)
{
    (void)w, (void)row, (void)seen;
    return false;
}

static void tiled_sums(const struct decode_block *w, size_t row, const struct cursor *values,
                       const struct cursor *next)
{
    (void)w, (void)row, (void)values, (void)next;
}

#endif

#endif
