/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention of few query rows (decode, short drafts): one KV loop in memory order, all query heads of a kv
 * head sharing each load.
 *
 * Keys are processed in tiles. A tile's scores are computed for some kv heads at once, a step of keys of
 * every one of these heads, then the next step, so that a page of consecutive tokens is read as one run of
 * bytes; its values likewise. A row's sums are staged: tile, span, total. What a row is computed from, and in
 * which order, depends on the keys that it sees alone.
 *
 * Included by level.c behind the operations of a level.
 */
#ifndef ATTN_CPU_KERNELS_DECODE_H
#define ATTN_CPU_KERNELS_DECODE_H

#include "decode-tile.h"
#include "row-state.h"

/* Query rows whose state is kept at once; further kv heads take another KV loop. */
#define DECODE_ROWS 128u
/* Floats of queries, or of sums of a tile, of the kv heads that share a tile: as many as stay in the L1
 * cache. */
#define L1_FLOATS 6144u

/* State of one KV loop. Query rows are numbered (kv head, token, query head of the group). */
struct decode_block {
    const struct cpu_run *run;
    const struct attn_work_item *work;
    uint32_t head, heads; /* kv heads of this loop */
    uint32_t together;    /* kv heads that share a tile */
    uint32_t rows;        /* query rows of a kv head */
    uint32_t dim, dim_vo;
    uint32_t q_stride, o_stride;
    enum vec_type k_type, v_type;
    float cap; /* soft cap in units of log2, 0 = none */
    uint32_t lo[CPU_DECODE_ROWS], hi[CPU_DECODE_ROWS];
    float *q, *score, *tile, *span, *total;
    float *m, *m_total, *l, *l_total; /* row max in units of log2, row sum */
    float *correction;                /* factor of a row's span for this tile */
};

static uint32_t decode_rows(const struct attn_problem *problem)
{
    const uint64_t rows = (uint64_t)CPU_DECODE_ROWS * problem->kv_heads;
    return rows < DECODE_ROWS ? (uint32_t)rows : DECODE_ROWS;
}

/* Heads shorter than a vector cannot be read in place; prefill stages them. */
static bool decode_too_short(const struct attn_problem *problem)
{
    return problem->head_dim < VEC_LANES || problem->head_dim_vo < VEC_LANES;
}

/* The block's shape, and its arrays in `scratch`, which may be NULL. Returns the bytes of the arrays. */
static uint64_t decode_lay_out(struct decode_block *w, const struct attn_problem *problem, float *scratch)
{
    const size_t rows = decode_rows(problem);
    size_t used = 0;
    w->dim = problem->head_dim;
    w->dim_vo = problem->head_dim_vo;
    w->q_stride = vec_padded(w->dim);
    w->o_stride = vec_padded(w->dim_vo);
    w->q = take_floats(scratch, &used, rows * w->q_stride);
    w->tile = take_floats(scratch, &used, rows * w->o_stride);
    w->span = take_floats(scratch, &used, rows * w->o_stride);
    w->total = take_floats(scratch, &used, rows * w->o_stride);
    w->score = take_floats(scratch, &used, rows * SCORE_STRIDE);
    w->m = take_floats(scratch, &used, rows);
    w->m_total = take_floats(scratch, &used, rows);
    w->l = take_floats(scratch, &used, rows);
    w->l_total = take_floats(scratch, &used, rows);
    w->correction = take_floats(scratch, &used, rows);
    return used * sizeof(float);
}

static uint64_t decode_scratch(const struct attn_problem *problem)
{
    struct decode_block block;
    return decode_lay_out(&block, problem, NULL);
}

static void decode_queries(const struct decode_block *w)
{
    const struct cpu_run *run = w->run;
    const vec factor = vec_set(query_factor(run));
    const uint32_t rest = w->dim % VEC_LANES, full = w->dim - rest;
    for (uint32_t i = 0; i < w->heads * w->rows; i++) {
        const uint32_t t = i % w->rows / run->group;
        const uint32_t h = (w->head + i / w->rows) * run->group + i % run->group;
        float *q = w->q + (size_t)i * w->q_stride;
        query_convert(run, (int64_t)w->work->first_token + t, h, factor, q);
        if (rest) { /* the last vector of a key overlaps the one before: zeros there */
            memmove(q + full + VEC_LANES - rest, q + full, rest * sizeof *q);
            memset(q + full, 0, (VEC_LANES - rest) * sizeof *q);
        }
    }
}

static void decode_clear(const struct decode_block *w)
{
    const size_t rows = (size_t)w->heads * w->rows;
    memset(w->span, 0, rows * w->o_stride * sizeof *w->span);
    memset(w->total, 0, rows * w->o_stride * sizeof *w->total);
    for (size_t i = 0; i < rows; i++) {
        w->m[i] = w->m_total[i] = -INFINITY;
        w->l[i] = w->l_total[i] = 0;
    }
}

/* Q·K of the cursor's heads, the first of which has query row `row`, for all their rows. */
static void decode_qk(const struct decode_block *w, size_t row, const struct cursor *keys,
                      const struct cursor *next)
{
    struct step k;
    for (uint32_t i = 0; i < keys->count * keys->heads; i++) {
        const size_t first = row + (size_t)(i % keys->heads) * w->rows;
        float *s = w->score + first * SCORE_STRIDE + keys->first[i / keys->heads];
        cursor_step(keys, next, i, &k);
        for (uint32_t r = 0; r < w->rows; r += STEP_ROWS) {
            const uint32_t n = w->rows - r < STEP_ROWS ? w->rows - r : STEP_ROWS;
            scores_table[w->k_type][n - 1](&k, w->dim, w->q + (first + r) * w->q_stride, w->q_stride,
                                           s + (size_t)r * SCORE_STRIDE);
        }
    }
}

/*
 * Turns a row's scores into weights; `seen` is not 0. Scores of keys that are not seen were not computed, or
 * are of another key.
 */
static void decode_softmax(const struct decode_block *w, size_t row, uint64_t seen)
{
    float *s = w->score + row * SCORE_STRIDE;
    const vec none = vec_set(-INFINITY), cap = vec_set(w->cap);
    vec max = none;
    for (uint32_t i = 0; i < CPU_TILE_KEYS; i += VEC_LANES) {
        const uint32_t lanes = (uint32_t)(seen >> i) & vec_all_lanes();
        vec x = vec_load_f32(s + i);
        if (w->cap > 0)
            x = vec_mul(vec_tanh(x), cap);
        if (lanes != vec_all_lanes())
            x = vec_select(vec_lanes(lanes), x, none);
        vec_store(s + i, x);
        max = vec_max(x, max); /* keeps `max` where x is NaN, which makes the row NaN through its weight */
    }
    const float tile_max = vec_reduce_max(max);
    const float m = tile_max > w->m[row] ? tile_max : w->m[row];
    const float base = m == -INFINITY ? 0 : m;
    vec sum = vec_zero();
    for (uint32_t i = 0; i < CPU_TILE_KEYS; i += VEC_LANES) {
        const vec p = vec_exp2(vec_sub(vec_load_f32(s + i), vec_set(base)));
        vec_store(s + i, p);
        sum = vec_add(sum, p);
    }
    w->correction[row] = vec_exp2_scalar(w->m[row] - base);
    w->l[row] = w->l[row] * w->correction[row] + vec_reduce_add(sum);
    w->m[row] = m;
}

/* P·V of the cursor's heads for query rows [from, from + rows) of each, into the tile's sums. */
static void decode_pv(const struct decode_block *w, size_t row, uint32_t from, uint32_t rows,
                      const struct cursor *values, const struct cursor *next)
{
    struct step v;
    for (uint32_t i = 0; i < values->count * values->heads; i++) {
        const size_t first = row + (size_t)(i % values->heads) * w->rows + from;
        const float *p = w->score + first * SCORE_STRIDE + values->first[i / values->heads];
        cursor_step(values, next, i, &v);
        for (uint32_t r = 0; r < rows; r += STEP_ROWS) {
            const uint32_t n = rows - r < STEP_ROWS ? rows - r : STEP_ROWS;
            sums_table[w->v_type][n - 1](&v, w->dim_vo, p + (size_t)r * SCORE_STRIDE, i < values->heads,
                                         w->tile + (first + r) * w->o_stride, w->o_stride);
        }
    }
}

/* out = out * factor + add, for one row. */
static void row_add(const struct decode_block *w, float *out, float factor, const float *add)
{
    const vec f = vec_set(factor);
    for (uint32_t i = 0; i < w->o_stride; i += VEC_LANES)
        vec_store(out + i, vec_fma(vec_load_f32(out + i), f, vec_load_f32(add + i)));
}

/*
 * One tile for `heads` kv heads, the first of which is `first` of the loop's. Values are read once for all
 * rows if all tokens see the same keys; otherwise token by token, because 0 times the NaN of a value that
 * only another token sees would not be 0.
 */
static void decode_heads(const struct decode_block *w, uint32_t first, uint32_t heads,
                         const struct decode_tile *tile, const struct cursor *next)
{
    const struct cpu_run *run = w->run;
    const size_t row = (size_t)first * w->rows;
    const struct cursor none = {.count = 0};
    struct cursor k, v;
    cursor_init(&k, &run->k, tile->keys.k, tile->any, w->head + first, heads);
    cursor_init(&v, &run->v, tile->keys.v, tile->any, w->head + first, heads);
    decode_qk(w, row, &k, &v);
    for (uint32_t i = 0; i < heads * w->rows; i++) {
        const uint64_t seen = tile->seen[i % w->rows / run->group];
        if (seen)
            decode_softmax(w, row + i, seen);
    }
    if (tile->same_mask) {
        decode_pv(w, row, 0, w->rows, &v, next);
    } else {
        for (uint32_t t = 0; t < w->work->tokens; t++) {
            int64_t offsets[CPU_TILE_KEYS];
            memcpy(offsets, tile->keys.v, sizeof offsets);
            offsets_fill(offsets, tile->seen[t]);
            cursor_init(&v, &run->v, offsets, tile->seen[t], w->head + first, heads);
            decode_pv(w, row, t * run->group, run->group, &v, &none);
        }
    }
    for (uint32_t i = 0; i < heads * w->rows; i++) {
        const size_t at = (row + i) * w->o_stride;
        if (tile->seen[i % w->rows / run->group])
            row_add(w, w->span + at, w->correction[row + i], w->tile + at);
    }
}

/* Adds the spans to the totals and begins new ones. */
static void decode_close_span(const struct decode_block *w)
{
    for (size_t i = 0; i < (size_t)w->heads * w->rows; i++) {
        const float c = w->m[i] == -INFINITY ? 1 : vec_exp2_scalar(w->m_total[i] - w->m[i]);
        row_add(w, w->total + i * w->o_stride, c, w->span + i * w->o_stride);
        w->l_total[i] = w->l_total[i] * c + w->l[i];
        w->m_total[i] = w->m[i];
        w->l[i] = 0;
    }
    memset(w->span, 0, (size_t)w->heads * w->rows * w->o_stride * sizeof *w->span);
}

static void decode_epilogue(const struct decode_block *w)
{
    const uint32_t group = w->run->group;
    float *out = w->tile;
    for (uint32_t i = 0; i < w->heads * w->rows; i++) {
        const float *o = w->total + (size_t)i * w->o_stride;
        const vec inverse = vec_set(1 / w->l_total[i]);
        const uint32_t h = (w->head + i / w->rows) * group + i % group;
        for (uint32_t d = 0; d < vec_count(w->dim_vo); d++) {
            const vec x = vec_mul(vec_load_f32(o + VEC_LANES * (size_t)d), inverse);
            vec_store(out + vec_offset(d, w->dim_vo), x);
        }
        cpu_epilogue(w->run, w->work, i % w->rows / group, h, out, row_lse(w->m_total[i], w->l_total[i]));
    }
}

/* The keys that some token sees lie in [*from, *to). */
static void decode_visible(struct decode_block *w, uint32_t *from, uint32_t *to)
{
    *from = UINT32_MAX;
    *to = 0;
    for (uint32_t t = 0; t < w->work->tokens; t++) {
        cpu_visible(w->run, w->work, t, &w->lo[t], &w->hi[t]);
        if (w->lo[t] < w->hi[t]) {
            *from = w->lo[t] < *from ? w->lo[t] : *from;
            *to = w->hi[t] > *to ? w->hi[t] : *to;
        }
    }
}

/* One tile for all heads; what is prefetched at its end is the next tile's, `after`, or NULL. */
static void decode_one_tile(const struct decode_block *w, const struct decode_tile *tile,
                            const struct decode_tile *after)
{
    for (uint32_t h = 0; h < w->heads; h += w->together) {
        const uint32_t heads = w->heads - h < w->together ? w->heads - h : w->together;
        struct cursor next = {.count = 0};
        if (h + heads < w->heads)
            cursor_init(&next, &w->run->k, tile->keys.k, tile->any, w->head + h + heads, w->together);
        else if (after != NULL)
            cursor_init(&next, &w->run->k, after->keys.k, after->any, w->head, w->together);
        decode_heads(w, h, heads, tile, &next);
    }
}

static void decode_kv_loop(struct decode_block *w)
{
    uint32_t from, to;
    struct decode_tile tiles[2], *now = &tiles[0], *after = &tiles[1];
    decode_visible(w, &from, &to);
    decode_queries(w);
    decode_clear(w);
    if (from < to)
        tile_open(now, w->run, w->work, from - from % CPU_TILE_KEYS, w->lo, w->hi);
    for (uint32_t base = from - from % CPU_TILE_KEYS; base < to; base += CPU_TILE_KEYS) {
        const bool last = to - base <= CPU_TILE_KEYS;
        if (base % CPU_SPAN_KEYS == 0)
            decode_close_span(w);
        if (!last)
            tile_open(after, w->run, w->work, base + CPU_TILE_KEYS, w->lo, w->hi);
        decode_one_tile(w, now, last ? NULL : after);
        struct decode_tile *swap = now;
        now = after;
        after = swap;
        if (last)
            break; /* base + a tile may be beyond 32 bits */
    }
    decode_close_span(w);
    decode_epilogue(w);
}

/* How many kv heads share a tile: as many as stay in the L1 cache, or one if a head's tokens are contiguous.
 */
static uint32_t heads_together(const struct decode_block *w)
{
    const struct cpu_cache *k = &w->run->k;
    const uint32_t stride = w->q_stride > w->o_stride ? w->q_stride : w->o_stride;
    const uint32_t fit = L1_FLOATS / (w->rows * stride);
    return k->head_stride > k->token_stride || fit == 0 ? 1 : fit;
}

/* Processes one work item of a problem that is not decode_too_short. */
static void decode_work(const struct cpu_run *run, const struct attn_work_item *work, void *scratch)
{
    struct decode_block w = {.run = run, .work = work, .rows = work->tokens * run->group};
    decode_lay_out(&w, run->problem, scratch);
    w.k_type = vec_type_of(run->k.dtype);
    w.v_type = vec_type_of(run->v.dtype);
    w.cap = query_cap(run);

    const uint32_t heads = decode_rows(run->problem) / w.rows;
    for (uint32_t h = 0; h < work->kv_heads; h += heads) {
        w.head = work->kv_head + h;
        w.heads = work->kv_heads - h < heads ? work->kv_heads - h : heads;
        w.together = heads_together(&w);
        decode_kv_loop(&w);
    }
}

#endif
