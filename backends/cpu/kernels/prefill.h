/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention of many query rows (prefill, chunks, long drafts): a block of query rows of one kv head against
 * tiles of keys, which are staged with their values as dense f32 once for all rows.
 *
 * Scores are stored as score[key][row], so that row max, sums and masks are computed lane by lane and keys
 * need no transposition. A row's sums are staged: tile (registers), span, total. What a row is computed from,
 * and in which order, depends on the keys that it sees alone.
 *
 * Included by level.c behind the operations of a level.
 */
#ifndef ATTN_CPU_KERNELS_PREFILL_H
#define ATTN_CPU_KERNELS_PREFILL_H

#include "prefill-micro.h"
#include "row-state.h"

/* Padding of staged keys and values, in floats, so that their distance is not a power of two. */
#define STAGE_PAD 16u

/* State of one kv head and a block of query rows, numbered (token, query head of the group). */
struct prefill_block {
    const struct cpu_run *run;
    const struct attn_work_item *work;
    uint32_t head;
    uint32_t first, rows, padded; /* first row, rows, rows rounded up to panels */
    uint32_t dim, dim_vo;
    uint32_t q_panel, k_stride, o_stride; /* floats of a panel; distance of staged keys; of values and sums */
    enum vec_type k_type, v_type;
    float cap;         /* soft cap in units of log2, 0 = none */
    uint32_t from, to; /* [from, to) has all keys that some row sees */
    bool span_empty;   /* nothing was added to the span yet */
    float *q, *k, *v, *score, *span, *total;
    float m[CPU_PREFILL_ROWS], m_total[CPU_PREFILL_ROWS]; /* row max in units of log2 */
    float l[CPU_PREFILL_ROWS], l_total[CPU_PREFILL_ROWS]; /* row sums */
    float correction[CPU_PREFILL_ROWS];                   /* factor of a row's span for this tile */
    int32_t lo[CPU_PREFILL_ROWS], hi[CPU_PREFILL_ROWS];
};

/* One tile: entry i is key base + i; some row sees key base + from, some row base + to - 1. */
struct prefill_tile {
    uint32_t base, from, to;
    bool unmasked; /* every row sees all of [from, to), and all exist */
    uint64_t present;
    struct cpu_keys keys;
};

static uint32_t staged_stride(uint32_t dim)
{
    return (dim + SUM_DIMS - 1) / SUM_DIMS * SUM_DIMS + STAGE_PAD;
}

/* The block's shape, and its arrays in `scratch`, which may be NULL. Returns the bytes of the arrays. */
static uint64_t prefill_lay_out(struct prefill_block *w, const struct attn_problem *problem, float *scratch)
{
    size_t used = 0;
    w->dim = problem->head_dim;
    w->dim_vo = problem->head_dim_vo;
    w->q_panel = vec_padded(w->dim) * PANEL_ROWS;
    w->k_stride = staged_stride(w->dim);
    w->o_stride = staged_stride(w->dim_vo);
    w->q = take_floats(scratch, &used, (size_t)(CPU_PREFILL_ROWS / PANEL_ROWS) * w->q_panel);
    w->k = take_floats(scratch, &used, (size_t)CPU_TILE_KEYS * w->k_stride);
    w->v = take_floats(scratch, &used, (size_t)CPU_TILE_KEYS * w->o_stride);
    w->score = take_floats(scratch, &used, (size_t)CPU_TILE_KEYS * KEY_STRIDE);
    w->span = take_floats(scratch, &used, (size_t)CPU_PREFILL_ROWS * w->o_stride);
    w->total = take_floats(scratch, &used, (size_t)CPU_PREFILL_ROWS * w->o_stride);
    return used * sizeof(float);
}

static uint64_t prefill_scratch(const struct attn_problem *problem)
{
    struct prefill_block block;
    return prefill_lay_out(&block, problem, NULL);
}

/* Which keys the rows see, and the state before the first key. */
static void prefill_begin(struct prefill_block *w)
{
    w->from = UINT32_MAX;
    w->to = 0;
    for (uint32_t r = 0; r < w->padded; r++) {
        uint32_t lo, hi;
        cpu_visible(w->run, w->work, (w->first + (r < w->rows ? r : w->rows - 1)) / w->run->group, &lo, &hi);
        w->lo[r] = lo < hi ? (int32_t)lo : 0;
        w->hi[r] = lo < hi ? (int32_t)hi : 0;
        if (lo < hi) {
            w->from = lo < w->from ? lo : w->from;
            w->to = hi > w->to ? hi : w->to;
        }
        w->m[r] = w->m_total[r] = -INFINITY;
        w->l[r] = w->l_total[r] = 0;
    }
    w->span_empty = true;
    memset(w->total, 0, sizeof *w->total * w->rows * w->o_stride);
}

static void prefill_queries(const struct prefill_block *w)
{
    const struct cpu_run *run = w->run;
    const vec factor = vec_set(query_factor(run)), one = vec_set(1);
    const uint32_t stride = w->k_stride;
    float *rows = w->k; /* not in use before the first tile */
    for (uint32_t r = 0; r < w->padded; r += VEC_LANES) {
        memset(rows, 0, sizeof *rows * VEC_LANES * stride);
        for (uint32_t i = 0; i < VEC_LANES && r + i < w->rows; i++) {
            const uint32_t t = (w->first + r + i) / run->group;
            const uint32_t h = w->head * run->group + (w->first + r + i) % run->group;
            query_convert(run, (int64_t)w->work->first_token + t, h, one, rows + (size_t)i * stride);
        }
        float *panel = w->q + (size_t)(r / PANEL_ROWS) * w->q_panel + r % PANEL_ROWS;
        for (uint32_t d = 0; d < w->dim; d += VEC_LANES)
            panel_transpose(rows + d, stride, factor, panel + (size_t)d * PANEL_ROWS);
    }
}

/* Opens the tile at `base`; false if no row sees any key of it. */
static bool prefill_open_tile(const struct prefill_block *w, uint32_t base, struct prefill_tile *tile)
{
    const int32_t first = (int32_t)base;
    const int32_t end = w->to - base < CPU_TILE_KEYS ? (int32_t)w->to : (int32_t)(base + CPU_TILE_KEYS);
    int32_t from = end, to = first, every_from = first, every_to = end;
    for (uint32_t r = 0; r < w->rows; r++) {
        const int32_t lo = w->lo[r] > first ? w->lo[r] : first, hi = w->hi[r] < end ? w->hi[r] : end;
        every_from = lo > every_from ? lo : every_from;
        every_to = hi < every_to ? hi : every_to;
        if (lo < hi) {
            from = lo < from ? lo : from;
            to = hi > to ? hi : to;
        }
    }
    tile->base = base;
    if (from >= to)
        return false;
    tile->from = (uint32_t)(from - first);
    tile->to = (uint32_t)(to - first);
    tile->unmasked = every_from <= from && every_to >= to;
    tile->present = ~UINT64_C(0);
    cpu_walk(w->run, w->work->seq, base, tile->to, &tile->keys);
    for (uint32_t i = tile->from; i < tile->to && tile->keys.has_invalid; i++) {
        if (tile->keys.k[i] < 0) {
            tile->present &= ~(UINT64_C(1) << i);
            tile->unmasked = false;
        }
    }
    return true;
}

/* Stages keys or values of a tile, zeros for keys that do not exist. True if some element is not finite. */
INLINE bool stage(enum vec_type type, const struct cpu_cache *cache, uint32_t head, const int64_t *offsets,
                  const struct prefill_tile *tile, uint32_t dim, float *to, uint32_t stride)
{
    const char *base = cache->base + (int64_t)head * cache->head_stride;
    vec not_finite = vec_zero();
    for (uint32_t i = tile->from; i < tile->to; i++) {
        float *row = to + (size_t)i * stride;
        if (tile->present >> i & 1)
            not_finite = vec_add(not_finite, vec_convert(type, base + offsets[i], dim, vec_set(1), row));
        else
            memset(row, 0, dim * sizeof *row);
    }
    return vec_any_nan(not_finite);
}

static bool stage_any(uint32_t type, const struct cpu_cache *cache, uint32_t head, const int64_t *offsets,
                      const struct prefill_tile *tile, uint32_t dim, float *to, uint32_t stride)
{
    if (type == VEC_F32)
        return stage(VEC_F32, cache, head, offsets, tile, dim, to, stride);
    if (type == VEC_F16)
        return stage(VEC_F16, cache, head, offsets, tile, dim, to, stride);
    return stage(VEC_BF16, cache, head, offsets, tile, dim, to, stride);
}

/* Masks, for a vector of query rows from r on, the scores of keys that they do not see. */
static void columns_mask(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile)
{
    const vec none = vec_set(-INFINITY);
    const vec_int lo = vec_load_int(w->lo + r), hi = vec_load_int(w->hi + r);
    for (uint32_t i = tile->from; i < tile->to; i++) {
        const vec_bool seen = vec_between(lo, hi, (int32_t)(tile->base + i));
        float *s = w->score + (size_t)i * KEY_STRIDE + r;
        const vec x = vec_select(seen, vec_load_f32(s), none);
        vec_store(s, tile->present >> i & 1 ? x : none);
    }
}

/* Turns the scores of a vector of query rows, from r on, into weights. */
static void columns_softmax(struct prefill_block *w, uint32_t r, const struct prefill_tile *tile)
{
    const uint32_t n = tile->to - tile->from;
    float *s = w->score + (size_t)tile->from * KEY_STRIDE + r;
    if (w->cap > 0) {
        const vec cap = vec_set(w->cap);
        for (uint32_t i = 0; i < n; i++)
            vec_store(s + i * KEY_STRIDE, vec_mul(vec_tanh(vec_load_f32(s + i * KEY_STRIDE)), cap));
    }
    if (!tile->unmasked)
        columns_mask(w, r, tile);

    const vec none = vec_set(-INFINITY), before = vec_load_f32(w->m + r);
    vec m = before;
    for (uint32_t i = 0; i < n; i++) /* keeps m where the score is NaN, which comes back as a weight */
        m = vec_max(vec_load_f32(s + i * KEY_STRIDE), m);
    const vec base = vec_select(vec_equal(m, none), vec_zero(), m);
    vec sum = vec_zero();
    for (uint32_t i = 0; i < n; i++) {
        const vec p = vec_exp2(vec_sub(vec_load_f32(s + i * KEY_STRIDE), base));
        vec_store(s + i * KEY_STRIDE, p);
        sum = vec_add(sum, p);
    }
    const vec factor = vec_exp2(vec_sub(before, base));
    vec_store(w->correction + r, factor);
    vec_store(w->l + r, vec_add(vec_mul(vec_load_f32(w->l + r), factor), sum));
    vec_store(w->m + r, m);
}

/* Adds the tile's weighted values to the span. */
static void prefill_pv(const struct prefill_block *w, const struct prefill_tile *tile)
{
    const uint32_t n = tile->to - tile->from;
    for (uint32_t d = 0; d < w->dim_vo; d += SUM_DIMS) {
        const float *v = w->v + (size_t)tile->from * w->o_stride + d;
        const float *p = w->score + (size_t)tile->from * KEY_STRIDE;
        for (uint32_t r = 0, next; r < w->rows; r = next) { /* a call may include rows behind the last */
            float *o = w->span + (size_t)r * w->o_stride + d;
            next = r + (w->rows - r <= LAST_ROWS ? LAST_ROWS : SUM_ROWS);
            if (next - r == LAST_ROWS)
                rows_sums(LAST_ROWS, n, p + r, v, w->o_stride, w->correction + r, w->span_empty, o,
                          w->o_stride);
            else
                rows_sums(SUM_ROWS, n, p + r, v, w->o_stride, w->correction + r, w->span_empty, o,
                          w->o_stride);
        }
    }
}

/* The same row by row, over the keys that each sees: 0 times a NaN or infinity of another key would not be 0.
 */
static void prefill_pv_by_row(const struct prefill_block *w, const struct prefill_tile *tile)
{
    for (uint32_t r = 0; r < w->rows; r++) {
        const int32_t lo = w->lo[r] - (int32_t)tile->base, hi = w->hi[r] - (int32_t)tile->base;
        const uint32_t to = hi < (int32_t)tile->to ? (uint32_t)(hi > 0 ? hi : 0) : tile->to;
        const uint32_t from = lo < (int32_t)tile->from ? tile->from : (uint32_t)lo < to ? (uint32_t)lo : to;
        for (uint32_t d = 0; d < w->dim_vo; d += SUM_DIMS)
            rows_sums(1, from < to ? to - from : 0, w->score + (size_t)from * KEY_STRIDE + r,
                      w->v + (size_t)from * w->o_stride + d, w->o_stride, w->correction + r, w->span_empty,
                      w->span + (size_t)r * w->o_stride + d, w->o_stride);
    }
}

static void prefill_one_tile(struct prefill_block *w, const struct prefill_tile *tile)
{
    const struct cpu_run *run = w->run;
    stage_any(w->k_type, &run->k, w->head, tile->keys.k, tile, w->dim, w->k, w->k_stride);
    const bool non_finite =
        stage_any(w->v_type, &run->v, w->head, tile->keys.v, tile, w->dim_vo, w->v, w->o_stride);
    for (uint32_t r = 0; r < w->padded; r += PANEL_ROWS)
        panel_scores_tile(w->k, w->k_stride, tile->from, tile->to,
                          w->q + (size_t)(r / PANEL_ROWS) * w->q_panel, w->dim, w->score + r);
    for (uint32_t r = 0; r < w->padded; r += VEC_LANES)
        columns_softmax(w, r, tile);
    if (non_finite && !tile->unmasked)
        prefill_pv_by_row(w, tile);
    else
        prefill_pv(w, tile);
    w->span_empty = false;
}

/* Adds the spans to the totals. */
static void prefill_close_span(struct prefill_block *w)
{
    if (w->span_empty)
        return;
    for (uint32_t r = 0; r < w->rows; r++) {
        const float c = w->m[r] == -INFINITY ? 1 : vec_exp2_scalar(w->m_total[r] - w->m[r]);
        const vec factor = vec_set(c);
        float *total = w->total + (size_t)r * w->o_stride;
        const float *span = w->span + (size_t)r * w->o_stride;
        for (uint32_t d = 0; d < w->dim_vo; d += VEC_LANES)
            vec_store(total + d, vec_fma(vec_load_f32(total + d), factor, vec_load_f32(span + d)));
        w->l_total[r] = w->l_total[r] * c + w->l[r];
        w->m_total[r] = w->m[r];
        w->l[r] = 0;
    }
    w->span_empty = true;
}

static void prefill_epilogue(const struct prefill_block *w)
{
    const uint32_t group = w->run->group;
    for (uint32_t r = 0; r < w->rows; r++) {
        const vec inverse = vec_set(1 / w->l_total[r]);
        float *o = w->total + (size_t)r * w->o_stride;
        for (uint32_t d = 0; d < w->dim_vo; d += VEC_LANES)
            vec_store(o + d, vec_mul(vec_load_f32(o + d), inverse));
        const uint32_t at = w->first + r;
        cpu_epilogue(w->run, w->work, at / group, w->head * group + at % group, o,
                     row_lse(w->m_total[r], w->l_total[r]));
    }
}

static void prefill_kv_loop(struct prefill_block *w)
{
    struct prefill_tile tile;
    prefill_begin(w);
    prefill_queries(w);
    for (uint32_t base = w->from - w->from % CPU_TILE_KEYS; base < w->to; base += CPU_TILE_KEYS) {
        if (base % CPU_SPAN_KEYS == 0)
            prefill_close_span(w);
        if (prefill_open_tile(w, base, &tile))
            prefill_one_tile(w, &tile);
    }
    prefill_close_span(w);
    prefill_epilogue(w);
}

static void prefill_work(const struct cpu_run *run, const struct attn_work_item *work, void *scratch)
{
    struct prefill_block w;
    w.run = run;
    w.work = work;
    prefill_lay_out(&w, run->problem, scratch);
    w.k_type = vec_type_of(run->k.dtype);
    w.v_type = vec_type_of(run->v.dtype);
    w.cap = query_cap(run);

    const uint32_t rows = work->tokens * run->group;
    for (uint32_t h = 0; h < work->kv_heads; h++) {
        w.head = work->kv_head + h;
        for (w.first = 0; w.first < rows; w.first += CPU_PREFILL_ROWS) {
            w.rows = rows - w.first < CPU_PREFILL_ROWS ? rows - w.first : CPU_PREFILL_ROWS;
            w.padded = (w.rows + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
            prefill_kv_loop(&w);
        }
    }
}

#endif
