/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention of few query rows (decode, short drafts): one KV loop in memory order, all query heads of a kv
 * head sharing each load.
 *
 * Keys are processed in tiles. A tile's scores are computed for some kv heads at once, a step of keys of
 * every one of these heads, then the next step, so that a page of consecutive tokens is read as one run of
 * bytes; its values likewise. A row's sums are staged: tile, span, total. What a row is computed from, and in
 * which order, depends on the keys that it sees alone. Levels with tile instructions compute the products of
 * large groups of query heads by these.
 *
 * Included by level.c behind the operations of a level.
 */
#ifndef ATTN_CPU_KERNELS_DECODE_H
#define ATTN_CPU_KERNELS_DECODE_H

#include "decode-int8.h"
#include "decode-products.h"

/* The block's shape, and its arrays in `scratch`, which may be NULL. Returns the bytes of the arrays. */
static uint64_t decode_lay_out(struct decode_block *w, const struct attn_problem *problem, float *scratch)
{
    const size_t rows = decode_rows(problem);
    size_t used = 0;
    w->dim = problem->head_dim;
    w->dim_vo = problem->head_dim_vo;
    w->ints = int8_products(problem);
    w->q_stride = w->ints ? int8_stride(w->dim) : vec_padded(w->dim);
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
    if (w->ints)
        w->unit = take_floats(scratch, &used, rows);
    w->seen = take_objects(scratch, &used, rows, sizeof *w->seen);
    if (problem->alibi != ATTN_ALIBI_NONE)
        w->slope = take_objects(scratch, &used, rows, sizeof *w->slope);
    if (bias_has_values(problem)) {
        w->factor = take_floats(scratch, &used, rows);
        w->bias = take_objects(scratch, &used, rows, sizeof *w->bias);
        for (uint32_t i = 0; i < 2; i++)
            w->values[i] = take_floats(scratch, &used, (size_t)CPU_DECODE_ROWS * CPU_TILE_KEYS);
    }
    tiled_lay_out(w, problem, scratch, &used);
    return used * sizeof(float);
}

static uint64_t decode_scratch(const struct attn_problem *problem)
{
    struct decode_block block = {0};
    return decode_lay_out(&block, problem, NULL);
}

static void decode_queries(const struct decode_block *w)
{
    const struct cpu_run *run = w->run;
    const float factor = query_factor(run);
    const uint32_t rest = w->dim % VEC_LANES, full = w->dim - rest;
    for (uint32_t i = 0; i < w->heads * w->rows; i++) {
        const uint32_t t = i % w->rows / run->group;
        const uint32_t h = (w->head + i / w->rows) * run->group + i % run->group;
        float *q = w->q + (size_t)i * w->q_stride;
        if (w->ints) {
            w->unit[i] = int8_query(run, w->work, t, h, q);
            continue;
        }
        query_convert(run, w->work, t, h, factor, q);
        if (rest) { /* the last vector of a key overlaps the one before: zeros there */
            memmove(q + full + VEC_LANES - rest, q + full, rest * sizeof *q);
            memset(q + full, 0, (VEC_LANES - rest) * sizeof *q);
        }
    }
}

/* What is added to the scores of each row. */
static void decode_bias(struct decode_block *w)
{
    const struct cpu_run *run = w->run;
    const struct bias_rules *rules = &w->rules.bias;
    if (!rules->values && !rules->distance)
        return;
    for (uint32_t i = 0; i < w->heads * w->rows; i++) {
        const uint32_t t = i % w->rows / run->group;
        struct cpu_bias bias;
        cpu_bias_init(run, w->work, t, (w->head + i / w->rows) * run->group + i % run->group, &bias);
        if (rules->distance)
            w->slope[i] = bias_slope_of(run, &bias, w->rules.lo[t], w->rules.hi[t]);
        if (rules->values) {
            w->factor[i] = bias_factor(run, rules, bias.slope);
            w->bias[i] = bias;
            w->rules.row[t] = bias;
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
static void decode_qk(const struct decode_block *w, size_t row, uint32_t rows, const struct cursor *keys,
                      const struct cursor *next)
{
    struct step k;
    for (uint32_t i = 0; i < keys->count * keys->heads; i++) {
        const size_t first = row + (size_t)(i % keys->heads) * w->rows;
        float *s = w->score + first * SCORE_STRIDE + keys->first[i / keys->heads];
        cursor_step(keys, next, i, w->far, &k);
        const scores_fn *scores =
            w->ints ? int8_scores_table : scores_table[step_type(w->k_type, &k, w->dim)];
        for (uint32_t r = 0; r < rows; r += STEP_ROWS) {
            const uint32_t n = rows - r < STEP_ROWS ? rows - r : STEP_ROWS;
            scores[n - 1](&k, w->dim, w->q + (first + r) * w->q_stride, w->q_stride,
                          s + (size_t)r * SCORE_STRIDE);
        }
    }
}

/* Scales of a head's keys and values in this tile, and what they are without: 1 times the gain of the type.
 */
struct tile_scales {
    float k[CPU_TILE_KEYS], v[CPU_TILE_KEYS];
};

static void decode_scales(const struct decode_block *w, const struct decode_tile *tile, uint32_t head,
                          struct tile_scales *out)
{
    const struct cpu_run *run = w->run;
    const struct cpu_keys *keys = &tile->keys;
    const float k_gain = vec_gain(w->k_type), v_gain = vec_gain(w->v_type);
    if (w->one_scale) {
        const vec k = vec_set(k_gain * cpu_scale_at(&run->k.scale, 0, 0, head));
        const vec v = vec_set(v_gain * cpu_scale_at(&run->v.scale, 0, 0, head));
        for (uint32_t i = 0; i < CPU_TILE_KEYS; i += VEC_LANES) {
            vec_store(out->k + i, k);
            vec_store(out->v + i, v);
        }
        return;
    }
    for (uint32_t i = 0; i < CPU_TILE_KEYS; i++) {
        out->k[i] = k_gain;
        out->v[i] = v_gain;
        if ((tile->any >> i & 1) == 0)
            continue;
        out->k[i] *= cpu_key_scale(&run->k.scale, &run->k_new.scale, keys->k_scale, keys, i, head);
        out->v[i] *= cpu_key_scale(&run->v.scale, &run->v_new.scale, keys->v_scale, keys, i, head);
    }
}

/* What happens to a row's scores; NULL: nothing. */
struct score_rules {
    uint64_t seen; /* is not 0 */
    float unit;    /* of scores that are sums of integers */
    const struct tile_scales *scales;
    const struct bias_slope *slope;
    float distance; /* from the anchor of the slope to the tile's first key */
    const float *values;
    float factor;
};

/* VEC_LANES scores from key i of the tile on, with all that is applied to them. */
INLINE vec decode_scores(const struct decode_block *w, const struct score_rules *rules, const float *s,
                         uint32_t i)
{
    vec x = vec_load_f32(s + i);
    if (w->ints)
        x = vec_mul(x, vec_set(rules->unit));
    if (rules->scales != NULL)
        x = vec_mul(x, vec_load_f32(rules->scales->k + i));
    if (w->cap > 0)
        x = vec_mul(vec_tanh(x), vec_set(w->cap));
    if (rules->slope != NULL) {
        const vec d = vec_add(vec_set(rules->distance + (float)i), vec_load_f32(key_numbers));
        x = bias_alibi(x, vec_set(rules->slope->slope), vec_lanes(rules->slope->folded ? vec_all_lanes() : 0),
                       d);
    }
    if (rules->values != NULL)
        x = vec_fma(vec_load_f32(rules->values + i), vec_set(rules->factor), x);
    return x;
}

/* Weights times scales of values; those of keys that are not seen stay 0, whatever their scale is. */
INLINE vec decode_scaled(const struct score_rules *rules, vec p, uint32_t i)
{
    const vec_bool seen = vec_lanes((uint32_t)(rules->seen >> i) & vec_all_lanes());
    return vec_select(seen, vec_mul(p, vec_load_f32(rules->scales->v + i)), vec_zero());
}

/*
 * Turns a row's scores into weights. Scores of keys that are not seen were not computed, or are of another
 * key.
 */
static void decode_softmax(const struct decode_block *w, size_t row, const struct score_rules *rules)
{
    float *s = w->score + row * SCORE_STRIDE;
    const vec none = vec_set(-INFINITY);
    vec max = none;
    for (uint32_t i = 0; i < CPU_TILE_KEYS; i += VEC_LANES) {
        const uint32_t lanes = (uint32_t)(rules->seen >> i) & vec_all_lanes();
        vec x = decode_scores(w, rules, s, i);
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
        sum = vec_add(sum, p);
        vec_store(s + i, rules->scales != NULL ? decode_scaled(rules, p, i) : p);
    }
    w->correction[row] = vec_exp2_scalar(w->m[row] - base);
    w->l[row] = w->l[row] * w->correction[row] + vec_reduce_add(sum);
    w->m[row] = m;
}

/* P·V of the cursor's heads, the first of which has query row `row`, for `rows` rows of each: the tile's
 * sums. */
static void decode_pv(const struct decode_block *w, size_t row, uint32_t rows, const struct cursor *values,
                      const struct cursor *next)
{
    struct step v;
    for (uint32_t i = 0; i < values->count * values->heads; i++) {
        const size_t first = row + (size_t)(i % values->heads) * w->rows;
        const float *p = w->score + first * SCORE_STRIDE + values->first[i / values->heads];
        cursor_step(values, next, i, w->far, &v);
        const sums_fn *sums = sums_table[step_type(w->v_type, &v, w->dim_vo)];
        for (uint32_t r = 0; r < rows; r += STEP_ROWS) {
            const uint32_t n = rows - r < STEP_ROWS ? rows - r : STEP_ROWS;
            sums[n - 1](&v, w->dim_vo, p + (size_t)r * SCORE_STRIDE, i < values->heads,
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

/* Q·K of one row over the keys that it sees, of a tile whose offsets are `offsets`. */
static void decode_qk_alone(const struct decode_block *w, size_t row, const int64_t *offsets, uint64_t seen)
{
    const struct cursor none = {.count = 0};
    int64_t own[CPU_TILE_KEYS];
    struct cursor k;
    memcpy(own, offsets, sizeof own);
    offsets_fill(own, seen, STEP_KEYS);
    cursor_init(&k, &w->run->k, own, seen, STEP_KEYS, w->head + (uint32_t)(row / w->rows), 1);
    decode_qk(w, row, 1, &k, &none);
}

/* The weights of all rows of a kv head, `head` of the loop's, in one tile whose keys are at `offsets`. */
static void decode_weights(const struct decode_block *w, uint32_t head, const struct decode_tile *tile,
                           const int64_t *offsets)
{
    struct tile_scales scales;
    float values[CPU_TILE_KEYS];
    if (w->scaled)
        decode_scales(w, tile, w->head + head, &scales);
    for (uint32_t r = 0; r < w->rows; r++) {
        const size_t row = (size_t)head * w->rows + r;
        const uint32_t t = r / w->run->group;
        struct score_rules rules = {.seen = tile->seen[t], .scales = w->scaled ? &scales : NULL};
        bool zero = tile->zero[t];
        if (w->ints)
            rules.unit = w->unit[row];
        if (w->rules.bias.by_head && rules.seen != 0)
            rules.seen &= bias_fill(&w->rules.bias, &w->bias[row], tile->base, 0, tile->count,
                                    w->work->kv_len, values, &zero);
        w->seen[row] = rules.seen;
        if (rules.seen == 0)
            continue;
        if (w->products.used && tiled_row_odd(w, row, rules.seen))
            decode_qk_alone(w, row, offsets, rules.seen);
        if (!zero) {
            rules.values = w->rules.bias.by_head ? values : tile->values + (size_t)t * CPU_TILE_KEYS;
            rules.factor = w->factor[row];
        }
        if (w->rules.bias.distance) {
            rules.slope = &w->slope[row];
            rules.distance = (float)((int64_t)tile->base - rules.slope->anchor);
        }
        decode_softmax(w, row, &rules);
    }
}

static bool row_has_nan(const struct decode_block *w, size_t row)
{
    const float *x = w->tile + row * w->o_stride;
    vec probe = vec_zero();
    for (uint32_t i = 0; i < w->o_stride; i += VEC_LANES)
        probe = vec_fma(vec_load_f32(x + i), vec_zero(), probe);
    return vec_any_nan(probe);
}

/* P·V of one row over the keys that it sees, of a tile whose offsets are `offsets`. */
static void decode_pv_alone(const struct decode_block *w, size_t row, const int64_t *offsets)
{
    const struct cursor none = {.count = 0};
    const uint32_t head = w->head + (uint32_t)(row / w->rows);
    int64_t seen[CPU_TILE_KEYS];
    struct cursor v;
    memcpy(seen, offsets, sizeof seen);
    offsets_fill(seen, w->seen[row], STEP_KEYS);
    cursor_init(&v, &w->run->v, seen, w->seen[row], STEP_KEYS, head, 1);
    decode_pv(w, row, 1, &v, &none);
}

/*
 * One tile for `heads` kv heads, the first of which is `first` of the loop's. Values are read once for all
 * rows. 0 times the NaN or infinity of a value that only another row sees is not 0: where rows do not see the
 * same keys, one whose sums are not finite is computed once more, over its own keys.
 */
static void decode_heads(const struct decode_block *w, uint32_t first, uint32_t heads,
                         const struct decode_tile *tile, const struct cursor *next)
{
    const struct cpu_run *run = w->run;
    const size_t row = (size_t)first * w->rows;
    const int64_t *k_at = tile->keys.k, *v_at = tile->keys.v;
    int64_t k_own[CPU_TILE_KEYS], v_own[CPU_TILE_KEYS];
    struct cursor k, v;
    if (tile->apart) {
        const int64_t head = w->head + first;
        offsets_of_head(tile, k_at, head * (run->k_new.head_stride - run->k.head_stride), w->rules.step,
                        k_own);
        offsets_of_head(tile, v_at, head * (run->v_new.head_stride - run->v.head_stride), w->rules.step,
                        v_own);
        k_at = k_own;
        v_at = v_own;
    }
    cursor_init(&k, &run->k, k_at, tile->any, w->rules.step, w->head + first, heads);
    cursor_init(&v, &run->v, v_at, tile->any, w->rules.step, w->head + first, heads);
    if (w->products.used)
        tiled_scores(w, row, &k, &v);
    else
        decode_qk(w, row, w->rows, &k, &v);
    for (uint32_t h = 0; h < heads; h++)
        decode_weights(w, first + h, tile, k_at);
    if (w->products.used)
        tiled_sums(w, row, &v, next);
    else
        decode_pv(w, row, w->rows, &v, next);
    for (uint32_t i = 0; i < heads * w->rows; i++) {
        const size_t at = (row + i) * w->o_stride;
        if (w->seen[row + i] == 0)
            continue;
        if ((w->products.used || !tile->same) && row_has_nan(w, row + i))
            decode_pv_alone(w, row + i, v_at);
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
            vec_store(out + vec_offset(d, w->dim_vo), vec_add(x, vec_zero())); /* 0 for -0 */
        }
        cpu_epilogue(w->run, w->work, i % w->rows / group, h, out,
                     row_lse(w->run, w->work, w->m_total[i], w->l_total[i],
                             w->rules.bias.distance ? w->slope[i].base : 0));
    }
}

/* The keys that some token sees lie in [*from, *to). */
static void decode_visible(struct decode_block *w, uint32_t *from, uint32_t *to)
{
    *from = UINT32_MAX;
    *to = 0;
    for (uint32_t t = 0; t < w->work->tokens; t++) {
        uint32_t *lo = &w->rules.lo[t], *hi = &w->rules.hi[t];
        cpu_visible(w->run, w->work, t, lo, hi);
        if (*lo < *hi) {
            *from = *lo < *from ? *lo : *from;
            *to = *hi > *to ? *hi : *to;
        }
    }
}

/*
 * One tile for all heads; what is prefetched at its end is the next tile's, `after`, or NULL. Of tiles whose
 * new keys are apart nothing is: their offsets are those of one head.
 */
static void decode_one_tile(const struct decode_block *w, const struct decode_tile *tile,
                            const struct decode_tile *after)
{
    const uint32_t together = tile->apart ? 1 : w->together;
    if (tile->any == 0) /* a mask hides all of it */
        return;
    for (uint32_t h = 0; h < w->heads; h += together) {
        const uint32_t heads = w->heads - h < together ? w->heads - h : together;
        struct cursor next = {.count = 0};
        if (h + heads < w->heads && !tile->apart)
            cursor_init(&next, &w->run->k, tile->keys.k, tile->any, w->rules.step, w->head + h + heads,
                        together);
        else if (h + heads >= w->heads && after != NULL && !after->apart)
            cursor_init(&next, &w->run->k, after->keys.k, after->any, w->rules.step, w->head, w->together);
        decode_heads(w, h, heads, tile, &next);
    }
}

static void decode_kv_loop(struct decode_block *w)
{
    uint32_t from, to;
    struct decode_tile tiles[2], *now = &tiles[0], *after = &tiles[1];
    decode_visible(w, &from, &to);
    decode_queries(w);
    if (w->products.used)
        tiled_queries(w);
    decode_bias(w);
    decode_clear(w);
    now->values = w->values[0];
    after->values = w->values[1];
    if (from < to)
        tile_open(now, w->run, w->work, from - from % CPU_TILE_KEYS, &w->rules);
    for (uint32_t base = from - from % CPU_TILE_KEYS; base < to; base += CPU_TILE_KEYS) {
        const bool last = to - base <= CPU_TILE_KEYS;
        if (base % CPU_SPAN_KEYS == 0)
            decode_close_span(w);
        if (!last)
            tile_open(after, w->run, w->work, base + CPU_TILE_KEYS, &w->rules);
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

/*
 * How many kv heads share a tile: as many as stay in the L1 cache, for what is read in several places comes
 * sooner than in one. One where heads have fewer contiguous tokens than a tile: their pages are read in
 * order.
 */
static uint32_t heads_together(const struct decode_block *w)
{
    const struct cpu_cache *k = &w->run->k;
    const uint32_t stride = w->q_stride > w->o_stride ? w->q_stride : w->o_stride;
    const uint32_t fit = L1_FLOATS / (w->rows * stride);
    if (w->products.used)
        return k->head_stride > k->token_stride ? 1 : w->products.together;
    if (k->head_stride > k->token_stride && k->head_stride < (int64_t)CPU_TILE_KEYS * k->token_stride)
        return 1;
    return fit == 0 ? 1 : fit;
}

/* Whether a scale is the same for all keys of a head. */
static bool one_scale(const struct cpu_scale *scale)
{
    return scale->outer_stride == 0 && scale->token_stride == 0;
}

/* Processes one work item of a problem that does not need staging. */
static void decode_work(const struct cpu_run *run, const struct attn_work_item *work, void *scratch)
{
    struct decode_block w = {.run = run, .work = work, .rows = work->tokens * run->group};
    w.rules.bias = bias_rules_of(run);
    decode_lay_out(&w, run->problem, scratch);
    w.k_type = vec_type_of(run->k.dtype);
    w.v_type = vec_type_of(run->v.dtype);
    w.cap = query_cap(run);
    /* Tokens of a single head follow each other: the processor reads them ahead while many rows compute. */
    w.far = run->far && (run->problem->kv_heads > 1 || w.rows <= STEP_ROWS);
    w.one_scale = one_scale(&run->k.scale) && one_scale(&run->v.scale) && run->k_new.base == NULL;
    w.scaled = cpu_has_scales(run) || vec_gain(w.k_type) != 1 || vec_gain(w.v_type) != 1;

    w.rules.step = STEP_KEYS;
    tiled_begin(&w);

    uint32_t heads = decode_rows(run->problem) / w.rows;
    if (w.products.used && heads > PRODUCT_HEADS)
        heads = PRODUCT_HEADS;
    for (uint32_t h = 0; h < work->kv_heads; h += heads) {
        w.head = work->kv_head + h;
        w.heads = work->kv_heads - h < heads ? work->kv_heads - h : heads;
        w.together = heads_together(&w);
        decode_kv_loop(&w);
    }
    tiled_end(&w);
}

#endif
