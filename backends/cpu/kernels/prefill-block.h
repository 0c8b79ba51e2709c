/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What prefill does alike with every kind of products: the state of a block of query rows, the keys that its
 * rows see in a tile, and what becomes of scores before they are weights.
 *
 * Scores are stored as score[key][row], so that row max, sums and masks are computed lane by lane.
 *
 * Included behind what a kind of products defines: `struct products`, its operands and sums of a block,
 * ITEM_ROWS, the query rows of a work item at most, BLOCK_ROWS, those of a block, whose scores of a tile stay
 * in the L1 cache, KEYS_AT_ONCE, for which products make scores together, and STAGED_TILES.
 */
#ifndef ATTN_CPU_KERNELS_PREFILL_BLOCK_H
#define ATTN_CPU_KERNELS_PREFILL_BLOCK_H

#include "bias.h"

/* Blocks of a work item. */
#define BLOCKS (ITEM_ROWS / BLOCK_ROWS)
/* Query rows that products are computed for at a time. */
#define PANEL_ROWS (2 * VEC_LANES)
/* Distance of two keys of a tile's scores, score[key][row], in floats: whole cache lines, no power of two. */
#define KEY_STRIDE (BLOCK_ROWS + 16)
/* Distance of the values of two rows, in floats: the same. */
#define VALUE_STRIDE (CPU_TILE_KEYS + 16)

_Static_assert(BLOCK_ROWS % PANEL_ROWS == 0 && ITEM_ROWS % BLOCK_ROWS == 0,
               "a work item is whole blocks of whole panels");

/* ALiBi of the rows, in lanes: see struct bias_slope. */
struct prefill_alibi {
    float slope[BLOCK_ROWS];
    float folded[BLOCK_ROWS]; /* 1: without its sign, or 0 */
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
    enum vec_type k_type, v_type;
    float cap;                     /* soft cap in units of log2, 0 = none */
    uint32_t from, to;             /* [from, to) has all keys that some row sees */
    uint32_t every_from, every_to; /* every row sees all of [every_from, every_to) */
    bool has_queries;              /* they are where products take them from */
    bool span_empty;               /* nothing was added to the span yet */
    bool total_empty;              /* nor to the total */
    struct bias_rules bias_rules;
    bool rounds;                 /* weights may be rounded to bf16, and added up rounded */
    uint32_t value_rows;         /* query heads of a token that have the same values */
    struct cpu_bias *bias;       /* of each row, if there are values */
    float *values;               /* see prefill_values; rows of VALUE_STRIDE */
    struct prefill_alibi *alibi; /* if ALiBi is added by distance */
    struct products products;
    float *score;             /* of this tile; blocks share it */
    char *vector;             /* one key or value in one piece, if they are in several; shared too */
    float factor[BLOCK_ROWS]; /* of a row's values */
    float m[BLOCK_ROWS], m_total[BLOCK_ROWS]; /* what weights are relative to, in units of log2 */
    float l[BLOCK_ROWS], l_total[BLOCK_ROWS]; /* row sums */
    float correction[BLOCK_ROWS];             /* factor of a row's span for this tile */
    uint32_t lo[BLOCK_ROWS], hi[BLOCK_ROWS];  /* keys that a row may see */
    int32_t seen[2][BLOCK_ROWS];              /* of a tile that is not unmasked: a bit for each key */
};

/* One tile: entry i is key base + i; some row sees key base + from, some row base + to - 1. */
struct prefill_tile {
    uint32_t base, from, to;
    bool open;       /* some row sees a key of it */
    bool unmasked;   /* every row sees all of [from, to) */
    uint32_t masked; /* else the first entry that some row does not see, or no later one */
    bool biased;     /* some row has values to add */
    uint64_t present;
};

/* The query of a row: a token of the work item, and a query head. */
struct prefill_row {
    uint32_t token, head;
};

/* That of row r; rows behind the last are like it. */
INLINE struct prefill_row prefill_row(const struct prefill_block *w, uint32_t r)
{
    const uint32_t group = w->run->group, at = w->first + (r < w->rows ? r : w->rows - 1);
    return (struct prefill_row){at / group, w->head * group + at % group};
}

/* The values of row r, which rows of a token may have in common. */
INLINE float *prefill_values(const struct prefill_block *w, uint32_t r)
{
    return w->values + (size_t)((w->first % w->value_rows + r) / w->value_rows) * VALUE_STRIDE;
}

/* What is added to the scores of row r, and which keys its mask leaves. */
static void prefill_bias(struct prefill_block *w, uint32_t r)
{
    const struct cpu_run *run = w->run;
    const struct prefill_row row = prefill_row(w, r);
    struct cpu_bias bias;
    if (!w->bias_rules.values && !w->bias_rules.distance)
        return;
    cpu_bias_init(run, w->work, row.token, row.head, &bias);
    if (w->bias_rules.values) {
        w->factor[r] = bias_factor(run, &w->bias_rules, bias.slope);
        w->bias[r] = bias;
    }
    if (w->bias_rules.values && r > 0 && prefill_values(w, r) == prefill_values(w, r - 1)) {
        w->lo[r] = w->lo[r - 1];
        w->hi[r] = w->hi[r - 1];
    } else if (w->bias_rules.values) {
        bias_narrow(&w->bias_rules, &bias, w->work->kv_len, &w->lo[r], &w->hi[r]);
    }
    if (w->bias_rules.distance) {
        const struct bias_slope slope = bias_slope_of(run, &bias, w->lo[r], w->hi[r]);
        w->alibi->slope[r] = slope.slope;
        w->alibi->folded[r] = slope.folded ? 1 : 0;
        w->alibi->anchor[r] = slope.anchor;
        w->alibi->base[r] = slope.base;
    }
}

/* Which keys the rows see, and the state before the first key. */
static void prefill_begin(struct prefill_block *w)
{
    uint32_t token = UINT32_MAX, begin = 0, end = 0;
    w->from = w->every_to = UINT32_MAX;
    w->to = w->every_from = 0;
    for (uint32_t r = 0; r < w->padded; r++) {
        uint32_t *lo = &w->lo[r], *hi = &w->hi[r];
        const struct prefill_row row = prefill_row(w, r);
        if (row.token != token)
            cpu_visible(w->run, w->work, row.token, &begin, &end);
        token = row.token;
        *lo = begin;
        *hi = end;
        prefill_bias(w, r);
        if (*lo < *hi) {
            w->from = *lo < w->from ? *lo : w->from;
            w->to = *hi > w->to ? *hi : w->to;
        }
        w->every_from = *lo > w->every_from ? *lo : w->every_from;
        w->every_to = *hi < w->every_to ? *hi : w->every_to;
        w->m[r] = w->m_total[r] = -INFINITY;
        w->l[r] = w->l_total[r] = 0;
    }
    w->span_empty = w->total_empty = true;
    w->has_queries = false;
}

/* Query of row r as f32, times `factor`. */
static void prefill_query(const struct prefill_block *w, uint32_t r, float factor, float *to)
{
    const struct prefill_row row = prefill_row(w, r);
    query_convert(w->run, w->work, row.token, row.head, factor, to);
}

/* Where the query of row r begins, but for what lies apart of it. */
INLINE const char *prefill_query_address(const struct prefill_block *w, uint32_t r)
{
    const struct cpu_run *run = w->run;
    const struct prefill_row row = prefill_row(w, r);
    return run->q + ((int64_t)w->work->first_token + row.token) * run->q_token + row.head * run->q_head;
}

/* Prefetches a vector of n elements. */
INLINE void prefetch_vector(const char *vector, enum vec_type type, uint32_t n)
{
    for (uint32_t at = 0; at < vec_row_bytes(type, n); at += CACHE_LINE)
        __builtin_prefetch(vector + at, 0, 2);
}

/* Prefetches where the results go. */
static void prefill_prefetch_out(const struct prefill_block *w)
{
    const struct cpu_run *run = w->run;
    const uint32_t bytes = w->dim_vo * vec_size(vec_type_of(run->problem->out_dtype));
    for (uint32_t r = 0; r < w->rows && w->work->splits <= 1; r++) {
        const struct prefill_row row = prefill_row(w, r);
        const char *out = run->out + ((int64_t)w->work->first_token + row.token) * run->out_token +
                          row.head * run->out_head;
        for (uint32_t d = 0; d < bytes; d += CACHE_LINE)
            __builtin_prefetch(out + d, 1, 3);
    }
}

/* Prefetches the queries. */
static void prefill_prefetch_queries(const struct prefill_block *w)
{
    const enum vec_type type = vec_type_of(w->run->problem->q_dtype);
    for (uint32_t r = 0; r < w->rows; r++)
        prefetch_vector(prefill_query_address(w, r), type, w->run->q_rope != NULL ? w->dim_vo : w->dim);
}

/* Finds the keys of the tile at `base` that rows may see. */
static void prefill_open_range(const struct prefill_block *w, uint32_t base, struct prefill_tile *tile)
{
    const uint32_t end = w->to - base < CPU_TILE_KEYS ? w->to : base + CPU_TILE_KEYS;
    uint32_t from = end, to = base;
    *tile = (struct prefill_tile){.base = base};
    if (base >= w->every_from && base < w->every_to && w->every_to - base >= CPU_TILE_KEYS) {
        tile->to = CPU_TILE_KEYS;
        tile->open = tile->unmasked = true;
        return;
    }
    for (uint32_t r = 0; r < w->rows; r++) { /* without branches: compilers take vectors */
        const uint32_t lo = w->lo[r] > base ? w->lo[r] : base, hi = w->hi[r] < end ? w->hi[r] : end;
        const uint32_t first = lo < hi ? lo : end, last = lo < hi ? hi : base;
        from = first < from ? first : from;
        to = last > to ? last : to;
    }
    tile->open = from < to;
    tile->from = from - base;
    tile->to = to - base;
}

/* The keys of a tile that row r sees, and *zero: nothing is added to their scores. */
static uint64_t prefill_seen(struct prefill_block *w, uint32_t r, const struct prefill_tile *tile, bool *zero)
{
    const uint64_t seen = tile->present & bits_of_keys(tile->base, w->lo[r], w->hi[r]);
    *zero = true;
    if (!w->bias_rules.values)
        return seen;
    return seen & bias_fill(&w->bias_rules, &w->bias[r], tile->base, tile->from, tile->to, w->work->kv_len,
                            prefill_values(w, r), zero);
}

/* Opens a tile whose range is known: finds which of its keys each row sees. */
static void prefill_open_tile(struct prefill_block *w, uint64_t present, struct prefill_tile *tile)
{
    const uint64_t range = bits_between(tile->from, tile->to);
    uint64_t seen = 0, any = 0, every = range;
    bool zero = true;
    if (!tile->open)
        return;
    tile->present = present;
    if (tile->unmasked && !w->bias_rules.values && (range & ~present) == 0)
        return;
    for (uint32_t r = 0, of_token = w->first % w->value_rows; r < w->padded; r++, of_token++) {
        of_token = of_token == w->value_rows ? 0 : of_token;
        if (r < w->rows && (r == 0 || of_token == 0))
            seen = prefill_seen(w, r, tile, &zero);
        tile->biased = tile->biased || !zero;
        any |= seen;
        every &= seen;
        w->seen[0][r] = (int32_t)(uint32_t)seen;
        w->seen[1][r] = (int32_t)(uint32_t)(seen >> 32);
    }
    tile->open = any != 0;
    tile->unmasked = every == range;
    tile->masked = tile->from % KEYS_AT_ONCE == 0 && !tile->unmasked
                       ? (uint32_t)__builtin_ctzll(range & ~every)
                       : tile->from;
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
    uint32_t dim;
};

INLINE struct stage_side side_of_keys(const struct prefill_block *w, const struct cpu_keys *keys)
{
    return (struct stage_side){&w->run->k, &w->run->k_new, keys->k, keys->k_scale, w->k_type, w->dim};
}

INLINE struct stage_side side_of_values(const struct prefill_block *w, const struct cpu_keys *keys)
{
    return (struct stage_side){&w->run->v, &w->run->v_new, keys->v, keys->v_scale, w->v_type, w->dim_vo};
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

/* Where the vector of key i of a tile begins, and of which cache or new rows it is. */
INLINE const char *side_address(const struct prefill_block *w, const struct stage_side *side,
                                const struct cpu_keys *keys, uint32_t i, const struct cpu_cache **from)
{
    *from = i < keys->first_new ? side->cached : side->new_rows;
    return side->cached->base + side->offsets[i] + (int64_t)w->head * (*from)->head_stride;
}

/* That vector in one piece, and what its elements are multiplied with. */
INLINE const char *side_vector(const struct prefill_block *w, const struct stage_side *side,
                               const struct cpu_keys *keys, uint32_t i, float *factor)
{
    const struct cpu_cache *cache = side->cached, *from;
    const char *vector = side_address(w, side, keys, i, &from);
    *factor = vec_gain(side->type) *
              cpu_key_scale(&cache->scale, &side->new_rows->scale, side->scales, keys, i, w->head);
    if (from->x == 0 || from->x >= side->dim)
        return vector;
    join(vector, from, vec_size(side->type), side->dim, w->vector);
    return w->vector;
}

/* Prefetches the keys of a tile and their values; vectors in pieces are left. */
static void prefill_prefetch(const struct prefill_block *w, const struct prefill_tile *tile,
                             const struct cpu_keys *keys)
{
    const struct stage_side k = side_of_keys(w, keys), v = side_of_values(w, keys);
    const struct cpu_cache *from;
    for (uint32_t i = tile->from; i < tile->to && w->run->k.x == 0; i++) {
        const char *key = side_address(w, &k, keys, i, &from), *value = side_address(w, &v, keys, i, &from);
        if ((keys->present >> i & 1) == 0)
            continue;
        prefetch_vector(key, k.type, k.dim);
        if (value != key)
            prefetch_vector(value, v.type, v.dim);
    }
}

/* Masks, for a vector of query rows from r on, the scores of keys that they do not see, of all that products
 * compute beside those of the tile. */
static void columns_mask(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile)
{
    const vec none = vec_set(-INFINITY);
    const uint32_t end = (tile->to + KEYS_AT_ONCE - 1) / KEYS_AT_ONCE * KEYS_AT_ONCE;
    for (uint32_t i = tile->masked / KEYS_AT_ONCE * KEYS_AT_ONCE; i < end; i++) {
        const vec_bool seen = vec_bit(vec_load_int(&w->seen[i / 32][r]), i % 32);
        float *s = w->score + (size_t)i * KEY_STRIDE + r;
        vec_store(s, vec_select(seen, vec_load_f32(s), none));
    }
}

/* Adds ALiBi to the scores of a vector of query rows from r on, which will be multiplied with `unit`. */
static void columns_alibi(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile,
                          vec unit)
{
    float distances[VEC_LANES]; /* from the anchor to the tile's first key */
    for (uint32_t i = 0; i < VEC_LANES; i++)
        distances[i] = (float)((int64_t)tile->base - w->alibi->anchor[r + i]);
    const vec slope = vec_div(vec_load_f32(w->alibi->slope + r), unit);
    const vec distance = vec_load_f32(distances);
    const vec_bool folded = vec_less(vec_zero(), vec_load_f32(w->alibi->folded + r));
    const bool any_folded = vec_bits(folded) != 0;
    for (uint32_t i = tile->from; i < tile->to; i++) {
        float *s = w->score + (size_t)i * KEY_STRIDE + r;
        const vec d = vec_add(distance, vec_broadcast(&key_numbers[i]));
        vec_store(s, any_folded ? bias_alibi(vec_load_f32(s), slope, folded, d)
                                : vec_fma(slope, d, vec_load_f32(s)));
    }
}

/* Adds values, which rows have side by side, in the same way. */
static void columns_values(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile,
                           vec unit)
{
    const vec factor = vec_div(vec_load_f32(w->factor + r), unit);
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
            vec_store(s, vec_fma(a[j], factor, vec_load_f32(s)));
        }
    }
}

/* Multiplies scores of a vector of query rows, from r on, with `unit`, and applies the soft cap. */
static void columns_cap(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile, vec unit)
{
    const vec cap = vec_set(w->cap);
    for (uint32_t i = tile->from; i < tile->to; i++) {
        float *s = w->score + (size_t)i * KEY_STRIDE + r;
        vec_store(s, vec_mul(vec_tanh(vec_mul(vec_load_f32(s), unit)), cap));
    }
}

/* Applies all rules to the scores of a vector of query rows from r on; returns what is left to multiply them
 * with.
 */
static vec columns_rules(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile, vec unit)
{
    if (w->cap > 0) {
        columns_cap(w, r, tile, unit);
        unit = vec_set(1);
    }
    if (w->bias_rules.distance)
        columns_alibi(w, r, tile, unit);
    if (tile->biased)
        columns_values(w, r, tile, unit);
    if (!tile->unmasked)
        columns_mask(w, r, tile);
    return unit;
}

/* The largest scores of a vector of query rows from r on; a score that is NaN comes back as a weight. */
static vec columns_largest(const struct prefill_block *w, uint32_t r, const struct prefill_tile *tile)
{
    const float *s = w->score + r;
    vec even = vec_set(-INFINITY), odd = even;
    uint32_t i = tile->from;
    for (; i + 2 <= tile->to; i += 2) {
        even = vec_max(vec_load_f32(s + (size_t)i * KEY_STRIDE), even);
        odd = vec_max(vec_load_f32(s + (size_t)(i + 1) * KEY_STRIDE), odd);
    }
    if (i < tile->to)
        even = vec_max(vec_load_f32(s + (size_t)i * KEY_STRIDE), even);
    return vec_max(even, odd);
}

/* Whether row r sees key base + i of a tile. */
static bool prefill_sees(const struct prefill_block *w, const struct prefill_tile *tile, uint32_t r,
                         uint32_t i)
{
    return tile->unmasked || ((uint32_t)w->seen[i / 32][r] >> i % 32 & 1) != 0;
}

#endif
