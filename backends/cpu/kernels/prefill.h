/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention of many query rows (prefill, chunks, long drafts): blocks of query rows of one kv head against
 * tiles of keys, which are staged with their values as dense f32 once for all blocks.
 *
 * Scores are stored as score[key][row], so that row max, sums and masks are computed lane by lane and keys
 * need no transposition. A row's sums are staged: tile (registers), span, total. What a row is computed from,
 * and in which order, depends on the keys that it sees alone.
 *
 * Included by level.c behind the operations of a level.
 */
#ifndef ATTN_CPU_KERNELS_PREFILL_H
#define ATTN_CPU_KERNELS_PREFILL_H

#include "bias.h"
#include "prefill-micro.h"

/* Blocks of a work item. */
#define BLOCKS (CPU_PREFILL_ROWS / BLOCK_ROWS)
/* Padding of staged keys and values, in floats, so that their distance is not a power of two. */
#define STAGE_PAD 16u
/* Distance of the values of two rows, in floats: no power of two. */
#define VALUE_STRIDE (CPU_TILE_KEYS + 8)

/* ALiBi of the rows, in lanes: see struct bias_slope. */
struct prefill_alibi {
    float slope[BLOCK_ROWS];
    float distance[BLOCK_ROWS]; /* from the anchor to the tile's first key */
    float folded[BLOCK_ROWS];   /* 1: without its sign, or 0 */
    int64_t anchor[BLOCK_ROWS];
    double base[BLOCK_ROWS];
};

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
    bool total_empty;  /* nor to the total */
    struct bias_rules bias_rules;
    uint32_t value_rows;         /* query heads of a token that have the same values */
    struct cpu_bias *bias;       /* of each row, if there are values */
    float *values;               /* see prefill_values; rows of VALUE_STRIDE */
    struct prefill_alibi *alibi; /* if ALiBi is added by distance */
    float *q, *span, *total;
    float *k, *v, *score;     /* of this tile; blocks share them */
    char *vector;             /* one key or value in one piece, if they are in several; shared too */
    float factor[BLOCK_ROWS]; /* of a row's values */
    float m[BLOCK_ROWS], m_total[BLOCK_ROWS]; /* row max in units of log2 */
    float l[BLOCK_ROWS], l_total[BLOCK_ROWS]; /* row sums */
    float correction[BLOCK_ROWS];             /* factor of a row's span for this tile */
    int32_t lo[BLOCK_ROWS], hi[BLOCK_ROWS];
};

/* One tile: entry i is key base + i; some row sees key base + from, some row base + to - 1. */
struct prefill_tile {
    uint32_t base, from, to;
    bool open;     /* some row may see a key of it */
    bool unmasked; /* every row sees all of [from, to), and all exist */
    bool biased;   /* some row has values to add, or hidden keys */
    uint64_t present;
};

static uint32_t staged_stride(uint32_t dim)
{
    return (dim + SUM_DIMS - 1) / SUM_DIMS * SUM_DIMS + STAGE_PAD;
}

/* What blocks have of their own. */
static void prefill_lay_out_block(struct prefill_block *w, const struct attn_problem *problem, float *scratch,
                                  size_t *used)
{
    w->dim = problem->head_dim;
    w->dim_vo = problem->head_dim_vo;
    w->q_panel = vec_padded(w->dim) * PANEL_ROWS;
    w->k_stride = staged_stride(w->dim);
    w->o_stride = staged_stride(w->dim_vo);
    w->q = take_floats(scratch, used, (size_t)(BLOCK_ROWS / PANEL_ROWS) * w->q_panel);
    w->span = take_floats(scratch, used, (size_t)BLOCK_ROWS * w->o_stride);
    w->total = take_floats(scratch, used, (size_t)BLOCK_ROWS * w->o_stride);
    if (bias_has_values(problem)) {
        w->bias = take_objects(scratch, used, BLOCK_ROWS, sizeof *w->bias);
        w->values = take_floats(scratch, used, (size_t)(BLOCK_ROWS + 1) * VALUE_STRIDE);
    }
    if (problem->alibi != ATTN_ALIBI_NONE)
        w->alibi = take_objects(scratch, used, 1, sizeof *w->alibi);
}

/* The blocks' shape, and their arrays in `scratch`, which may be NULL. Returns the bytes of the arrays. */
static uint64_t prefill_lay_out(struct prefill_block *blocks, const struct attn_problem *problem,
                                float *scratch)
{
    size_t used = 0;
    for (uint32_t b = 0; b < BLOCKS; b++)
        prefill_lay_out_block(&blocks[b], problem, scratch, &used);
    float *k = take_floats(scratch, &used, (size_t)CPU_TILE_KEYS * blocks->k_stride);
    float *v = take_floats(scratch, &used, (size_t)CPU_TILE_KEYS * blocks->o_stride);
    float *score = take_floats(scratch, &used, (size_t)CPU_TILE_KEYS * KEY_STRIDE);
    char *vector = NULL;
    if (problem->layout == ATTN_PAGED_X)
        vector = take_objects(scratch, &used, blocks->dim > blocks->dim_vo ? blocks->dim : blocks->dim_vo,
                              sizeof(float));
    for (uint32_t b = 0; b < BLOCKS; b++) {
        blocks[b].k = k;
        blocks[b].v = v;
        blocks[b].score = score;
        blocks[b].vector = vector;
    }
    return used * sizeof(float);
}

static uint64_t prefill_scratch(const struct attn_problem *problem)
{
    struct prefill_block blocks[BLOCKS];
    return prefill_lay_out(blocks, problem, NULL);
}

/* What is added to the scores of row r; rows behind the last are like it. */
static void prefill_bias(struct prefill_block *w, uint32_t r)
{
    const struct cpu_run *run = w->run;
    const uint32_t at = w->first + (r < w->rows ? r : w->rows - 1), lo = (uint32_t)w->lo[r],
                   hi = (uint32_t)w->hi[r];
    struct cpu_bias bias;
    if (!w->bias_rules.values && !w->bias_rules.distance)
        return;
    cpu_bias_init(run, w->work, at / run->group, w->head * run->group + at % run->group, &bias);
    if (w->bias_rules.values) {
        w->factor[r] = bias_factor(run, &w->bias_rules, bias.slope);
        w->bias[r] = bias;
    }
    if (w->bias_rules.distance) {
        const struct bias_slope slope = bias_slope_of(run, &bias, lo, hi);
        w->alibi->slope[r] = slope.slope;
        w->alibi->folded[r] = slope.folded ? 1 : 0;
        w->alibi->anchor[r] = slope.anchor;
        w->alibi->base[r] = slope.base;
    }
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
        prefill_bias(w, r);
        w->m[r] = w->m_total[r] = -INFINITY;
        w->l[r] = w->l_total[r] = 0;
    }
    w->span_empty = w->total_empty = true;
}

static void prefill_queries(const struct prefill_block *w)
{
    const struct cpu_run *run = w->run;
    const vec factor = vec_set(query_factor(run));
    const uint32_t stride = w->k_stride;
    float *rows = w->k; /* not in use before the first tile */
    for (uint32_t r = 0; r < w->padded; r += VEC_LANES) {
        memset(rows, 0, sizeof *rows * VEC_LANES * stride);
        for (uint32_t i = 0; i < VEC_LANES && r + i < w->rows; i++) {
            const uint32_t t = (w->first + r + i) / run->group;
            const uint32_t h = w->head * run->group + (w->first + r + i) % run->group;
            query_convert(run, w->work, t, h, 1, rows + (size_t)i * stride);
        }
        float *panel = w->q + (size_t)(r / PANEL_ROWS) * w->q_panel + r % PANEL_ROWS;
        for (uint32_t d = 0; d < w->dim; d += VEC_LANES)
            panel_transpose(rows + d, stride, factor, panel + (size_t)d * PANEL_ROWS);
    }
}

/* The values of row r, which rows of a token may have in common. */
INLINE float *prefill_values(const struct prefill_block *w, uint32_t r)
{
    return w->values + (size_t)((w->first % w->value_rows + r) / w->value_rows) * VALUE_STRIDE;
}

/* Finds what is added to the scores of a tile; false if every row's keys are all hidden. */
static bool prefill_open_bias(struct prefill_block *w, struct prefill_tile *tile)
{
    bool any = !w->bias_rules.values, zero;
    tile->biased = false;
    for (uint32_t r = 0; w->bias_rules.values && r < w->rows; r++) {
        float *values = prefill_values(w, r);
        if (r > 0 && values == prefill_values(w, r - 1))
            continue;
        const uint64_t seen = bias_fill(&w->bias_rules, &w->bias[r], tile->base, tile->from, tile->to,
                                        w->work->kv_len, values, &zero);
        any |= (seen & tile->present) != 0;
        tile->biased |= !zero;
    }
    for (uint32_t r = 0; w->bias_rules.distance && r < w->padded; r++)
        w->alibi->distance[r] = (float)((int64_t)tile->base - w->alibi->anchor[r]);
    return any;
}

/* Finds the keys of the tile at `base` that rows may see. */
static void prefill_open_range(const struct prefill_block *w, uint32_t base, struct prefill_tile *tile)
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
    tile->open = from < to;
    if (!tile->open)
        return;
    tile->from = (uint32_t)(from - first);
    tile->to = (uint32_t)(to - first);
    tile->unmasked = every_from <= from && every_to >= to;
}

/* Opens a tile whose range is known. */
static void prefill_open_tile(struct prefill_block *w, uint64_t present, struct prefill_tile *tile)
{
    if (!tile->open)
        return;
    tile->present = present;
    if ((~present & (~UINT64_C(0) >> (CPU_TILE_KEYS - tile->to)) & (~UINT64_C(0) << tile->from)) != 0)
        tile->unmasked = false;
    tile->open = prefill_open_bias(w, tile);
}

/* Copies a vector that lies in pieces of `x` elements. */
static void join(const char *from, const struct cpu_cache *cache, uint32_t size, uint32_t dim, char *to)
{
    if (cache->x == 1 && size == 2) {
        for (uint32_t d = 0; d < dim; d++, from += cache->x_stride)
            memcpy(to + 2 * (size_t)d, from, 2);
        return;
    }
    for (uint32_t d = 0; d < dim; d += cache->x, from += cache->x_stride)
        memcpy(to + (size_t)d * size, from, (size_t)(dim - d < cache->x ? dim - d : cache->x) * size);
}

/* Widens the range of `all` to that of a tile. */
static void prefill_widen(struct prefill_tile *all, const struct prefill_tile *tile)
{
    if (!tile->open)
        return;
    all->from = all->open && all->from < tile->from ? all->from : tile->from;
    all->to = all->open && all->to > tile->to ? all->to : tile->to;
    all->open = true;
}

/* One side of a cache, and the new rows beside it. */
struct stage_side {
    const struct cpu_cache *cached, *new_rows;
    const int64_t *offsets, *scales;
    enum vec_type type;
    uint32_t dim, stride;
};

/* Stages keys or values of a tile, zeros for keys that do not exist. True if some element is not finite. */
static bool stage(const struct prefill_block *w, const struct prefill_tile *tile, const struct cpu_keys *keys,
                  const struct stage_side *side, float *to)
{
    const convert_fn convert = convert_table[side->type];
    const struct cpu_cache *cache = side->cached;
    const float gain = vec_gain(side->type);
    vec not_finite = vec_zero();
    for (uint32_t i = tile->from; i < tile->to; i++) {
        float *row = to + (size_t)i * side->stride;
        const struct cpu_cache *from = i < keys->first_new ? cache : side->new_rows;
        const char *vector = cache->base + side->offsets[i] + (int64_t)w->head * from->head_stride;
        if ((keys->present >> i & 1) == 0) {
            memset(row, 0, side->dim * sizeof *row);
            continue;
        }
        const float scale =
            cpu_key_scale(&cache->scale, &side->new_rows->scale, side->scales, keys, i, w->head);
        if (from->x != 0 && from->x < side->dim) {
            join(vector, from, vec_size(side->type), side->dim, w->vector);
            vector = w->vector;
        }
        not_finite = vec_add(not_finite, convert(vector, side->dim, vec_set(gain * scale), row));
    }
    return vec_any_nan(not_finite);
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

/* Adds ALiBi to the scores of a vector of query rows from r on. */
static void columns_alibi(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile)
{
    const vec slope = vec_load_f32(w->alibi->slope + r);
    const vec distance = vec_load_f32(w->alibi->distance + r);
    const vec_bool folded = vec_less(vec_zero(), vec_load_f32(w->alibi->folded + r));
    for (uint32_t i = tile->from; i < tile->to; i++) {
        float *s = w->score + (size_t)i * KEY_STRIDE + r;
        const vec d = vec_add(distance, vec_set((float)i));
        vec_store(s, bias_alibi(vec_load_f32(s), slope, folded, d));
    }
}

/* Adds values, which rows have side by side, to the scores of a vector of query rows from r on. */
static void columns_values(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile)
{
    const vec factor = vec_load_f32(w->factor + r);
    for (uint32_t i = tile->from - tile->from % VEC_LANES; i < tile->to; i += VEC_LANES) {
        vec a[VEC_LANES];
        UNROLL
        for (uint32_t j = 0; j < VEC_LANES; j++) {
            const uint32_t row = r + j < w->rows ? r + j : w->rows - 1;
            a[j] = vec_load_f32(prefill_values(w, row) + i);
        }
        vec_transpose(a);
        UNROLL
        for (uint32_t j = 0; j < VEC_LANES; j++) {
            float *s = w->score + (size_t)(i + j) * KEY_STRIDE + r;
            vec_store(s, bias_add(vec_load_f32(s), a[j], factor));
        }
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
    if (w->bias_rules.distance)
        columns_alibi(w, r, tile);
    if (tile->biased)
        columns_values(w, r, tile);
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

/* Whether row r sees key base + i of a tile. */
static bool prefill_sees(const struct prefill_block *w, const struct prefill_tile *tile, uint32_t r,
                         uint32_t i)
{
    const int32_t key = (int32_t)(tile->base + i);
    return (tile->present >> i & 1) != 0 && key >= w->lo[r] && key < w->hi[r] &&
           !(tile->biased && prefill_values(w, r)[i] == -INFINITY);
}

/* The same row by row, over the keys that each sees: 0 times a NaN or infinity of another key would not be 0.
 */
static void prefill_pv_by_row(const struct prefill_block *w, const struct prefill_tile *tile)
{
    for (uint32_t r = 0; r < w->rows; r++) {
        const vec factor = vec_set(w->correction[r]);
        for (uint32_t d = 0; d < w->dim_vo; d += VEC_LANES) {
            float *o = w->span + (size_t)r * w->o_stride + d;
            vec sum = vec_zero();
            for (uint32_t i = tile->from; i < tile->to; i++) {
                if (prefill_sees(w, tile, r, i))
                    sum = vec_fma(vec_broadcast(w->score + (size_t)i * KEY_STRIDE + r),
                                  vec_load_f32(w->v + (size_t)i * w->o_stride + d), sum);
            }
            vec_store(o, w->span_empty ? sum : vec_fma(vec_load_f32(o), factor, sum));
        }
    }
}

/* Stages a tile for all blocks. True if some value is not finite. */
static bool prefill_stage(const struct prefill_block *w, const struct prefill_tile *tile,
                          const struct cpu_keys *keys)
{
    const struct cpu_run *run = w->run;
    const struct stage_side k = {&run->k,   &run->k_new, keys->k,    keys->k_scale,
                                 w->k_type, w->dim,      w->k_stride};
    const struct stage_side v = {&run->v,   &run->v_new, keys->v,    keys->v_scale,
                                 w->v_type, w->dim_vo,   w->o_stride};
    stage(w, tile, keys, &k, w->k);
    return stage(w, tile, keys, &v, w->v);
}

/* A staged tile for one block. */
static void prefill_one_tile(struct prefill_block *w, const struct prefill_tile *tile, bool non_finite)
{
    for (uint32_t r = 0; r < w->padded; r += PANEL_ROWS)
        panel_scores_tile(w->k, w->k_stride, tile->from, tile->to,
                          w->q + (size_t)(r / PANEL_ROWS) * w->q_panel, w->dim, w->score + r);
    for (uint32_t r = 0; r < w->padded; r += VEC_LANES)
        columns_softmax(w, r, tile);
    if (non_finite && (tile->biased || !tile->unmasked))
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
        for (uint32_t d = 0; d < w->dim_vo; d += VEC_LANES) {
            const vec x = vec_load_f32(span + d);
            vec_store(total + d, w->total_empty ? x : vec_fma(vec_load_f32(total + d), factor, x));
        }
        w->l_total[r] = w->l_total[r] * c + w->l[r];
        w->m_total[r] = w->m[r];
        w->l[r] = 0;
    }
    w->span_empty = true;
    w->total_empty = false;
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
                     row_lse(w->m_total[r], w->l_total[r], w->bias_rules.distance ? w->alibi->base[r] : 0));
    }
}

/* One tile for all blocks. */
static void prefill_tile(struct prefill_block *blocks, uint32_t count, uint32_t base)
{
    struct prefill_tile tiles[BLOCKS], all = {.base = base};
    struct cpu_keys keys;
    for (uint32_t b = 0; b < count; b++) {
        prefill_open_range(&blocks[b], base, &tiles[b]);
        prefill_widen(&all, &tiles[b]);
    }
    if (!all.open)
        return;
    cpu_find_keys(blocks->run, blocks->work, base, all.to, &keys);
    all.open = false;
    for (uint32_t b = 0; b < count; b++) {
        prefill_open_tile(&blocks[b], keys.present, &tiles[b]);
        prefill_widen(&all, &tiles[b]);
    }
    if (!all.open)
        return;
    const bool non_finite = prefill_stage(blocks, &all, &keys);
    for (uint32_t b = 0; b < count; b++)
        if (tiles[b].open)
            prefill_one_tile(&blocks[b], &tiles[b], non_finite);
}

static void prefill_kv_loop(struct prefill_block *blocks, uint32_t count)
{
    uint32_t from = UINT32_MAX, to = 0;
    for (uint32_t b = 0; b < count; b++) {
        prefill_begin(&blocks[b]);
        prefill_queries(&blocks[b]);
        from = blocks[b].from < from ? blocks[b].from : from;
        to = blocks[b].to > to ? blocks[b].to : to;
    }
    for (uint32_t base = from - from % CPU_TILE_KEYS; base < to; base += CPU_TILE_KEYS) {
        for (uint32_t b = 0; b < count && base % CPU_SPAN_KEYS == 0; b++)
            prefill_close_span(&blocks[b]);
        prefill_tile(blocks, count, base);
    }
    for (uint32_t b = 0; b < count; b++) {
        prefill_close_span(&blocks[b]);
        prefill_epilogue(&blocks[b]);
    }
}

static void prefill_work(const struct cpu_run *run, const struct attn_work_item *work, void *scratch)
{
    struct prefill_block blocks[BLOCKS];
    const uint32_t rows = work->tokens * run->group;
    prefill_lay_out(blocks, run->problem, scratch);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        blocks[b].run = run;
        blocks[b].work = work;
        blocks[b].k_type = vec_type_of(run->k.dtype);
        blocks[b].v_type = vec_type_of(run->v.dtype);
        blocks[b].cap = query_cap(run);
        blocks[b].bias_rules = bias_rules_of(run);
        blocks[b].value_rows = blocks[b].bias_rules.by_head ? 1 : run->group;
    }
    for (uint32_t h = 0; h < work->kv_heads; h++) {
        for (uint32_t first = 0, count; first < rows; first += count * BLOCK_ROWS) {
            for (count = 0; count < BLOCKS && first + count * BLOCK_ROWS < rows; count++) {
                struct prefill_block *w = &blocks[count];
                w->head = work->kv_head + h;
                w->first = first + count * BLOCK_ROWS;
                w->rows = rows - w->first < BLOCK_ROWS ? rows - w->first : BLOCK_ROWS;
                w->padded = (w->rows + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
            }
            prefill_kv_loop(blocks, count);
        }
    }
}

#endif
