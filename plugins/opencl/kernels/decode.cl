/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention for sequences with few query tokens. A work-group takes DECODE_ROWS rows (tokens and heads) of
 * one kv head and a range of its keys, in tiles of DECODE_ITEMS keys. DECODE_LANES work-items beside each
 * other load a key together, and as many keys one after the other, so that a value of the query is used for
 * several keys; their products are added in local memory. Then a work-item takes the scores of one key; then
 * the work-items add the values, eight columns each, DECODE_PARTS keys at a time. Ranges begin at multiples
 * of SPLIT_KEYS; attn_combine adds up what several of them give. Sums of weights, and with DECODE_EXACT those
 * of values, keep what they lose.
 */
#ifdef DECODE_ITEMS

#define DECODE_VECTORS (HEAD_DIM_VO / 8)
#define DECODE_PARTS   (DECODE_ITEMS / DECODE_VECTORS)
#define DECODE_GROUPS  (DECODE_ROWS == 8 ? 8 : 16) /* of keys, in which the row maxima are found */
#define DECODE_GROUP   (DECODE_ITEMS / DECODE_GROUPS)
#define DECODE_STEP    (DECODE_ITEMS / DECODE_LANES) /* from a work-item's key to its next one */

/* A hidden key's weight: as a factor it is zero, and it can be told from one. */
#define HIDDEN (-0.0f)

/* What a split leaves for attn_combine after its columns. */
#define PARTIAL_ROW_MAX HEAD_DIM_VO
#define PARTIAL_WEIGHT  (HEAD_DIM_VO + 1)
#define PARTIAL_COUNT   (HEAD_DIM_VO + 2) /* splits that the row has, in the first one */
#define PARTIAL_SIZE    (HEAD_DIM_VO + PARTIAL_EXTRA)

/* The rows of a work-group, and the keys that any of them may see. */
struct decode_rows {
    struct row row[DECODE_ROWS];
    int lo, hi;
};

/* What a work-item has of the rows so far, beside its sums in local memory. */
struct decode_state {
    float row_max[DECODE_ROWS], weight[DECODE_ROWS], weight_lost[DECODE_ROWS];
#ifdef DECODE_EXACT
    float8 lost[DECODE_ROWS];
#endif
};

/* Of the keys of a tile. Places are byte offsets, times two, plus one for new keys; negative where there is
 * no key. */
struct __attribute__((aligned(16))) decode_tile {
    float weight[DECODE_ITEMS][DECODE_ROWS];     /* scores, then weights */
    float4 total[2 * DECODE_ROWS][DECODE_ITEMS]; /* sums of each work-item over the tiles so far */
    float product[DECODE_LANES][DECODE_ROWS][DECODE_ITEMS];
    float group_max[DECODE_GROUPS][DECODE_ROWS];
    long k[DECODE_ITEMS], v[DECODE_ITEMS];
    float v_scale[DECODE_ITEMS];
    int mixed; /* a key is hidden from some rows alone */
};

INLINE __global float *partial_of(const struct run *run, int seq, int token, int head, int split)
{
    const struct opencl_arguments *a = run->a;
    const long row = ((long)seq * a->decode_tokens + token) * a->heads + head;

    return (__global float *)run->workspace + (row * a->splits + split) * PARTIAL_SIZE;
}

/* Rows behind the last see no key. */
INLINE void find_rows(const struct run *run, const struct sequence *s, int first, int count, int kv_head,
                      __local struct decode_rows *rows, __local float *query)
{
    const int group = run->a->group;

    for (int r = (int)get_local_id(0); r < DECODE_ROWS; r += DECODE_ITEMS) {
        struct row row;
        row.lo = row.hi = 0;
        if (first + r < count)
            row = find_row(run, s, s->row + (first + r) / group, kv_head * group + (first + r) % group);
        rows->row[r] = row;
    }
    for (int i = (int)get_local_id(0); i < DECODE_ROWS * HEAD_DIM; i += DECODE_ITEMS) {
        const int r = i / HEAD_DIM, d = i % HEAD_DIM;
        query[i] = first + r < count ? load_element(run->a->q_dtype,
                                                    query_element(run, s->row + (first + r) / group,
                                                                  kv_head * group + (first + r) % group, d))
                                     : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        rows->lo = INT_MAX;
        rows->hi = 0;
        UNROLL
        for (int r = 0; r < DECODE_ROWS; r++) {
            if (rows->row[r].lo < rows->row[r].hi) {
                rows->lo = min(rows->lo, rows->row[r].lo);
                rows->hi = max(rows->hi, rows->row[r].hi);
            }
        }
        rows->lo = min(rows->lo, rows->hi);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* The place of the key of a work-item; false where no row can see one. */
INLINE bool decode_find(const struct run *run, const struct sequence *s,
                        __local const struct decode_rows *rows, int kv_head, int key, int end,
                        struct place *out)
{
    return key >= rows->lo && key < end && find_place(run, s, kv_head, key, out);
}

INLINE struct eight decode_fetch(const struct run *run, long at, int d)
{
    struct eight eight;

    eight.low = eight.high = (uint4)(0);
    if (at >= 0)
        eight = fetch_eight(K_DTYPE, ((at & 1) != 0 ? run->k_new : run->k) + (at >> 1) + d * SIZE(K_DTYPE));
    return eight;
}

/* The products of a work-item's part of the columns, for its keys and all rows. */
INLINE void decode_products(const struct run *run, __local const float *query, int item,
                            __local struct decode_tile *tile)
{
    const int lane = item % DECODE_LANES, first = item / DECODE_LANES;
    float sum[DECODE_LANES][DECODE_ROWS];
    long at[DECODE_LANES];

    UNROLL
    for (int j = 0; j < DECODE_LANES; j++) {
        at[j] = tile->k[first + j * DECODE_STEP];
        UNROLL
        for (int r = 0; r < DECODE_ROWS; r++)
            sum[j][r] = 0;
    }
    UNROLL_TWO
    for (int d = lane * 8; d < HEAD_DIM; d += DECODE_LANES * 8) {
        struct eight eight[DECODE_LANES];
        UNROLL
        for (int j = 0; j < DECODE_LANES; j++)
            eight[j] = decode_fetch(run, at[j], d);
        UNROLL
        for (int j = 0; j < DECODE_LANES; j++) {
            const float8 k = expand_eight(K_DTYPE, eight[j]);
            UNROLL
            for (int r = 0; r < DECODE_ROWS; r++) {
                const float4 low = *(__local const float4 *)(query + r * HEAD_DIM + d);
                const float4 high = *(__local const float4 *)(query + r * HEAD_DIM + d + 4);
                float eight_sum = low.x * k.s0;
                eight_sum += low.y * k.s1;
                eight_sum += low.z * k.s2;
                eight_sum += low.w * k.s3;
                eight_sum += high.x * k.s4;
                eight_sum += high.y * k.s5;
                eight_sum += high.z * k.s6;
                eight_sum += high.w * k.s7;
                sum[j][r] += eight_sum;
            }
        }
    }
    UNROLL
    for (int j = 0; j < DECODE_LANES; j++) {
        UNROLL
        for (int r = 0; r < DECODE_ROWS; r++)
            tile->product[lane][r][first + j * DECODE_STEP] = sum[j][r];
    }
}

/* The scores of a work-item's key for the rows that see it, as bits. */
INLINE int decode_scores(const struct run *run, const struct sequence *s,
                         __local const struct decode_rows *rows, int key, int item, float k_scale,
                         __local const struct decode_tile *tile, float *score)
{
    const bool plain = !run->a->has_mask && !GIVEN(run, slopes);
    int seen = 0;

    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++) {
        float bias = 0, product = tile->product[0][r][item];
        bool visible = tile->k[item] >= 0 && key >= rows->row[r].lo && key < rows->row[r].hi;
        if (visible && !plain) {
            const struct row row = rows->row[r];
            visible = sees(run, s, &row, key, &bias);
        }
        UNROLL
        for (int lane = 1; lane < DECODE_LANES; lane++)
            product += tile->product[lane][r][item];
        score[r] = -INFINITY;
        if (visible) {
            score[r] = score_of(run, product, rows->row[r].scale, k_scale) + bias;
            seen |= 1 << r;
        }
    }
    return seen;
}

/* The maxima of the rows from the tile's scores: those of groups of keys, then of all. */
INLINE void decode_maxima(__local struct decode_tile *tile, int item, float *row_max)
{
    const int r = item % DECODE_ROWS, group = item / DECODE_ROWS;
    float most = -INFINITY;

    if (group < DECODE_GROUPS) {
        for (int i = 0; i < DECODE_GROUP; i++) {
            const float score = tile->weight[group * DECODE_GROUP + i][r];
            most = score > most ? score : most;
        }
        tile->group_max[group][r] = most;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL
    for (int i = 0; i < DECODE_ROWS; i++)
        row_max[i] = -INFINITY;
    UNROLL
    for (int g = 0; g < DECODE_GROUPS; g++) {
        UNROLL
        for (int i = 0; i < DECODE_ROWS; i++)
            row_max[i] = tile->group_max[g][i] > row_max[i] ? tile->group_max[g][i] : row_max[i];
    }
}

INLINE float8 decode_value(const struct run *run, long at, int vector)
{
    float8 value = (float8)(0);

    if (at >= 0)
        value = load_eight(V_DTYPE,
                           ((at & 1) != 0 ? run->v_new : run->v) + (at >> 1) + vector * 8 * SIZE(V_DTYPE));
    return value;
}

/*
 * Sums the values of a work-item's columns and part of the keys. With `mixed`, values of hidden keys may be
 * NaN. *weight gets the sums of the weights.
 */
INLINE void decode_values(const struct run *run, __local const struct decode_tile *tile, int item, bool mixed,
                          float8 *column, float *weight)
{
    const int part = item / DECODE_VECTORS, vector = item % DECODE_VECTORS;

    if (part >= DECODE_PARTS)
        return;
    UNROLL_LOADS
    for (int i = part; i < DECODE_ITEMS; i += DECODE_PARTS) {
        const float8 value = decode_value(run, tile->v[i], vector);
        UNROLL
        for (int r = 0; r < DECODE_ROWS; r++) {
            const float w = tile->weight[i][r];
            const float factor =
                SIZE(V_DTYPE) == 1 ? w * tile->v_scale[i] : w; /* only 8-bit values have a scale */
            if (!mixed || as_uint(w) != as_uint(HIDDEN))
                column[r] += factor * value;
            weight[r] += w;
        }
    }
}

/* Sums that work-items left in the tile, of a column of a row, over all parts of the keys. */
INLINE float sum_column(__local const struct decode_tile *tile, int r, int d)
{
    __local const float *at = (__local const float *)tile->total[2 * r + d % 8 / 4] + d / 8 * 4 + d % 4;
    float sum = 0;

    for (int p = 0; p < DECODE_PARTS; p++)
        sum += at[p * DECODE_VECTORS * 4];
    return sum;
}

INLINE float sum_weight(__local const struct decode_tile *tile, int r)
{
    float sum = 0;

    for (int p = 0; p < DECODE_PARTS; p++)
        sum += tile->weight[p][r];
    return sum;
}

/* Stores a row of the only split, or what a split has of it. */
INLINE void decode_store(const struct run *run, const struct sequence *s,
                         __local const struct decode_tile *tile, int item, int r, int token, int head,
                         float row_max, int split, int count)
{
    const float weight = sum_weight(tile, r);
    __global float *partial = partial_of(run, s->index, token, head, split);

    if (count > 1) {
        for (int d = item; d < HEAD_DIM_VO; d += DECODE_ITEMS)
            partial[d] = sum_column(tile, r, d);
        if (item == 0) {
            partial[PARTIAL_ROW_MAX] = row_max;
            partial[PARTIAL_WEIGHT] = weight;
        }
    } else {
        const struct finish finish = finish_of(run, s->index, s->row + token, head, row_max, weight);
        for (int d = item; d < HEAD_DIM_VO; d += DECODE_ITEMS)
            store_column(run, &finish, s->row + token, head, d, sum_column(tile, r, d));
        if (item == 0)
            store_lse(run, &finish, s->row + token, head);
    }
    if (split == 0 && item == 0 && run->a->splits > 1)
        partial[PARTIAL_COUNT] = (float)count;
}

/* Adds a tile's sums of a row to the totals, which are worth `factor` of what they were. */
INLINE void decode_add(__local struct decode_tile *tile, int item, int r, float factor, float8 column,
                       float weight, struct decode_state *state)
{
    __local float4 *low = &tile->total[2 * r][item], *high = &tile->total[2 * r + 1][item];
    const float before = state->weight[r] * factor, rest = weight - state->weight_lost[r] * factor;

    state->weight[r] = before + rest;
    state->weight_lost[r] = lost_of(before, rest, state->weight[r]);
#ifdef DECODE_EXACT
    const float8 values = column - state->lost[r] * factor;
    const float4 old_low = *low * factor, old_high = *high * factor;
    *low = old_low + values.lo;
    *high = old_high + values.hi;
    state->lost[r].lo = lost_of4(old_low, values.lo, *low);
    state->lost[r].hi = lost_of4(old_high, values.hi, *high);
#else
    *low = *low * factor + column.lo;
    *high = *high * factor + column.hi;
#endif
}

/*
 * A tile of keys from `first` on: adds it to the sums, relative to the row maxima, which it may raise. Before
 * the values are waited for, the work-item's key of the next tile is found.
 */
INLINE void decode_tile(const struct run *run, const struct sequence *s,
                        __local const struct decode_rows *rows, __local const float *query,
                        __local struct decode_tile *tile, int kv_head, int first, int end, int item, int all,
                        bool *found, struct place *place, struct decode_state *state)
{
    float *row_max = state->row_max;
    float8 column[DECODE_ROWS];
    float score[DECODE_ROWS], most[DECODE_ROWS], factor[DECODE_ROWS], sum[DECODE_ROWS];
    const float k_scale = place->k_scale;

    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0)
        tile->mixed = 0;
    tile->k[item] = *found ? place->k * 2 + place->is_new : -1;
    tile->v[item] = *found ? place->v * 2 + place->is_new : -1;
    tile->v_scale[item] = *found ? place->v_scale : 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    decode_products(run, query, item, tile);
    *found = decode_find(run, s, rows, kv_head, first + DECODE_ITEMS + item, end, place);
    barrier(CLK_LOCAL_MEM_FENCE);
    const int seen = decode_scores(run, s, rows, first + item, item, k_scale, tile, score);
    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++)
        tile->weight[item][r] = score[r];
    barrier(CLK_LOCAL_MEM_FENCE);
    decode_maxima(tile, item, most);
    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++) {
        factor[r] = 1;
        if (most[r] > row_max[r] + RESCALE_THRESHOLD) {
            factor[r] = exp(row_max[r] - most[r]);
            row_max[r] = most[r];
        }
        column[r] = (float8)(0);
        sum[r] = 0;
        tile->weight[item][r] = (seen >> r & 1) != 0 ? exp(score[r] - base_of(row_max[r])) : HIDDEN;
    }
    if (seen == 0) {
        tile->v[item] = -1;
        tile->v_scale[item] = 1; /* a hidden key's may be NaN */
    } else if (seen != all) {
        tile->mixed = 1;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (tile->mixed != 0)
        decode_values(run, tile, item, true, column, sum);
    else
        decode_values(run, tile, item, false, column, sum);
    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++)
        decode_add(tile, item, r, factor[r], column[r], sum[r], state);
}

__kernel __attribute__((reqd_work_group_size(DECODE_ITEMS, 1, 1))) void attn_decode(OPENCL_PARAMETERS)
{
    __local struct decode_rows rows;
    __local float query[DECODE_ROWS * HEAD_DIM] __attribute__((aligned(16)));
    __local struct decode_tile tile;
    const int item = (int)get_local_id(0), split = (int)get_group_id(1);
    const int kv_heads = arguments.heads / arguments.group, kv_head = (int)(get_group_id(0) % kv_heads);
    const int seq = (int)(get_group_id(0) / kv_heads), first_row = (int)get_group_id(2) * DECODE_ROWS;
    struct place place;
    struct decode_state state;

    OPENCL_BEGIN
    const struct sequence s = sequence_at(&run, seq);
    const int count = s.q_len <= arguments.decode_tokens ? s.q_len * arguments.group : 0;
    if (first_row >= count)
        return;
    find_rows(&run, &s, first_row, count, kv_head, &rows, query);
    const int origin = rows.lo - rows.lo % SPLIT_KEYS, hi = rows.hi;
    const int spans = max((hi - origin + SPLIT_KEYS - 1) / SPLIT_KEYS, 1);
    const int keys = (spans + arguments.splits - 1) / arguments.splits * SPLIT_KEYS;
    const int splits = max((hi - origin + keys - 1) / keys, 1);
    if (split >= splits)
        return;
    const int begin = origin + split * keys, end = begin + min(keys, hi - begin);
    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++) {
        tile.total[2 * r][item] = tile.total[2 * r + 1][item] = (float4)(0);
        state.weight[r] = state.weight_lost[r] = 0;
        state.row_max[r] = -INFINITY;
#ifdef DECODE_EXACT
        state.lost[r] = (float8)(0);
#endif
    }
    const int all = (1 << min(count - first_row, DECODE_ROWS)) - 1;
    place.k_scale = place.v_scale = 1;
    bool found = decode_find(&run, &s, &rows, kv_head, begin + item, end, &place);
    for (int first = begin; first < end; first += DECODE_ITEMS)
        decode_tile(&run, &s, &rows, query, &tile, kv_head, first, end, item, all, &found, &place, &state);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item % DECODE_VECTORS == 0 && item / DECODE_VECTORS < DECODE_PARTS) {
        UNROLL
        for (int r = 0; r < DECODE_ROWS; r++)
            tile.weight[item / DECODE_VECTORS][r] = state.weight[r];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++)
        if (first_row + r < count)
            decode_store(&run, &s, &tile, item, r, (first_row + r) / arguments.group,
                         kv_head * arguments.group + (first_row + r) % arguments.group, state.row_max[r],
                         split, splits);
}

/* Adds a value of a split to a sum that is relative to `row_max`. */
INLINE void add_part(float *sum, float *lost, __global const float *partial, int at, float row_max)
{
    const float before = *sum, rest = partial[at] * exp(partial[PARTIAL_ROW_MAX] - row_max) - *lost;

    *sum = before + rest;
    *lost = lost_of(before, rest, *sum);
}

/* Adds up the splits of a row. */
__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_combine(OPENCL_PARAMETERS)
{
    const int head = (int)get_group_id(0), token = (int)get_group_id(1), seq = (int)get_group_id(2);
    float row_max = -INFINITY, weight = 0, lost = 0;

    OPENCL_BEGIN
    const struct sequence s = sequence_at(&run, seq);
    if (token >= s.q_len || s.q_len > arguments.decode_tokens)
        return;
    __global const float *partial = partial_of(&run, seq, token, head, 0);
    const int splits = (int)partial[PARTIAL_COUNT];
    if (splits == 1)
        return;
    for (int i = 0; i < splits; i++)
        row_max = partial[i * PARTIAL_SIZE + PARTIAL_ROW_MAX] > row_max
                      ? partial[i * PARTIAL_SIZE + PARTIAL_ROW_MAX]
                      : row_max;
    for (int i = 0; i < splits; i++)
        if (partial[i * PARTIAL_SIZE + PARTIAL_WEIGHT] != 0)
            add_part(&weight, &lost, partial + i * PARTIAL_SIZE, PARTIAL_WEIGHT, row_max);
    const struct finish finish = finish_of(&run, seq, s.row + token, head, row_max, weight);
    if (get_local_id(0) == 0)
        store_lse(&run, &finish, s.row + token, head);
    for (int d = (int)get_local_id(0); d < HEAD_DIM_VO; d += OPENCL_ITEMS) {
        float sum = 0;
        lost = 0;
        for (int i = 0; i < splits; i++)
            if (partial[i * PARTIAL_SIZE + PARTIAL_WEIGHT] != 0)
                add_part(&sum, &lost, partial + i * PARTIAL_SIZE, d, row_max);
        store_column(&run, &finish, s.row + token, head, d, sum);
    }
}

#endif
