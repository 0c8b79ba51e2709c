/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention of few query rows (decode, short drafts) on vectors of eight lanes: one sweep over the keys in
 * memory order, all query heads of a kv head sharing each load.
 *
 * Keys go by in tiles of 64. A tile's scores are computed for a block of kv heads, eight keys of every head
 * of the block, then the next eight, so that a page of consecutive tokens is read as one run of bytes; its
 * values likewise. A row's sums are staged: tile, span, total. What a row is computed from, and in which
 * order, depends on the keys that it sees alone.
 *
 * Included once by a file per instruction set, behind its vectors (vec-avx2.h, vec-neon.h).
 */
#ifndef ATTN_CPU_DECODE_VEC_H
#define ATTN_CPU_DECODE_VEC_H

#include <string.h>

#include "decode-order.h"
#include "vec-query.h"

/* Query rows whose state is held at once; kv heads beyond it are a second sweep. */
#define SWEEP_ROWS 128u
/* Floats of queries, or of a tile's sums, of a block of kv heads: they are to stay in the first cache. */
#define BLOCK_FLOATS 6144u

#define LOG2E 1.44269504088896340736
#define LN2   0.69314718055994530942

/* State of one sweep. Rows are numbered (kv head, token, query head of the group). */
struct sweep {
    const struct cpu_run *run;
    const struct attn_work *work;
    uint32_t head, heads; /* kv heads of this sweep */
    uint32_t block;       /* kv heads of a block */
    uint32_t rows;        /* query rows of a kv head */
    uint32_t dim, dim_vo;
    uint32_t q_stride, o_stride;
    enum vec_type k_type, v_type;
    float cap; /* soft cap in units of log2, 0 = none */
    uint32_t lo[CPU_FEW], hi[CPU_FEW];
    float *q, *score, *tile, *span, *total;
    float *m, *m_total, *l, *l_total; /* maxima in units of log2, row sums */
    float *correction;                /* what the tile multiplies a row's span with */
};

static uint32_t sweep_rows(const struct attn_problem *problem)
{
    const uint64_t rows = (uint64_t)CPU_FEW * problem->kv_heads;
    return rows < SWEEP_ROWS ? (uint32_t)rows : SWEEP_ROWS;
}

/* Rows shorter than a vector cannot be read where they lie; prefill stages them. */
static bool decode_too_short(const struct attn_problem *problem)
{
    return problem->head_dim < 8 || problem->head_dim_vo < 8;
}

static uint64_t decode_scratch(const struct attn_problem *problem)
{
    const uint64_t q = 8 * (uint64_t)vec_count(problem->head_dim);
    const uint64_t o = 8 * (uint64_t)vec_count(problem->head_dim_vo);
    return sizeof(float) * sweep_rows(problem) * (q + 3 * o + SCORE_STRIDE + 5);
}

/* Queries as f32, times softmax_scale and what brings a score to units of log2, or of the soft cap. */
static void sweep_queries(const struct sweep *w)
{
    const struct cpu_run *run = w->run;
    const double unit = run->softcap > 0 ? 1.0 / (double)run->softcap : LOG2E;
    const vec factor = vec_set((float)((double)run->scale * unit));
    const uint32_t rest = w->dim % 8, full = w->dim - rest;
    for (uint32_t i = 0; i < w->heads * w->rows; i++) {
        const uint32_t t = i % w->rows / run->group;
        const uint32_t h = (w->head + i / w->rows) * run->group + i % run->group;
        float *q = w->q + (size_t)i * w->q_stride;
        query_convert(run, (int64_t)w->work->row + t, h, factor, q);
        if (rest) { /* the last vector of a key overlaps the one before: zeros there */
            memmove(q + full + 8 - rest, q + full, rest * sizeof *q);
            memset(q + full, 0, (8 - rest) * sizeof *q);
        }
    }
}

static void sweep_clear(const struct sweep *w)
{
    const size_t rows = (size_t)w->heads * w->rows;
    memset(w->span, 0, rows * w->o_stride * sizeof *w->span);
    memset(w->total, 0, rows * w->o_stride * sizeof *w->total);
    for (size_t i = 0; i < rows; i++) {
        w->m[i] = w->m_total[i] = -INFINITY;
        w->l[i] = w->l_total[i] = 0;
    }
}

/* Scores of the leg's heads, the first of which has row `row`, for all their rows. */
static void sweep_scores(const struct sweep *w, size_t row, const struct leg *leg, const struct leg *next)
{
    struct step_rows k;
    for (uint32_t i = 0; i < leg->count * leg->heads; i++) {
        const size_t first = row + (size_t)(i % leg->heads) * w->rows;
        float *s = w->score + first * SCORE_STRIDE + leg->at[i / leg->heads];
        leg_step(leg, next, i, &k);
        for (uint32_t r = 0; r < w->rows; r += STEP_ROWS) {
            const uint32_t n = w->rows - r < STEP_ROWS ? w->rows - r : STEP_ROWS;
            scores_table[w->k_type][n - 1](&k, w->dim, w->q + (first + r) * w->q_stride, w->q_stride,
                                           s + (size_t)r * SCORE_STRIDE);
        }
    }
}

/* Turns a row's scores into weights; `seen` has some bit. What is not seen was not computed, or is no score.
 */
static void row_softmax(const struct sweep *w, size_t row, uint64_t seen)
{
    float *s = w->score + row * SCORE_STRIDE;
    const vec none = vec_set(-INFINITY), cap = vec_set(w->cap);
    vec top = none;
    for (uint32_t i = 0; i < CPU_TILE_KEYS; i += 8) {
        vec x = vec_get(s + i);
        if (w->cap > 0)
            x = vec_mul(vec_tanh(x), cap);
        if ((seen >> i & 0xffu) != 0xffu)
            x = vec_select(vec_lanes((uint32_t)(seen >> i) & 0xffu), x, none);
        vec_put(s + i, x);
        top = vec_max(x, top); /* in this order a NaN is not a maximum; it comes back as a weight */
    }
    const float m = vec_top(top) > w->m[row] ? vec_top(top) : w->m[row];
    const float base = m == -INFINITY ? 0 : m;
    vec sum = vec_zero();
    for (uint32_t i = 0; i < CPU_TILE_KEYS; i += 8) {
        const vec p = vec_exp2(vec_sub(vec_get(s + i), vec_set(base)));
        vec_put(s + i, p);
        sum = vec_add(sum, p);
    }
    w->correction[row] = vec_exp2_scalar(w->m[row] - base);
    w->l[row] = w->l[row] * w->correction[row] + vec_sum(sum);
    w->m[row] = m;
}

/* Weighted values of the leg's heads for rows [from, from + rows) of each, into the tile's sums. */
static void sweep_sums(const struct sweep *w, size_t row, uint32_t from, uint32_t rows, const struct leg *leg,
                       const struct leg *next)
{
    struct step_rows v;
    for (uint32_t i = 0; i < leg->count * leg->heads; i++) {
        const size_t first = row + (size_t)(i % leg->heads) * w->rows + from;
        const float *p = w->score + first * SCORE_STRIDE + leg->at[i / leg->heads];
        leg_step(leg, next, i, &v);
        for (uint32_t r = 0; r < rows; r += STEP_ROWS) {
            const uint32_t n = rows - r < STEP_ROWS ? rows - r : STEP_ROWS;
            sums_table[w->v_type][n - 1](&v, w->dim_vo, p + (size_t)r * SCORE_STRIDE, i < leg->heads,
                                         w->tile + (first + r) * w->o_stride, w->o_stride);
        }
    }
}

/* out = out * factor + add, for one row. */
static void row_add(const struct sweep *w, float *out, float factor, const float *add)
{
    const vec f = vec_set(factor);
    for (uint32_t i = 0; i < w->o_stride; i += 8)
        vec_put(out + i, vec_fma(vec_get(out + i), f, vec_get(add + i)));
}

/*
 * One tile for `heads` kv heads from `block` of the sweep on. Values are read once for all rows if all tokens
 * see the same keys; otherwise token by token, because 0 times the NaN of a value that only another token
 * sees would not be 0.
 */
static void block_tile(const struct sweep *w, uint32_t block, uint32_t heads, const struct tile *tile,
                       const struct leg *next)
{
    const struct cpu_run *run = w->run;
    const size_t row = (size_t)block * w->rows;
    const struct leg none = {.count = 0};
    struct leg k, v;
    leg_init(&k, &run->k, tile->keys.k, tile->any, w->head + block, heads);
    leg_init(&v, &run->v, tile->keys.v, tile->any, w->head + block, heads);
    sweep_scores(w, row, &k, &v);
    for (uint32_t i = 0; i < heads * w->rows; i++) {
        const uint64_t seen = tile->seen[i % w->rows / run->group];
        if (seen)
            row_softmax(w, row + i, seen);
    }
    if (tile->alike) {
        sweep_sums(w, row, 0, w->rows, &v, next);
    } else {
        for (uint32_t t = 0; t < w->work->rows; t++) {
            int64_t offsets[CPU_TILE_KEYS];
            memcpy(offsets, tile->keys.v, sizeof offsets);
            offsets_fill(offsets, tile->seen[t]);
            leg_init(&v, &run->v, offsets, tile->seen[t], w->head + block, heads);
            sweep_sums(w, row, t * run->group, run->group, &v, &none);
        }
    }
    for (uint32_t i = 0; i < heads * w->rows; i++) {
        const size_t at = (row + i) * w->o_stride;
        if (tile->seen[i % w->rows / run->group])
            row_add(w, w->span + at, w->correction[row + i], w->tile + at);
    }
}

/* Adds the spans to the totals and begins new ones. */
static void sweep_close_span(const struct sweep *w)
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

/* Hands out the finished rows. */
static void sweep_emit(const struct sweep *w)
{
    const uint32_t group = w->run->group;
    float *out = w->tile;
    for (uint32_t i = 0; i < w->heads * w->rows; i++) {
        const float *o = w->total + (size_t)i * w->o_stride;
        const float l = w->l_total[i];
        const vec inverse = vec_set(1 / l);
        const uint32_t h = (w->head + i / w->rows) * group + i % group;
        for (uint32_t d = 0; d < vec_count(w->dim_vo); d++) {
            const vec x = vec_mul(vec_get(o + 8 * (size_t)d), inverse);
            /* + 0: a sum that underflowed to -0 is no different from one that had nothing to add */
            vec_put(out + vec_offset(d, w->dim_vo), vec_add(x, vec_zero()));
        }
        const float lse = l == 0 ? -INFINITY : (float)((double)w->m_total[i] * LN2 + log((double)l));
        cpu_emit(w->run, w->work, i % w->rows / group, h, out, lse);
    }
}

static void sweep_run(struct sweep *w)
{
    uint32_t from = UINT32_MAX, to = 0;
    struct tile tiles[2];
    for (uint32_t t = 0; t < w->work->rows; t++) {
        cpu_visible(w->run, w->work, t, &w->lo[t], &w->hi[t]);
        if (w->lo[t] < w->hi[t]) {
            from = w->lo[t] < from ? w->lo[t] : from;
            to = w->hi[t] > to ? w->hi[t] : to;
        }
    }
    sweep_queries(w);
    sweep_clear(w);
    struct tile *now = &tiles[0], *after = &tiles[1];
    if (from < to)
        tile_open(now, w->run, w->work, from - from % CPU_TILE_KEYS, w->lo, w->hi);
    for (uint32_t base = from - from % CPU_TILE_KEYS; base < to; base += CPU_TILE_KEYS) {
        const bool last = to - base <= CPU_TILE_KEYS;
        if (base % CPU_SPAN_KEYS == 0)
            sweep_close_span(w);
        if (!last)
            tile_open(after, w->run, w->work, base + CPU_TILE_KEYS, w->lo, w->hi);
        for (uint32_t b = 0; b < w->heads; b += w->block) {
            const uint32_t heads = w->heads - b < w->block ? w->heads - b : w->block;
            struct leg next = {.count = 0};
            if (b + heads < w->heads)
                leg_init(&next, &w->run->k, now->keys.k, now->any, w->head + b + heads, w->block);
            else if (!last)
                leg_init(&next, &w->run->k, after->keys.k, after->any, w->head, w->block);
            block_tile(w, b, heads, now, &next);
        }
        struct tile *swap = now;
        now = after;
        after = swap;
        if (last)
            break; /* base + a tile may be beyond 32 bits */
    }
    sweep_close_span(w);
    sweep_emit(w);
}

/* kv heads of a block: all that stay in the first cache, or one where a head's tokens lie together. */
static uint32_t block_heads(const struct sweep *w)
{
    const struct cpu_cache *k = &w->run->k;
    const uint32_t stride = w->q_stride > w->o_stride ? w->q_stride : w->o_stride;
    const uint32_t fit = BLOCK_FLOATS / (w->rows * stride);
    return k->head_stride > k->token_stride || fit == 0 ? 1 : fit;
}

/* Processes one work of a problem that is not decode_too_short. */
static void decode_work(const struct cpu_run *run, const struct attn_work *work, void *scratch)
{
    const struct attn_problem *problem = run->problem;
    struct sweep w = {.run = run, .work = work, .rows = work->rows * run->group};
    w.dim = problem->head_dim;
    w.dim_vo = problem->head_dim_vo;
    w.q_stride = 8 * vec_count(w.dim);
    w.o_stride = 8 * vec_count(w.dim_vo);
    w.k_type = vec_type_of(run->k.dtype);
    w.v_type = vec_type_of(run->v.dtype);
    w.cap = (float)((double)run->softcap * LOG2E);

    const size_t rows = sweep_rows(problem);
    w.q = scratch;
    w.tile = w.q + rows * w.q_stride;
    w.span = w.tile + rows * w.o_stride;
    w.total = w.span + rows * w.o_stride;
    w.score = w.total + rows * w.o_stride;
    w.m = w.score + rows * SCORE_STRIDE;
    w.m_total = w.m + rows;
    w.l = w.m_total + rows;
    w.l_total = w.l + rows;
    w.correction = w.l_total + rows;

    const uint32_t most = (uint32_t)rows / w.rows;
    for (uint32_t h = 0; h < work->kv_heads; h += most) {
        w.head = work->kv_head + h;
        w.heads = work->kv_heads - h < most ? work->kv_heads - h : most;
        w.block = block_heads(&w);
        sweep_run(&w);
    }
}

#endif
