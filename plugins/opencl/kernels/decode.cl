/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention for sequences with few query tokens. A work-group takes DECODE_ROWS rows (tokens and heads) of one kv head
 * and a range of its keys, in tiles of DECODE_ITEMS keys: each work-item finds one key and its scores for all rows, so
 * that no sum crosses work-items; then the work-items add the values, eight columns each, DECODE_PARTS keys at a time.
 * Ranges begin at multiples of SPLIT_KEYS; attn_combine adds up what several of them give.
 */
#ifdef DECODE_ITEMS

#define DECODE_VECTORS (HEAD_DIM_VO / 8)
#define DECODE_PARTS   (DECODE_ITEMS / DECODE_VECTORS)
#define DECODE_GROUPS  (DECODE_ITEMS / DECODE_ROWS) /* in which the row maxima are found */

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

/* A tile: the score of each row and key, which becomes its weight, and the values. */
struct decode_tile {
    float weight[DECODE_ROWS][DECODE_ITEMS + 4]; /* apart, so that rows lie in different banks */
    float group_max[DECODE_GROUPS][DECODE_ROWS];
    float value_scale[DECODE_ITEMS];
    long value[DECODE_ITEMS]; /* byte offset; negative where no row sees the key */
    int mixed;                /* a key is hidden from some rows alone */
};

struct decode_sums {
    float8 column[DECODE_ROWS];
    float weight[DECODE_ROWS];
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
        query[i] = first + r < count
                       ? load_element(run->a->q_dtype, query_element(run, s->row + (first + r) / group,
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

/* <q, k> for all rows. */
INLINE void decode_products(__local const float *query, __global const uchar *k, float *out)
{
    float4 sum[DECODE_ROWS];

    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++)
        sum[r] = (float4)(0);
    UNROLL_LOADS
    for (int d = 0; d < HEAD_DIM; d += 8) {
        const float8 eight = load_eight(K_DTYPE, k + d * SIZE(K_DTYPE));
        UNROLL
        for (int r = 0; r < DECODE_ROWS; r++) {
            __local const float4 *q = (__local const float4 *)(query + r * HEAD_DIM + d);
            sum[r] += q[0] * eight.lo + q[1] * eight.hi;
        }
    }
    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++)
        out[r] = (sum[r].x + sum[r].y) + (sum[r].z + sum[r].w);
}

/* Scores of a key for the rows that see it, as bits; its place and scores go into the tile. */
INLINE int decode_key(const struct run *run, const struct sequence *s, __local const struct decode_rows *rows,
               __local const float *query, int key, int item, __local struct decode_tile *tile, float *score)
{
    const bool plain = !run->a->has_mask && !GIVEN(run, slopes);
    struct place place;
    float product[DECODE_ROWS];
    int seen = 0;

    tile->value[item] = -1;
    if (key < rows->lo || key >= rows->hi || !find_place(run, s, rows->row[0].kv_head, key, &place))
        return 0;
    decode_products(query, (place.is_new ? run->k_new : run->k) + place.k, product);
    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++) {
        float bias = 0;
        bool visible = key >= rows->row[r].lo && key < rows->row[r].hi;
        if (visible && !plain) {
            const struct row row = rows->row[r];
            visible = sees(run, s, &row, key, &bias);
        }
        if (visible) {
            score[r] = score_of(run, product[r], rows->row[r].scale, place.k_scale) + bias;
            seen |= 1 << r;
        }
    }
    tile->value[item] = seen != 0 ? place.v : -1;
    tile->value_scale[item] = place.v_scale;
    return seen;
}

/* The new maxima of the rows from the tile's scores: those of the groups, then of all. */
INLINE void decode_maxima(__local struct decode_tile *tile, int item, float *row_max)
{
    const int r = item % DECODE_ROWS, group = item / DECODE_ROWS;
    float most = -INFINITY;

    UNROLL
    for (int i = 0; i < DECODE_ROWS; i++) {
        const float score = tile->weight[r][group * DECODE_ROWS + i];
        most = score > most ? score : most;
    }
    tile->group_max[group][r] = most;
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL
    for (int i = 0; i < DECODE_ROWS; i++)
        row_max[i] = -INFINITY;
    for (int g = 0; g < DECODE_GROUPS; g++)
        UNROLL
        for (int i = 0; i < DECODE_ROWS; i++)
            row_max[i] = tile->group_max[g][i] > row_max[i] ? tile->group_max[g][i] : row_max[i];
}

/* Adds the values of a work-item's columns and part of the keys. With `mixed`, values of hidden keys may be NaN. */
INLINE void decode_values(const struct run *run, __local const struct decode_tile *tile, int first, int new_begin, int item,
                   bool mixed, struct decode_sums *sums)
{
    const int part = item / DECODE_VECTORS, vector = item % DECODE_VECTORS;

    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++) {
        sums->column[r] = (float8)(0);
        sums->weight[r] = 0;
    }
    if (part >= DECODE_PARTS)
        return;
    UNROLL_LOADS
    for (int i = part; i < DECODE_ITEMS; i += DECODE_PARTS) {
        const long at = tile->value[i];
        float8 value = (float8)(0);
        if (at >= 0)
            value = load_eight(V_DTYPE, (first + i >= new_begin ? run->v_new : run->v) + at +
                                            vector * 8 * SIZE(V_DTYPE)) * tile->value_scale[i];
        UNROLL
        for (int r = 0; r < DECODE_ROWS; r++) {
            const float weight = tile->weight[r][i];
            if (!mixed || as_uint(weight) != as_uint(HIDDEN))
                sums->column[r] += weight * value;
            sums->weight[r] += weight;
        }
    }
}

/* The sums of all parts of the work-group, of one row; column by column, and last the weights'. */
INLINE void decode_reduce(__local float *parts, int item, const struct decode_sums *sums, int r)
{
    const int part = item / DECODE_VECTORS, vector = item % DECODE_VECTORS;

    barrier(CLK_LOCAL_MEM_FENCE);
    if (part < DECODE_PARTS) {
        vstore8(sums->column[r], vector, parts + part * HEAD_DIM_VO);
        if (vector == 0)
            parts[DECODE_PARTS * HEAD_DIM_VO + part] = sums->weight[r];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

INLINE float sum_parts(__local const float *at, int stride)
{
    float sum = 0;

    for (int p = 0; p < DECODE_PARTS; p++)
        sum += at[p * stride];
    return sum;
}

/* Stores a row of the only split, or what a split has of it. */
INLINE void decode_store(const struct run *run, const struct sequence *s, __local const float *parts, int item, int token,
                  int head, float row_max, int split, int count)
{
    const float weight = sum_parts(parts + DECODE_PARTS * HEAD_DIM_VO, 1);
    __global float *partial = partial_of(run, s->index, token, head, split);

    if (count > 1) {
        for (int d = item; d < HEAD_DIM_VO; d += DECODE_ITEMS)
            partial[d] = sum_parts(parts + d, HEAD_DIM_VO);
        if (item == 0) {
            partial[PARTIAL_ROW_MAX] = row_max;
            partial[PARTIAL_WEIGHT] = weight;
        }
    } else {
        const struct finish finish = finish_of(run, s->index, s->row + token, head, row_max, weight);
        for (int d = item; d < HEAD_DIM_VO; d += DECODE_ITEMS)
            store_column(run, &finish, s->row + token, head, d, sum_parts(parts + d, HEAD_DIM_VO));
        if (item == 0)
            store_lse(run, &finish, s->row + token, head);
    }
    if (split == 0 && item == 0 && run->a->splits > 1)
        partial[PARTIAL_COUNT] = (float)count;
}

/* A tile of keys from `first` on: adds it to the sums, relative to the row maxima, which it may raise. */
INLINE void decode_tile(const struct run *run, const struct sequence *s, __local const struct decode_rows *rows,
                 __local const float *query, __local struct decode_tile *tile, int first, int item, int all,
                 float *row_max, struct decode_sums *total)
{
    struct decode_sums sums;
    float score[DECODE_ROWS], most[DECODE_ROWS];
    int seen;

    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++)
        score[r] = -INFINITY;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0)
        tile->mixed = 0;
    seen = decode_key(run, s, rows, query, first + item, item, tile, score);
    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++)
        tile->weight[r][item] = score[r];
    barrier(CLK_LOCAL_MEM_FENCE);
    decode_maxima(tile, item, most);
    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++) {
        if (most[r] > row_max[r] + RESCALE_THRESHOLD) {
            const float factor = exp(row_max[r] - most[r]);
            total->column[r] *= factor;
            total->weight[r] *= factor;
            row_max[r] = most[r];
        }
        tile->weight[r][item] = (seen >> r & 1) != 0 ? exp(score[r] - row_max[r]) : HIDDEN;
    }
    if (seen != 0 && seen != all)
        tile->mixed = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (tile->mixed != 0)
        decode_values(run, tile, first, s->new_begin, item, true, &sums);
    else
        decode_values(run, tile, first, s->new_begin, item, false, &sums);
    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++) {
        total->column[r] += sums.column[r];
        total->weight[r] += sums.weight[r];
    }
}

__kernel __attribute__((reqd_work_group_size(DECODE_ITEMS, 1, 1))) void attn_decode(OPENCL_PARAMETERS)
{
    __local struct decode_rows rows;
    __local float query[DECODE_ROWS * HEAD_DIM] __attribute__((aligned(16)));
    __local struct decode_tile tile;
    __local float parts[DECODE_PARTS * HEAD_DIM_VO + DECODE_PARTS];
    const int item = (int)get_local_id(0), split = (int)get_group_id(1);
    const int kv_heads = arguments.heads / arguments.group, kv_head = (int)(get_group_id(0) % kv_heads);
    const int seq = (int)(get_group_id(0) / kv_heads), first_row = (int)get_group_id(2) * DECODE_ROWS;
    struct decode_sums total;
    float row_max[DECODE_ROWS];

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
        total.column[r] = (float8)(0);
        total.weight[r] = 0;
        row_max[r] = -INFINITY;
    }
    const int all = (1 << min(count - first_row, DECODE_ROWS)) - 1;
    for (int first = begin; first < end; first += DECODE_ITEMS)
        decode_tile(&run, &s, &rows, query, &tile, first, item, all, row_max, &total);
    UNROLL
    for (int r = 0; r < DECODE_ROWS; r++) {
        decode_reduce(parts, item, &total, r);
        if (first_row + r < count)
            decode_store(&run, &s, parts, item, (first_row + r) / arguments.group,
                         kv_head * arguments.group + (first_row + r) % arguments.group, row_max[r], split, splits);
    }
}

/* Adds up the splits of a row. */
__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_combine(OPENCL_PARAMETERS)
{
    const int head = (int)get_group_id(0), token = (int)get_group_id(1), seq = (int)get_group_id(2);
    float row_max = -INFINITY, weight = 0;

    OPENCL_BEGIN
    const struct sequence s = sequence_at(&run, seq);
    if (token >= s.q_len || s.q_len > arguments.decode_tokens)
        return;
    __global const float *partial = partial_of(&run, seq, token, head, 0);
    const int splits = (int)partial[PARTIAL_COUNT];
    if (splits == 1)
        return;
    for (int i = 0; i < splits; i++)
        row_max = partial[i * PARTIAL_SIZE + PARTIAL_ROW_MAX] > row_max ? partial[i * PARTIAL_SIZE + PARTIAL_ROW_MAX] : row_max;
    for (int i = 0; i < splits; i++)
        if (partial[i * PARTIAL_SIZE + PARTIAL_WEIGHT] != 0)
            weight += partial[i * PARTIAL_SIZE + PARTIAL_WEIGHT] * exp(partial[i * PARTIAL_SIZE + PARTIAL_ROW_MAX] - row_max);
    const struct finish finish = finish_of(&run, seq, s.row + token, head, row_max, weight);
    if (get_local_id(0) == 0)
        store_lse(&run, &finish, s.row + token, head);
    for (int d = (int)get_local_id(0); d < HEAD_DIM_VO; d += OPENCL_ITEMS) {
        float sum = 0;
        for (int i = 0; i < splits; i++)
            if (partial[i * PARTIAL_SIZE + PARTIAL_WEIGHT] != 0)
                sum += partial[i * PARTIAL_SIZE + d] * exp(partial[i * PARTIAL_SIZE + PARTIAL_ROW_MAX] - row_max);
        store_column(&run, &finish, s.row + token, head, d, sum);
    }
}

#endif
