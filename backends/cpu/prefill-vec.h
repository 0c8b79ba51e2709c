/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention of many query rows (prefill, chunks, long drafts) on vectors of eight lanes: up to 64 rows of one
 * kv head against tiles of 64 keys, whose keys and values are staged as dense f32 once for all rows.
 *
 * Scores stand as score[key][row], so that maxima, sums and masks are lane by lane and keys need no
 * transposition. A row's sums are staged: tile (registers), span, total. What a row is computed from, and in
 * which order, depends on the keys that it sees alone.
 *
 * Included once by a file per instruction set, behind its vectors (vec-avx2.h, vec-neon.h).
 */
#ifndef ATTN_CPU_PREFILL_VEC_H
#define ATTN_CPU_PREFILL_VEC_H

#include <string.h>

#include "kernels.h"
#include "prefill-micro.h"
#include "vec-query.h"

#define LOG2E 1.44269504088896340736
#define LN2   0.69314718055994530942

/* State of one kv head and up to CPU_MANY rows, numbered (token, query head of the group). */
struct pass {
    const struct cpu_run *run;
    const struct attn_work *work;
    uint32_t head;
    uint32_t first, rows, padded; /* first row, rows, rows rounded up to panels */
    uint32_t dim, dim_vo;
    uint32_t q_panel, k_stride, o_stride; /* floats of a panel; distance of staged keys; of values and sums */
    enum vec_type k_type, v_type;
    float cap;         /* soft cap in units of log2, 0 = none */
    uint32_t from, to; /* keys that some row sees lie in between */
    bool fresh;        /* nothing was added to the span yet */
    float *q, *k, *v, *score, *span, *total;
    float m[CPU_MANY], m_total[CPU_MANY]; /* maxima in units of log2 */
    float l[CPU_MANY], l_total[CPU_MANY]; /* row sums */
    float correction[CPU_MANY];           /* what the tile multiplies a row's span with */
    int32_t lo[CPU_MANY], hi[CPU_MANY];
};

/* One tile: entry i is key base + i; some row sees key base + from, some row base + to - 1. */
struct piece {
    uint32_t base, from, to;
    bool even; /* every row sees all of [from, to), and all exist */
    uint64_t present;
    struct cpu_keys keys;
};

static uint32_t staged_stride(uint32_t dim)
{
    return (dim + 15) / 16 * 16 + 16; /* off the powers of two */
}

static uint64_t prefill_scratch(const struct attn_problem *problem)
{
    const uint64_t q = 8 * (uint64_t)vec_count(problem->head_dim);
    const uint64_t k = staged_stride(problem->head_dim), o = staged_stride(problem->head_dim_vo);
    return sizeof(float) * (CPU_MANY * q + CPU_TILE_KEYS * (k + o + KEY_STRIDE) + 2 * CPU_MANY * o);
}

/* Which keys the rows see, and the state before the first key. */
static void pass_begin(struct pass *w)
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
    w->fresh = true;
    memset(w->total, 0, sizeof *w->total * w->rows * w->o_stride);
    /* staging leaves the padding of values alone; it must not be NaN, for it is summed up, to nowhere */
    memset(w->v, 0, sizeof *w->v * CPU_TILE_KEYS * w->o_stride);
}

/* Queries as panels of f32, times softmax_scale and what brings a score to units of log2, or of the soft cap.
 */
static void pass_queries(const struct pass *w)
{
    const struct cpu_run *run = w->run;
    const double unit = run->softcap > 0 ? 1.0 / (double)run->softcap : LOG2E;
    const vec factor = vec_set((float)((double)run->scale * unit)), one = vec_set(1);
    const uint32_t stride = w->k_stride;
    float *eight = w->k; /* free until the first tile */
    for (uint32_t r = 0; r < w->padded; r += 8) {
        memset(eight, 0, sizeof *eight * 8 * stride);
        for (uint32_t i = 0; i < 8 && r + i < w->rows; i++) {
            const uint32_t t = (w->first + r + i) / run->group;
            const uint32_t h = w->head * run->group + (w->first + r + i) % run->group;
            query_convert(run, (int64_t)w->work->row + t, h, one, eight + (size_t)i * stride);
        }
        float *panel = w->q + (size_t)(r / PANEL_ROWS) * w->q_panel + r % PANEL_ROWS;
        for (uint32_t d = 0; d < w->dim; d += 8)
            panel_transpose(eight + d, stride, factor, panel + (size_t)d * PANEL_ROWS);
    }
}

/* Opens the tile at `base`; false if no row sees any key of it. */
static bool piece_open(const struct pass *w, uint32_t base, struct piece *piece)
{
    const int32_t first = (int32_t)base;
    const int32_t end = w->to - base < CPU_TILE_KEYS ? (int32_t)w->to : (int32_t)(base + CPU_TILE_KEYS);
    int32_t from = end, to = first, least = first, most = end;
    for (uint32_t r = 0; r < w->rows; r++) {
        const int32_t lo = w->lo[r] > first ? w->lo[r] : first, hi = w->hi[r] < end ? w->hi[r] : end;
        least = lo > least ? lo : least;
        most = hi < most ? hi : most;
        if (lo < hi) {
            from = lo < from ? lo : from;
            to = hi > to ? hi : to;
        }
    }
    piece->base = base;
    if (from >= to)
        return false;
    piece->from = (uint32_t)(from - first);
    piece->to = (uint32_t)(to - first);
    piece->even = least <= from && most >= to;
    piece->present = ~UINT64_C(0);
    cpu_walk(w->run, w->work->seq, base, piece->to, &piece->keys);
    for (uint32_t i = piece->from; i < piece->to && piece->keys.holes; i++) {
        if (piece->keys.k[i] < 0) {
            piece->present &= ~(UINT64_C(1) << i);
            piece->even = false;
        }
    }
    return true;
}

/* Stages keys or values of a tile; what does not exist becomes zeros. Returns true if something is not
 * finite. */
INLINE bool stage(enum vec_type type, const struct cpu_cache *cache, uint32_t head, const int64_t *offsets,
                  const struct piece *piece, uint32_t dim, float *to, uint32_t stride)
{
    const char *base = cache->base + (int64_t)head * cache->head_stride;
    vec probe = vec_zero();
    for (uint32_t i = piece->from; i < piece->to; i++) {
        float *row = to + (size_t)i * stride;
        if (piece->present >> i & 1)
            probe = vec_add(probe, vec_convert(type, base + offsets[i], dim, vec_set(1), row));
        else
            memset(row, 0, dim * sizeof *row);
    }
    return vec_any_nan(probe);
}

static bool stage_any(uint32_t type, const struct cpu_cache *cache, uint32_t head, const int64_t *offsets,
                      const struct piece *piece, uint32_t dim, float *to, uint32_t stride)
{
    if (type == VEC_F32)
        return stage(VEC_F32, cache, head, offsets, piece, dim, to, stride);
    if (type == VEC_F16)
        return stage(VEC_F16, cache, head, offsets, piece, dim, to, stride);
    return stage(VEC_BF16, cache, head, offsets, piece, dim, to, stride);
}

/* Hides from eight rows, from r on, the scores of keys that they do not see. */
static void columns_mask(const struct pass *w, uint32_t r, const struct piece *piece)
{
    const vec none = vec_set(-INFINITY);
    const vec_int lo = vec_int_get(w->lo + r), hi = vec_int_get(w->hi + r);
    for (uint32_t i = piece->from; i < piece->to; i++) {
        const vec_bool seen = vec_between(lo, hi, (int32_t)(piece->base + i));
        float *s = w->score + (size_t)i * KEY_STRIDE + r;
        const vec x = vec_select(seen, vec_get(s), none);
        vec_put(s, piece->present >> i & 1 ? x : none);
    }
}

/* Turns the scores of eight rows, from r on, into weights. */
static void columns_softmax(struct pass *w, uint32_t r, const struct piece *piece)
{
    const uint32_t n = piece->to - piece->from;
    float *s = w->score + (size_t)piece->from * KEY_STRIDE + r;
    if (w->cap > 0) {
        const vec cap = vec_set(w->cap);
        for (uint32_t i = 0; i < n; i++)
            vec_put(s + i * KEY_STRIDE, vec_mul(vec_tanh(vec_get(s + i * KEY_STRIDE)), cap));
    }
    if (!piece->even)
        columns_mask(w, r, piece);

    const vec none = vec_set(-INFINITY), before = vec_get(w->m + r);
    vec m = before;
    for (uint32_t i = 0; i < n; i++) /* in this order a NaN is not a maximum; it comes back as a weight */
        m = vec_max(vec_get(s + i * KEY_STRIDE), m);
    const vec base = vec_select(vec_equal(m, none), vec_zero(), m);
    vec sum = vec_zero();
    for (uint32_t i = 0; i < n; i++) {
        const vec p = vec_exp2(vec_sub(vec_get(s + i * KEY_STRIDE), base));
        vec_put(s + i * KEY_STRIDE, p);
        sum = vec_add(sum, p);
    }
    const vec factor = vec_exp2(vec_sub(before, base));
    vec_put(w->correction + r, factor);
    vec_put(w->l + r, vec_add(vec_mul(vec_get(w->l + r), factor), sum));
    vec_put(w->m + r, m);
}

/* Adds the tile's weighted values to the span. */
static void pass_sums(const struct pass *w, const struct piece *piece)
{
    const uint32_t n = piece->to - piece->from;
    for (uint32_t d = 0; d < w->dim_vo; d += 16) {
        const float *v = w->v + (size_t)piece->from * w->o_stride + d;
        const float *p = w->score + (size_t)piece->from * KEY_STRIDE;
        for (uint32_t r = 0;
             r < w->rows;) { /* columns up to the end of a panel exist, and rows of the span */
            const bool few = w->rows - r <= 4;
            float *o = w->span + (size_t)r * w->o_stride + d;
            if (few)
                rows_sums(4, n, p + r, v, w->o_stride, w->correction + r, w->fresh, o, w->o_stride);
            else
                rows_sums(SUM_ROWS, n, p + r, v, w->o_stride, w->correction + r, w->fresh, o, w->o_stride);
            r += few ? 4 : SUM_ROWS;
        }
    }
}

/* The same row by row over the keys that it sees: 0 times NaN or infinity of a value it does not see is not
 * 0. */
static void pass_sums_apart(const struct pass *w, const struct piece *piece)
{
    for (uint32_t r = 0; r < w->rows; r++) {
        const int32_t lo = w->lo[r] - (int32_t)piece->base, hi = w->hi[r] - (int32_t)piece->base;
        const uint32_t to = hi < (int32_t)piece->to ? (uint32_t)(hi > 0 ? hi : 0) : piece->to;
        const uint32_t from = lo < (int32_t)piece->from ? piece->from : (uint32_t)lo < to ? (uint32_t)lo : to;
        for (uint32_t d = 0; d < w->dim_vo; d += 16)
            rows_sums(1, from < to ? to - from : 0, w->score + (size_t)from * KEY_STRIDE + r,
                      w->v + (size_t)from * w->o_stride + d, w->o_stride, w->correction + r, w->fresh,
                      w->span + (size_t)r * w->o_stride + d, w->o_stride);
    }
}

static void pass_tile(struct pass *w, const struct piece *piece)
{
    const struct cpu_run *run = w->run;
    stage_any(w->k_type, &run->k, w->head, piece->keys.k, piece, w->dim, w->k, w->k_stride);
    const bool wild =
        stage_any(w->v_type, &run->v, w->head, piece->keys.v, piece, w->dim_vo, w->v, w->o_stride);
    for (uint32_t r = 0; r < w->padded; r += PANEL_ROWS)
        panel_scores_tile(w->k, w->k_stride, piece->from, piece->to,
                          w->q + (size_t)(r / PANEL_ROWS) * w->q_panel, w->dim, w->score + r);
    for (uint32_t r = 0; r < w->padded; r += 8)
        columns_softmax(w, r, piece);
    if (wild && !piece->even)
        pass_sums_apart(w, piece);
    else
        pass_sums(w, piece);
    w->fresh = false;
}

/* Adds the spans to the totals. */
static void pass_close_span(struct pass *w)
{
    if (w->fresh)
        return;
    for (uint32_t r = 0; r < w->rows; r++) {
        const float c = w->m[r] == -INFINITY ? 1 : vec_exp2_scalar(w->m_total[r] - w->m[r]);
        const vec factor = vec_set(c);
        float *total = w->total + (size_t)r * w->o_stride;
        const float *span = w->span + (size_t)r * w->o_stride;
        for (uint32_t d = 0; d < w->dim_vo; d += 8)
            vec_put(total + d, vec_fma(vec_get(total + d), factor, vec_get(span + d)));
        w->l_total[r] = w->l_total[r] * c + w->l[r];
        w->m_total[r] = w->m[r];
        w->l[r] = 0;
    }
    w->fresh = true;
}

static void pass_emit(const struct pass *w)
{
    const uint32_t group = w->run->group;
    for (uint32_t r = 0; r < w->rows; r++) {
        const float l = w->l_total[r];
        const vec inverse = vec_set(1 / l);
        float *o = w->total + (size_t)r * w->o_stride;
        for (uint32_t d = 0; d < w->dim_vo; d += 8) {
            const vec x = vec_mul(vec_get(o + d), inverse);
            /* + 0: a sum that underflowed to -0 is no different from one that had nothing to add */
            vec_put(o + d, vec_add(x, vec_zero()));
        }
        const float lse = l == 0 ? -INFINITY : (float)((double)w->m_total[r] * LN2 + log((double)l));
        const uint32_t at = w->first + r;
        cpu_emit(w->run, w->work, at / group, w->head * group + at % group, o, lse);
    }
}

static void pass_run(struct pass *w)
{
    struct piece piece;
    pass_begin(w);
    pass_queries(w);
    for (uint32_t base = w->from - w->from % CPU_TILE_KEYS; base < w->to; base += CPU_TILE_KEYS) {
        if (base % CPU_SPAN_KEYS == 0)
            pass_close_span(w);
        if (piece_open(w, base, &piece))
            pass_tile(w, &piece);
    }
    pass_close_span(w);
    pass_emit(w);
}

static void prefill_work(const struct cpu_run *run, const struct attn_work *work, void *scratch)
{
    const struct attn_problem *problem = run->problem;
    struct pass w;
    w.run = run;
    w.work = work;
    w.dim = problem->head_dim;
    w.dim_vo = problem->head_dim_vo;
    w.q_panel = 8 * vec_count(w.dim) * PANEL_ROWS;
    w.k_stride = staged_stride(w.dim);
    w.o_stride = staged_stride(w.dim_vo);
    w.k_type = vec_type_of(run->k.dtype);
    w.v_type = vec_type_of(run->v.dtype);
    w.cap = (float)((double)run->softcap * LOG2E);

    w.q = scratch;
    w.k = w.q + (size_t)(CPU_MANY / PANEL_ROWS) * w.q_panel;
    w.v = w.k + (size_t)CPU_TILE_KEYS * w.k_stride;
    w.score = w.v + (size_t)CPU_TILE_KEYS * w.o_stride;
    w.span = w.score + (size_t)CPU_TILE_KEYS * KEY_STRIDE;
    w.total = w.span + (size_t)CPU_MANY * w.o_stride;

    const uint32_t rows = work->rows * run->group;
    for (uint32_t h = 0; h < work->kv_heads; h++) {
        w.head = work->kv_head + h;
        for (w.first = 0; w.first < rows; w.first += CPU_MANY) {
            w.rows = rows - w.first < CPU_MANY ? rows - w.first : CPU_MANY;
            w.padded = (w.rows + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
            pass_run(&w);
        }
    }
}

#endif
