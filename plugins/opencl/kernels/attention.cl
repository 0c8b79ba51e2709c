/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention for everything that is served. A work-group computes one query token and head, in tiles of as many keys
 * as it has work-items, beginning at multiples of that: each work-item finds one key and its score, then the
 * work-items divide the columns of the values among themselves. Sums are staged as docs/definition.md, section 6,
 * asks: a tile from zero, a span of 8 tiles, the total. So a row's bits depend on its sequence alone.
 *
 * Compiled with Q_DTYPE, K_DTYPE, V_DTYPE, OUT_DTYPE; QUERY_SIZE, head_dim rounded up; COLUMNS, the columns of a
 * value that a work-item adds.
 */
#ifdef COLUMNS

/* The rescale threshold: a factor of exp(8) costs no precision, while each rescaling costs a rounding. */
#define RESCALE_THRESHOLD 8.0f
#define SPAN_TILES        8

/* Sums of the columns of a work-item, and of the weights. */
struct sums {
    float column[COLUMNS];
    float weight;
};

void clear_sums(struct sums *sums)
{
    for (int c = 0; c < COLUMNS; c++)
        sums->column[c] = 0;
    sums->weight = 0;
}

void scale_sums(struct sums *sums, float factor)
{
    for (int c = 0; c < COLUMNS; c++)
        sums->column[c] *= factor;
    sums->weight *= factor;
}

/* Adds sums to the next stage's, and clears them. */
void stage_sums(struct sums *to, struct sums *from)
{
    for (int c = 0; c < COLUMNS; c++)
        to->column[c] += from->column[c];
    to->weight += from->weight;
    clear_sums(from);
}

/* The query, of which MLA may have the rope columns in a tensor of their own. */
void load_query(const struct run *run, __local float *query, int at, int head)
{
    __global const uchar *q = run->q + row_at(&run->a->q, at, head);
    __global const uchar *rope = run->q_rope + row_at(&run->a->q_rope, at, head);
    const int split = run->a->split;

    for (int d = (int)get_local_id(0); d < run->a->head_dim; d += OPENCL_ITEMS)
        query[d] = load_element(Q_DTYPE, d < split ? q + d * SIZE(Q_DTYPE) : rope + (d - split) * SIZE(Q_DTYPE));
}

/* <q, k>, in four sums. */
float product_of(const struct run *run, __local const float *query, __global const uchar *k, int x)
{
    const int stride = run->a->k_x_stride;
    const int dim = run->a->head_dim;
    float sum[4] = {0, 0, 0, 0};
    int d = 0;

    for (; d + 4 <= dim; d += 4)
        for (int i = 0; i < 4; i++)
            sum[i] += query[d + i] * load_element(K_DTYPE, k + column_at(x, stride, (d + i) * SIZE(K_DTYPE)));
    for (; d < dim; d++)
        sum[0] += query[d] * load_element(K_DTYPE, k + column_at(x, stride, d * SIZE(K_DTYPE)));
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* A key: byte offset of its value, negative if there is none, and the scale of it. */
struct key {
    long value;
    float value_scale;
};

/* The score of a key from the product of query and key, before its bias. */
float score_of(const struct run *run, const struct row *row, float product, float k_scale)
{
    const float s = product * (row->scale * k_scale) * run->a->softmax_scale;

    return run->a->softcap > 0 ? run->a->softcap * tanh(s / run->a->softcap) : s;
}

/* Finds a key of the sequence that the row sees, and returns its score. */
float find_key(const struct run *run, const struct sequence *s, const struct row *row, __local const float *query,
               int at, struct key *out)
{
    const int head = row->kv_head;
    long page = 0, token = 0;
    float bias, product;

    if (!sees(run, s, row, at, &bias))
        return 0;
    if (at >= s->new_begin) {
        token = (long)s->row + (at - s->new_begin);
        out->value = row_at(&run->a->v_new, token, head);
        out->value_scale = SCALE(run, v_new_scale, s->index, token, head);
        product = product_of(run, query, run->k_new + row_at(&run->a->k_new, token, head), 0);
        return score_of(run, row, product, SCALE(run, k_new_scale, s->index, token, head)) + bias;
    }
    if (!locate(run, s->index, at, &page, &token))
        return 0;
    const long outer = run->a->only_new ? s->index : page;
    out->value = vector_at(&run->a->v, page, token, head);
    out->value_scale = SCALE(run, v_scale, outer, token, head);
    product = product_of(run, query, run->k + vector_at(&run->a->k, page, token, head), run->a->k_x);
    return score_of(run, row, product, SCALE(run, k_scale, outer, token, head)) + bias;
}

/* The keys of a tile, one for each work-item. */
struct tile {
    float score[OPENCL_ITEMS];
    float weight[OPENCL_ITEMS];
    float value_scale[OPENCL_ITEMS];
    long value[OPENCL_ITEMS]; /* as in struct key */
};

float row_max_of(__local const struct tile *tile)
{
    float most = -INFINITY;

    for (int r = 0; r < OPENCL_ITEMS; r++)
        most = tile->value[r] >= 0 && tile->score[r] > most ? tile->score[r] : most;
    return most;
}

/* Adds a tile's values, weighted. */
void add_values(const struct run *run, struct sums *sums, __local const struct tile *tile, int first, int new_begin)
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
            if (d < run->a->head_dim_vo)
                sums->column[c] +=
                    weight * load_element(V_DTYPE, v + column_at(is_new ? 0 : run->a->v_x, run->a->v_x_stride,
                                                                 d * SIZE(V_DTYPE)));
        }
    }
}

/* The sink of a head, a logit that only the denominator counts; minus infinity = none. */
float sink_of(const struct run *run, int head)
{
    const uint dtype = run->a->sinks_bf16 ? OPENCL_BF16 : OPENCL_F32;

    return GIVEN(run, sinks) ? load_element(dtype, run->sinks + head * SIZE(dtype)) : -INFINITY;
}

/* Stores the row's columns of this work-item, and its log-sum-exp. */
void store_row(const struct run *run, const struct sums *total, float row_max, int seq, int row, int head)
{
    __global uchar *out = run->out + row_at(&run->a->out, row, head);
    const float scale = SCALE(run, out_scale, seq, row, head);
    const float sink = sink_of(run, head);
    const bool any = total->weight != 0; /* every key that is seen adds to it, NaN too */
    const float top = any && sink > row_max ? sink : row_max;
    const float factor = any ? exp(row_max - top) : 0;
    const float sum = total->weight * factor + (sink > -INFINITY ? exp(sink - top) : 0);

    if (GIVEN(run, lse) && get_local_id(0) == 0)
        *(__global float *)(run->lse + row_at(&run->a->lse, row, head)) = any ? top + log(sum) : sink;
    for (int c = 0; c < COLUMNS; c++) {
        const int d = c * OPENCL_ITEMS + (int)get_local_id(0);
        if (d < run->a->head_dim_vo)
            store_element(OUT_DTYPE, out + d * SIZE(OUT_DTYPE),
                          any ? total->column[c] * factor / sum / scale : 0);
    }
}

__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_attention(OPENCL_PARAMETERS)
{
    __local float query[QUERY_SIZE];
    __local struct tile tile;
    const int item = (int)get_local_id(0);
    const int at = (int)(get_group_id(0) / arguments.heads), head = (int)(get_group_id(0) % arguments.heads);
    struct sums sums, span, total;
    float row_max = -INFINITY;

    OPENCL_BEGIN
    if (!has_row(&run, at))
        return;
    const struct sequence s = find_sequence(&run, at);
    const struct row row = find_row(&run, &s, at, head);
    clear_sums(&sums);
    clear_sums(&span);
    clear_sums(&total);
    load_query(&run, query, at, head);
    for (int first = row.lo - row.lo % OPENCL_ITEMS; first < row.hi; first += OPENCL_ITEMS) {
        struct key key = {-1, 1};
        float score = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (first + item >= row.lo && first + item < row.hi)
            score = find_key(&run, &s, &row, query, first + item, &key);
        tile.score[item] = score;
        tile.value[item] = key.value;
        tile.value_scale[item] = key.value_scale;
        barrier(CLK_LOCAL_MEM_FENCE);
        const float most = row_max_of(&tile);
        if (most > row_max + RESCALE_THRESHOLD) {
            scale_sums(&span, exp(row_max - most));
            scale_sums(&total, exp(row_max - most));
            row_max = most;
        }
        tile.weight[item] = key.value >= 0 ? exp(score - row_max) : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        add_values(&run, &sums, &tile, first, s.new_begin);
        stage_sums(&span, &sums);
        if (first / OPENCL_ITEMS % SPAN_TILES == SPAN_TILES - 1)
            stage_sums(&total, &span);
    }
    stage_sums(&total, &span);
    store_row(&run, &total, row_max, s.index, at, head);
}

#endif
