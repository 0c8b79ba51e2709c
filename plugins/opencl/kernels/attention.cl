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

/* <q, k>, in four sums. */
float product_of(const struct run *run, __local const float *query, __global const uchar *k)
{
    const int dim = run->a->head_dim;
    float sum[4] = {0, 0, 0, 0};
    int d = 0;

    for (; d + 4 <= dim; d += 4)
        for (int i = 0; i < 4; i++)
            sum[i] += query[d + i] * load_element(K_DTYPE, k + (d + i) * SIZE(K_DTYPE));
    for (; d < dim; d++)
        sum[0] += query[d] * load_element(K_DTYPE, k + d * SIZE(K_DTYPE));
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* The score of a visible key at `k`, bias included. */
float score_of(const struct run *run, __local const float *query, __global const uchar *k, long away, float slope)
{
    float s = product_of(run, query, k) * run->a->softmax_scale;

    if (run->a->softcap > 0)
        s = run->a->softcap * tanh(s / run->a->softcap);
    if (GIVEN(run, slopes))
        s += slope * (float)(run->a->alibi == OPENCL_DISTANCE && away > 0 ? -away : away);
    return s;
}

/* Finds a key of the sequence: its score, and the offset of its value, negative if it is in an invalid block. */
float find_key(const struct run *run, const struct sequence *s, __local const float *query, int key, int kv_head,
               long position, float slope, long *value)
{
    long page = 0, token = 0;
    __global const uchar *k;

    *value = -1;
    if (key >= s->new_begin) {
        token = (long)s->row + (key - s->new_begin);
        k = run->k_new + vector_at(&run->a->k_new, 0, token, kv_head);
        *value = vector_at(&run->a->v_new, 0, token, kv_head);
    } else {
        if (!locate(run, s->index, key, &page, &token))
            return 0;
        k = run->k + vector_at(&run->a->k, page, token, kv_head);
        *value = vector_at(&run->a->v, page, token, kv_head);
    }
    return score_of(run, query, k, (long)key - position, slope);
}

/* Adds a tile's values, weighted; values[r] is negative where there is no key. */
void add_values(const struct run *run, struct sums *tile, __local const float *weights, __local const long *values,
                int first, int new_begin)
{
    for (int r = 0; r < OPENCL_ITEMS; r++) {
        __global const uchar *v = (first + r >= new_begin ? run->v_new : run->v) + values[r];
        if (values[r] < 0)
            continue;
        tile->weight += weights[r];
        for (int c = 0; c < COLUMNS; c++) {
            const int d = c * OPENCL_ITEMS + (int)get_local_id(0);
            if (d < run->a->head_dim_vo)
                tile->column[c] += weights[r] * load_element(V_DTYPE, v + d * SIZE(V_DTYPE));
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
void store_row(const struct run *run, const struct sums *total, float row_max, int row, int head)
{
    __global uchar *out = run->out + row * run->a->out.token + head * run->a->out.head;
    const float sink = sink_of(run, head);
    const bool any = total->weight != 0; /* every key that is seen adds to it, NaN too */
    const float top = any && sink > row_max ? sink : row_max;
    const float factor = any ? exp(row_max - top) : 0;
    const float sum = total->weight * factor + (sink > -INFINITY ? exp(sink - top) : 0);

    if (GIVEN(run, lse) && get_local_id(0) == 0)
        *(__global float *)(run->lse + row * run->a->lse.token + head * run->a->lse.head) =
            any ? top + log(sum) : sink;
    for (int c = 0; c < COLUMNS; c++) {
        const int d = c * OPENCL_ITEMS + (int)get_local_id(0);
        if (d < run->a->head_dim_vo)
            store_element(OUT_DTYPE, out + d * SIZE(OUT_DTYPE), any ? total->column[c] * factor / sum : 0);
    }
}

__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_attention(OPENCL_PARAMETERS)
{
    __local float query[QUERY_SIZE], scores[OPENCL_ITEMS], weights[OPENCL_ITEMS];
    __local long values[OPENCL_ITEMS];
    const int item = (int)get_local_id(0);
    const int row = (int)(get_group_id(0) / arguments.heads), head = (int)(get_group_id(0) % arguments.heads);
    struct sums tile, span, total;
    float row_max = -INFINITY;
    int lo, hi;

    OPENCL_BEGIN
    if (!has_row(&run, row))
        return;
    const struct sequence s = find_sequence(&run, row);
    const long position = query_position(&run, &s, row - s.row);
    const float slope = GIVEN(&run, slopes) ? F32(run.slopes)[head] : 0;
    visible_range(&s, position, &lo, &hi);
    clear_sums(&tile);
    clear_sums(&span);
    clear_sums(&total);
    for (int d = item; d < arguments.head_dim; d += OPENCL_ITEMS)
        query[d] = load_element(Q_DTYPE, run.q + row * arguments.q.token + head * arguments.q.head + d * SIZE(Q_DTYPE));
    for (int first = lo - lo % OPENCL_ITEMS; first < hi; first += OPENCL_ITEMS) {
        const int key = first + item;
        long value = -1;
        float score = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (key >= lo && key < hi)
            score = find_key(&run, &s, query, key, head / arguments.group, position, slope, &value);
        scores[item] = score;
        values[item] = value;
        barrier(CLK_LOCAL_MEM_FENCE);
        float most = -INFINITY;
        for (int r = 0; r < OPENCL_ITEMS; r++)
            most = values[r] >= 0 && scores[r] > most ? scores[r] : most;
        if (most > row_max + RESCALE_THRESHOLD) {
            scale_sums(&span, exp(row_max - most));
            scale_sums(&total, exp(row_max - most));
            row_max = most;
        }
        weights[item] = value >= 0 ? exp(score - row_max) : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        add_values(&run, &tile, weights, values, first, s.new_begin);
        stage_sums(&span, &tile);
        if (first / OPENCL_ITEMS % SPAN_TILES == SPAN_TILES - 1)
            stage_sums(&total, &span);
    }
    stage_sums(&total, &span);
    store_row(&run, &total, row_max, row, head);
}

#endif
