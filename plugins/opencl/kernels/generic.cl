/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention for everything that is served. A work-group computes one query token and head, in tiles of as
 * many keys as it has work-items, beginning at multiples of that: each work-item finds one key and its score,
 * then the work-items divide the columns of the values among themselves. A tile's sums begin at zero and are
 * added to totals that keep what they lose. So a row's bits depend on its sequence alone.
 */
#ifdef HEAD_DIM

#define COLUMNS ((HEAD_DIM_VO + OPENCL_ITEMS - 1) / OPENCL_ITEMS) /* of a work-item */

/* Sums of the columns of a work-item, and of the weights. */
struct sums {
    float column[COLUMNS];
    float weight;
};

INLINE void clear_sums(struct sums *sums)
{
    for (int c = 0; c < COLUMNS; c++)
        sums->column[c] = 0;
    sums->weight = 0;
}

INLINE void scale_sums(struct sums *sums, float factor)
{
    for (int c = 0; c < COLUMNS; c++)
        sums->column[c] *= factor;
    sums->weight *= factor;
}

INLINE void add_sum(float *to, float *lost, float value)
{
    const float rest = value - *lost, sum = *to + rest;

    *lost = lost_of(*to, rest, sum);
    *to = sum;
}

/* Adds a tile's sums to the totals, with what those lost before, and clears them. */
INLINE void add_sums(struct sums *total, struct sums *lost, struct sums *tile)
{
    for (int c = 0; c < COLUMNS; c++)
        add_sum(&total->column[c], &lost->column[c], tile->column[c]);
    add_sum(&total->weight, &lost->weight, tile->weight);
    clear_sums(tile);
}

INLINE void load_query(const struct run *run, __local float *query, int at, int head)
{
    for (int d = (int)get_local_id(0); d < HEAD_DIM; d += OPENCL_ITEMS)
        query[d] = load_element(run->a->q_dtype, query_element(run, at, head, d));
}

/* <q, k>, in four sums. */
INLINE float product_of(const struct run *run, __local const float *query, __global const uchar *k, int x)
{
    const int stride = run->a->k_x_stride;
    float sum[4] = {0, 0, 0, 0};
    int d = 0;

    for (; d + 4 <= HEAD_DIM; d += 4)
        for (int i = 0; i < 4; i++)
            sum[i] += query[d + i] * load_element(K_DTYPE, k + column_at(x, stride, (d + i) * SIZE(K_DTYPE)));
    for (; d < HEAD_DIM; d++)
        sum[0] += query[d] * load_element(K_DTYPE, k + column_at(x, stride, d * SIZE(K_DTYPE)));
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* Finds a key of the sequence; its score, or false if the row does not see it. */
INLINE bool find_key(const struct run *run, const struct sequence *s, const struct row *row,
                     __local const float *query, int at, struct place *out, float *score)
{
    float bias;

    if (!sees(run, s, row, at, &bias) || !find_place(run, s, row->kv_head, at, out))
        return false;
    const float product =
        product_of(run, query, (out->is_new ? run->k_new : run->k) + out->k, out->is_new ? 0 : run->a->k_x);
    *score = score_of(run, product, row->scale, out->k_scale) + bias;
    return true;
}

/* The keys of a tile, one for each work-item. */
struct tile {
    float score[OPENCL_ITEMS];
    float weight[OPENCL_ITEMS];
    float value_scale[OPENCL_ITEMS];
    long value[OPENCL_ITEMS]; /* byte offset; negative if there is none */
};

INLINE float row_max_of(__local const struct tile *tile)
{
    float most = -INFINITY;

    for (int r = 0; r < OPENCL_ITEMS; r++)
        most = tile->value[r] >= 0 && tile->score[r] > most ? tile->score[r] : most;
    return most;
}

/* Adds a tile's values, weighted. */
INLINE void add_values(const struct run *run, struct sums *sums, __local const struct tile *tile, int first,
                       int new_begin)
{
    for (int r = 0; r < OPENCL_ITEMS; r++) {
        const bool is_new = first + r >= new_begin;
        __global const uchar *v = (is_new ? run->v_new : run->v) + tile->value[r];
        const float weight = tile->weight[r] * tile->value_scale[r];
        if (tile->value[r] < 0)
            continue;
        sums->weight += tile->weight[r];
        for (int c = 0; c < COLUMNS; c++) {
            const int d = c * OPENCL_ITEMS + (int)get_local_id(0);
            if (d < HEAD_DIM_VO)
                sums->column[c] +=
                    weight * load_element(V_DTYPE, v + column_at(is_new ? 0 : run->a->v_x, run->a->v_x_stride,
                                                                 d * SIZE(V_DTYPE)));
        }
    }
}

/* Stores the row's columns of this work-item, and its log-sum-exp. */
INLINE void store_row(const struct run *run, const struct sums *total, float row_max,
                      const struct sequence *s, int row, int head)
{
    const struct finish finish = finish_of(run, s->index, row, head, row_max, total->weight);

    if (get_local_id(0) == 0)
        store_lse(run, &finish, row, head);
    for (int c = 0; c < COLUMNS; c++) {
        const int d = c * OPENCL_ITEMS + (int)get_local_id(0);
        if (d < HEAD_DIM_VO)
            store_column(run, &finish, row, head, d, total->column[c]);
    }
}

__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_attention(OPENCL_PARAMETERS)
{
    __local float query[HEAD_DIM];
    __local struct tile tile;
    const int item = (int)get_local_id(0);
    const int at = (int)(get_group_id(0) / arguments.heads), head = (int)(get_group_id(0) % arguments.heads);
    struct sums sums, total, lost;
    float row_max = -INFINITY;

    OPENCL_BEGIN
    if (!has_row(&run, at))
        return;
    const struct sequence s = find_sequence(&run, at);
    const struct row row = find_row(&run, &s, at, head);
    clear_sums(&sums);
    clear_sums(&total);
    clear_sums(&lost);
    load_query(&run, query, at, head);
    for (int first = row.lo - row.lo % OPENCL_ITEMS; first < row.hi; first += OPENCL_ITEMS) {
        struct place place;
        float score = 0;
        bool seen = false;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (first + item >= row.lo && first + item < row.hi)
            seen = find_key(&run, &s, &row, query, first + item, &place, &score);
        tile.score[item] = score;
        tile.value[item] = seen ? place.v : -1;
        tile.value_scale[item] = seen ? place.v_scale : 1;
        barrier(CLK_LOCAL_MEM_FENCE);
        const float most = row_max_of(&tile);
        if (most > row_max + RESCALE_THRESHOLD) {
            scale_sums(&total, exp(row_max - most));
            scale_sums(&lost, exp(row_max - most));
            row_max = most;
        }
        tile.weight[item] = seen ? exp(score - base_of(row_max)) : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        add_values(&run, &sums, &tile, first, s.new_begin);
        add_sums(&total, &lost, &sums);
    }
    store_row(&run, &total, row_max, &s, at, head);
}

#endif
