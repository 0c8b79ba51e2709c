/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention for sequences with many query tokens. A work-group takes PREFILL_ROWS rows (tokens and heads) of
 * one kv head and goes over the keys that they see in tiles of PREFILL_KEYS. Products of a tile are sums over
 * slices of queries and keys in local memory, where each work-item has PREFILL_MR rows and four keys; then a
 * work-item takes a row, or a part of it, for masks, maxima and weights; then slices of values are added,
 * PREFILL_MR rows and PREFILL_VECTORS times four columns a work-item. With PREFILL_EXACT the sums are staged
 * as docs/definition.md, section 6, asks of the first class.
 */
#ifdef PREFILL_MR

#define PREFILL_ITEMS    OPENCL_PREFILL_ITEMS
#define PREFILL_ACROSS   16 /* work-items beside each other: keys and columns */
#define PREFILL_DOWN     (PREFILL_ITEMS / PREFILL_ACROSS)
#define PREFILL_ROWS     (PREFILL_DOWN * PREFILL_MR)
#define PREFILL_KEYS     64
#define PREFILL_SEGMENTS (PREFILL_ITEMS / PREFILL_ROWS) /* in which a row's keys are weighted */
#define PREFILL_SEGMENT  (PREFILL_KEYS / PREFILL_SEGMENTS)
#define PREFILL_VECTORS  ((HEAD_DIM_VO + 63) / 64)
#define PREFILL_STRIDE                                                                                       \
    (PREFILL_KEYS + 4) /* of a row of weights: apart, so that rows lie in different banks */
#define PREFILL_SPAN 8 /* tiles */

#if HEAD_DIM > 128 || defined(PREFILL_EXACT)
#define PREFILL_STAGED
#endif

/* Where results have 16 bits, the device's own exponential is good enough if the tuning table says so. */
#if defined(NATIVE_EXP) && !defined(PREFILL_EXACT)
#define PREFILL_EXP(x) native_exp(x)
#else
#define PREFILL_EXP(x) exp(x)
#endif

/* Keys of a slice of values: a divisor of PREFILL_KEYS with at most 128 elements for each column of the other
 * slices. */
#define PREFILL_VALUES (128 * PREFILL_SLICE / HEAD_DIM_VO)
#define PREFILL_VALUE_KEYS                                                                                   \
    (PREFILL_VALUES >= 64   ? 64                                                                             \
     : PREFILL_VALUES >= 32 ? 32                                                                             \
     : PREFILL_VALUES >= 16 ? 16                                                                             \
     : PREFILL_VALUES >= 8  ? 8                                                                              \
                            : 4)

/* Local memory of a work-group. */
struct __attribute__((aligned(16))) prefill_tile {
    float weight[PREFILL_ROWS * PREFILL_STRIDE]; /* scores, then weights */
    union {
        struct {
            float q[PREFILL_SLICE * PREFILL_ROWS];
            float k[PREFILL_SLICE * PREFILL_KEYS];
        } slice;
        float value[PREFILL_VALUE_KEYS * HEAD_DIM_VO];
    } stage;
    long k[PREFILL_KEYS], v[PREFILL_KEYS]; /* byte offsets; negative if there is no key */
    float k_scale[PREFILL_KEYS], v_scale[PREFILL_KEYS];
    float segment_max[PREFILL_SEGMENTS * PREFILL_ROWS];
    float factor[PREFILL_ROWS]; /* of the sums so far */
    int lo[PREFILL_ROWS], hi[PREFILL_ROWS];
    int rescale, holes, nonfinite;
};

/* The rows of a work-group, and the keys that any, and that all of them see. */
struct prefill_rows {
    int first, count, kv_head;
    int lo, hi, all_lo, all_hi;
};

INLINE int token_of(const struct run *run, const struct sequence *s, int row)
{
    return s->row + row / run->a->group;
}

INLINE int head_of(const struct run *run, int kv_head, int row)
{
    return kv_head * run->a->group + row % run->a->group;
}

/* The tile of rows of a work-group: tiles of sequence i begin at floor(q_offsets[i] * group / rows) + i,
 * which leaves room for all; false where there is none. */
INLINE bool prefill_find(const struct run *run, long tile, struct sequence *s, int *first)
{
    __global const int *starts = I32(run->q_offsets);
    int lo = 0, hi = run->a->seqs;

    while (hi - lo > 1) {
        const int middle = lo + (hi - lo) / 2;
        if ((long)starts[middle] * run->a->group / PREFILL_ROWS + middle <= tile)
            lo = middle;
        else
            hi = middle;
    }
    *s = sequence_at(run, lo);
    const long at = (tile - ((long)s->row * run->a->group / PREFILL_ROWS + lo)) * PREFILL_ROWS;
    *first = (int)min(at, (long)INT_MAX);
    return s->q_len > run->a->decode_tokens && at < (long)s->q_len * run->a->group;
}

/* Rows behind the last see no key; all of them count as seeing every key where that is asked of all rows. */
INLINE void prefill_range(__local const struct prefill_tile *tile, struct prefill_rows *rows)
{
    rows->lo = INT_MAX;
    rows->hi = rows->all_lo = 0;
    rows->all_hi = INT_MAX;
    for (int r = 0; r < rows->count; r++) {
        rows->all_lo = max(rows->all_lo, tile->lo[r]);
        rows->all_hi = min(rows->all_hi, tile->hi[r]);
        if (tile->lo[r] < tile->hi[r]) {
            rows->lo = min(rows->lo, tile->lo[r]);
            rows->hi = max(rows->hi, tile->hi[r]);
        }
    }
    rows->lo = min(rows->lo, rows->hi);
}

/* Finds the keys of a tile. */
INLINE void prefill_keys(const struct run *run, const struct sequence *s, const struct prefill_rows *rows,
                         int first, int item, __local struct prefill_tile *tile)
{
    struct place place;

    if (item < PREFILL_KEYS) {
        const int key = first + item;
        const bool found =
            key >= rows->lo && key < rows->hi && find_place(run, s, rows->kv_head, key, &place);
        /* New keys lie behind those of the cache, told apart by the lowest bit of an even offset. */
        tile->k[item] = found ? place.k * 2 + place.is_new : -1;
        tile->v[item] = found ? place.v * 2 + place.is_new : -1;
        tile->k_scale[item] = found ? place.k_scale : 1;
        tile->v_scale[item] = found ? place.v_scale : 1;
        if (!found)
            tile->holes = 1;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

INLINE struct eight no_eight(void)
{
    struct eight eight;

    eight.low = eight.high = (uint4)(0);
    return eight;
}

/* Eight elements of the query of a row, or of a key, from column d on. */
INLINE struct eight prefill_query(const struct run *run, const struct sequence *s,
                                  const struct prefill_rows *rows, int r, int d)
{
    const int row = rows->first + r;

    if (r >= rows->count || d >= HEAD_DIM)
        return no_eight();
    return fetch_eight(run->a->q_dtype,
                       query_element(run, token_of(run, s, row), head_of(run, rows->kv_head, row), d));
}

INLINE struct eight prefill_key(const struct run *run, long at, int d)
{
    if (at < 0 || d >= HEAD_DIM)
        return no_eight();
    return fetch_eight(K_DTYPE, ((at & 1) != 0 ? run->k_new : run->k) + (at >> 1) + d * SIZE(K_DTYPE));
}

INLINE void store_across(__local float *to, int stride, float8 value)
{
    to[0] = value.s0;
    to[stride] = value.s1;
    to[2 * stride] = value.s2;
    to[3 * stride] = value.s3;
    to[4 * stride] = value.s4;
    to[5 * stride] = value.s5;
    to[6 * stride] = value.s6;
    to[7 * stride] = value.s7;
}

#define PREFILL_Q_LOADS ((PREFILL_SLICE / 8 * PREFILL_ROWS + PREFILL_ITEMS - 1) / PREFILL_ITEMS)
#define PREFILL_K_LOADS ((PREFILL_SLICE / 8 * PREFILL_KEYS + PREFILL_ITEMS - 1) / PREFILL_ITEMS)

/* What a work-item holds of the next slice while this one is computed. */
struct prefill_ahead {
    struct eight q[PREFILL_Q_LOADS], k[PREFILL_K_LOADS];
};

INLINE void prefill_fetch(const struct run *run, const struct sequence *s, const struct prefill_rows *rows,
                          __local const struct prefill_tile *tile, int d, int item,
                          struct prefill_ahead *ahead)
{
    UNROLL
    for (int i = 0; i < PREFILL_Q_LOADS; i++) {
        const int at = i * PREFILL_ITEMS + item;
        ahead->q[i] = no_eight();
        if (at < PREFILL_SLICE / 8 * PREFILL_ROWS)
            ahead->q[i] = prefill_query(run, s, rows, at % PREFILL_ROWS, d + at / PREFILL_ROWS * 8);
    }
    UNROLL
    for (int i = 0; i < PREFILL_K_LOADS; i++) {
        const int at = i * PREFILL_ITEMS + item;
        ahead->k[i] = no_eight();
        if (at < PREFILL_SLICE / 8 * PREFILL_KEYS)
            ahead->k[i] = prefill_key(run, tile->k[at % PREFILL_KEYS], d + at / PREFILL_KEYS * 8);
    }
}

INLINE void prefill_stage(const struct run *run, const struct prefill_ahead *ahead, int item,
                          __local struct prefill_tile *tile)
{
    UNROLL
    for (int i = 0; i < PREFILL_Q_LOADS; i++) {
        const int at = i * PREFILL_ITEMS + item;
        if (at < PREFILL_SLICE / 8 * PREFILL_ROWS)
            store_across(tile->stage.slice.q + at / PREFILL_ROWS * 8 * PREFILL_ROWS + at % PREFILL_ROWS,
                         PREFILL_ROWS, expand_eight(run->a->q_dtype, ahead->q[i]));
    }
    UNROLL
    for (int i = 0; i < PREFILL_K_LOADS; i++) {
        const int at = i * PREFILL_ITEMS + item;
        if (at < PREFILL_SLICE / 8 * PREFILL_KEYS)
            store_across(tile->stage.slice.k + at / PREFILL_KEYS * 8 * PREFILL_KEYS + at % PREFILL_KEYS,
                         PREFILL_KEYS, expand_eight(K_DTYPE, ahead->k[i]));
    }
}

/*
 * Adds the products of a slice. Sums over many columns, and those of exact results, are staged: one chain of
 * additions over 192 columns reaches several times the bound of the log-sum-exp.
 */
INLINE void prefill_slice(__local const struct prefill_tile *tile, int across, int down, float4 *sum)
{
#ifdef PREFILL_STAGED
    float4 part[PREFILL_MR];
    UNROLL
    for (int r = 0; r < PREFILL_MR; r++)
        part[r] = (float4)(0);
#else
    float4 *part = sum;
#endif
    UNROLL
    for (int i = 0; i < PREFILL_SLICE; i++) {
        const float4 k = ((__local const float4 *)(tile->stage.slice.k + i * PREFILL_KEYS))[across];
        __local const float *q = tile->stage.slice.q + i * PREFILL_ROWS + down * PREFILL_MR;
        UNROLL
        for (int r = 0; r < PREFILL_MR; r++)
            part[r] += q[r] * k;
    }
#ifdef PREFILL_STAGED
    UNROLL
    for (int r = 0; r < PREFILL_MR; r++)
        sum[r] += part[r];
#endif
}

/* The products of all rows and keys of a tile. */
INLINE void prefill_products(const struct run *run, const struct sequence *s, const struct prefill_rows *rows,
                             int item, __local struct prefill_tile *tile)
{
    const int across = item % PREFILL_ACROSS, down = item / PREFILL_ACROSS;
    struct prefill_ahead ahead;
    float4 sum[PREFILL_MR];

    UNROLL
    for (int r = 0; r < PREFILL_MR; r++)
        sum[r] = (float4)(0);
    prefill_fetch(run, s, rows, tile, 0, item, &ahead);
    for (int d = 0; d < HEAD_DIM; d += PREFILL_SLICE) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item == 0 && d == 0) /* nobody reads the last tile's any more */
            tile->rescale = tile->holes = tile->nonfinite = 0;
        prefill_stage(run, &ahead, item, tile);
        barrier(CLK_LOCAL_MEM_FENCE);
        prefill_fetch(run, s, rows, tile, d + PREFILL_SLICE, item, &ahead);
        prefill_slice(tile, across, down, sum);
    }
    UNROLL
    for (int r = 0; r < PREFILL_MR; r++)
        ((__local float4 *)(tile->weight + (down * PREFILL_MR + r) * PREFILL_STRIDE))[across] = sum[r];
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* The score of a work-item's row for a key, or false if the row does not see it. */
INLINE bool prefill_score(const struct run *run, const struct sequence *s, const struct row *row, bool plain,
                          __local const struct prefill_tile *tile, int first, int at, float *score)
{
    const int key = first + at;
    float bias = 0;

    if (tile->k[at] < 0 || key < row->lo || key >= row->hi || (!plain && !sees(run, s, row, key, &bias)))
        return false;
    *score = score_of(run, *score, row->scale, tile->k_scale[at]) + bias;
    return true;
}

/* Turns the products of a work-item's row into scores, and returns the largest; *seen gets a bit for each
 * key. */
INLINE float prefill_scores(const struct run *run, const struct sequence *s, const struct row *row, int first,
                            int begin, __local const struct prefill_tile *tile, __local float4 *at,
                            uint *seen)
{
    const bool plain = !run->a->has_mask && !GIVEN(run, slopes);
    float most = -INFINITY;

    *seen = 0;
    for (int i = 0; i < PREFILL_SEGMENT; i += 4) {
        const float4 product = at[i / 4];
        float score[4] = {product.x, product.y, product.z, product.w};
        UNROLL
        for (int j = 0; j < 4; j++) {
            if (prefill_score(run, s, row, plain, tile, first, begin + i + j, &score[j])) {
                *seen |= 1u << (i + j);
                most = score[j] > most ? score[j] : most;
            }
        }
        at[i / 4] = (float4)(score[0], score[1], score[2], score[3]);
    }
    return most;
}

/* The same where every key is seen, nothing is added, and there is no soft cap. */
INLINE float prefill_plain_scores(const struct run *run, const struct row *row, int begin,
                                  __local const struct prefill_tile *tile, __local float4 *at)
{
    const float factor = row->scale * run->a->softmax_scale;
    float4 most = (float4)(-INFINITY);

    UNROLL
    for (int i = 0; i < PREFILL_SEGMENT / 4; i++) {
        float4 score = at[i] * factor;
        if (SIZE(K_DTYPE) == 1) /* only 8-bit keys have scales */
            score *= ((__local const float4 *)(tile->k_scale + begin))[i];
        at[i] = score;
        most.x = score.x > most.x ? score.x : most.x;
        most.y = score.y > most.y ? score.y : most.y;
        most.z = score.z > most.z ? score.z : most.z;
        most.w = score.w > most.w ? score.w : most.w;
    }
    most.x = most.y > most.x ? most.y : most.x;
    most.z = most.w > most.z ? most.w : most.z;
    return most.z > most.x ? most.z : most.x;
}

INLINE float prefill_weight(uint seen, int i, float score, float row_max)
{
    return (seen >> i & 1) != 0 ? PREFILL_EXP(score - row_max) : HIDDEN;
}

/*
 * Turns products into weights relative to the row's maximum, which it may raise; what the sums so far are
 * multiplied by goes into the tile. Returns the sum of the work-item's weights, and in *factor what the
 * earlier ones are worth.
 */
INLINE float prefill_weights(const struct run *run, const struct sequence *s, const struct row *row, bool all,
                             int first, int item, __local struct prefill_tile *tile, float *row_max,
                             float *factor)
{
    const int r = item % PREFILL_ROWS, segment = item / PREFILL_ROWS, begin = segment * PREFILL_SEGMENT;
    __local float4 *at = (__local float4 *)(tile->weight + r * PREFILL_STRIDE + begin);
    float4 sum = (float4)(0);
    const bool simple = all && !(run->a->softcap > 0);
    uint seen = ~0u;
    float most = simple ? prefill_plain_scores(run, row, begin, tile, at)
                        : prefill_scores(run, s, row, first, begin, tile, at, &seen);

    tile->segment_max[segment * PREFILL_ROWS + r] = most;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < PREFILL_SEGMENTS; i++)
        most =
            tile->segment_max[i * PREFILL_ROWS + r] > most ? tile->segment_max[i * PREFILL_ROWS + r] : most;
    *factor = 1;
    if (most > *row_max + RESCALE_THRESHOLD) {
        *factor = exp(*row_max - most);
        *row_max = most;
        tile->rescale = 1;
    }
    if (segment == 0)
        tile->factor[r] = *factor;
    UNROLL
    for (int i = 0; i < PREFILL_SEGMENT; i += 4) {
        float4 weight = at[i / 4];
        weight.x = prefill_weight(seen, i, weight.x, *row_max);
        weight.y = prefill_weight(seen, i + 1, weight.y, *row_max);
        weight.z = prefill_weight(seen, i + 2, weight.z, *row_max);
        weight.w = prefill_weight(seen, i + 3, weight.w, *row_max);
        at[i / 4] = weight;
        sum += weight;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return (sum.x + sum.y) + (sum.z + sum.w);
}

/* By bits: there are compilers that take zero times anything for zero. */
INLINE bool is_nonfinite(float8 value)
{
    return any((as_uint8(value) & 0x7f800000u) == 0x7f800000u);
}

#define PREFILL_V_EIGHTS (PREFILL_VALUE_KEYS * HEAD_DIM_VO / 8)
#define PREFILL_V_LOADS  ((PREFILL_V_EIGHTS + PREFILL_ITEMS - 1) / PREFILL_ITEMS)

INLINE void prefill_fetch_values(const struct run *run, __local const struct prefill_tile *tile, int first,
                                 int item, struct eight *ahead)
{
    UNROLL
    for (int i = 0; i < PREFILL_V_LOADS; i++) {
        const int at = i * PREFILL_ITEMS + item, key = first + at / (HEAD_DIM_VO / 8),
                  d = at % (HEAD_DIM_VO / 8) * 8;
        ahead[i] = no_eight();
        if (at < PREFILL_V_EIGHTS && key < PREFILL_KEYS && tile->v[key] >= 0)
            ahead[i] = fetch_eight(V_DTYPE, ((tile->v[key] & 1) != 0 ? run->v_new : run->v) +
                                                (tile->v[key] >> 1) + d * SIZE(V_DTYPE));
    }
}

INLINE void prefill_stage_values(const struct eight *ahead, int first, int item,
                                 __local struct prefill_tile *tile)
{
    UNROLL
    for (int i = 0; i < PREFILL_V_LOADS; i++) {
        const int at = i * PREFILL_ITEMS + item;
        if (at < PREFILL_V_EIGHTS) {
            float8 value = expand_eight(V_DTYPE, ahead[i]);
            if (SIZE(V_DTYPE) == 1) /* only 8-bit values have scales */
                value *= tile->v_scale[first + at / (HEAD_DIM_VO / 8)];
            ((__local float4 *)tile->stage.value)[2 * at] = value.lo;
            ((__local float4 *)tile->stage.value)[2 * at + 1] = value.hi;
            if (is_nonfinite(value))
                tile->nonfinite = 1;
        }
    }
}

typedef float4 prefill_sums[PREFILL_MR][PREFILL_VECTORS];

/* Adds four keys of a slice; with `guarded`, values of hidden keys may be NaN. */
INLINE void prefill_add(__local const float *weights, __local const float *values, int across, bool guarded,
                        prefill_sums sum)
{
    float4 weight[PREFILL_MR];

    UNROLL
    for (int r = 0; r < PREFILL_MR; r++)
        weight[r] = *(__local const float4 *)(weights + r * PREFILL_STRIDE);
    UNROLL
    for (int i = 0; i < 4; i++) {
        float4 value[PREFILL_VECTORS];
        UNROLL
        for (int c = 0; c < PREFILL_VECTORS; c++) {
            const int vector = across + c * PREFILL_ACROSS;
            value[c] = (float4)(0);
            if (vector < HEAD_DIM_VO / 4)
                value[c] = ((__local const float4 *)(values + i * HEAD_DIM_VO))[vector];
        }
        UNROLL
        for (int r = 0; r < PREFILL_MR; r++) {
            const float w = i == 0 ? weight[r].x : i == 1 ? weight[r].y : i == 2 ? weight[r].z : weight[r].w;
            UNROLL
            for (int c = 0; c < PREFILL_VECTORS; c++)
                if (!guarded || as_uint(w) != as_uint(HIDDEN))
                    sum[r][c] += w * value[c];
        }
    }
}

INLINE void prefill_clear(prefill_sums sum)
{
    UNROLL
    for (int r = 0; r < PREFILL_MR; r++)
        UNROLL
    for (int c = 0; c < PREFILL_VECTORS; c++)
        sum[r][c] = (float4)(0);
}

/* Adds sums to the next stage's. */
INLINE void prefill_join(prefill_sums to, prefill_sums from)
{
    UNROLL
    for (int r = 0; r < PREFILL_MR; r++)
        UNROLL
    for (int c = 0; c < PREFILL_VECTORS; c++)
        to[r][c] += from[r][c];
}

INLINE void prefill_scale(prefill_sums sum, __local const float *factor)
{
    UNROLL
    for (int r = 0; r < PREFILL_MR; r++)
        UNROLL
    for (int c = 0; c < PREFILL_VECTORS; c++)
        sum[r][c] *= factor[r];
}

/* Adds the weighted values of a tile. */
INLINE void prefill_values(const struct run *run, int item, __local struct prefill_tile *tile,
                           prefill_sums sum)
{
    const int across = item % PREFILL_ACROSS, down = item / PREFILL_ACROSS;
    struct eight ahead[PREFILL_V_LOADS];

    prefill_fetch_values(run, tile, 0, item, ahead);
    for (int first = 0; first < PREFILL_KEYS; first += PREFILL_VALUE_KEYS) {
        barrier(CLK_LOCAL_MEM_FENCE);
        prefill_stage_values(ahead, first, item, tile);
        barrier(CLK_LOCAL_MEM_FENCE);
        prefill_fetch_values(run, tile, first + PREFILL_VALUE_KEYS, item, ahead);
        __local const float *weights = tile->weight + down * PREFILL_MR * PREFILL_STRIDE + first;
        if (tile->nonfinite != 0)
            for (int i = 0; i < PREFILL_VALUE_KEYS; i += 4)
                prefill_add(weights + i, tile->stage.value + i * HEAD_DIM_VO, across, true, sum);
        else
            for (int i = 0; i < PREFILL_VALUE_KEYS; i += 4)
                prefill_add(weights + i, tile->stage.value + i * HEAD_DIM_VO, across, false, sum);
    }
}

/* Stores a row from the sums of this work-item; maxima and weights are in the tile. */
INLINE void prefill_store(const struct run *run, const struct sequence *s, const struct prefill_rows *rows,
                          int r, int across, __local const struct prefill_tile *tile,
                          const float4 sum[PREFILL_VECTORS])
{
    const int token = token_of(run, s, rows->first + r), head = head_of(run, rows->kv_head, rows->first + r);
    float weight = 0;

    for (int segment = 0; segment < PREFILL_SEGMENTS; segment++)
        weight += tile->segment_max[segment * PREFILL_ROWS + r];
    const struct finish finish = finish_of(run, s->index, token, head, tile->factor[r], weight);
    if (across == 0)
        store_lse(run, &finish, token, head);
    UNROLL
    for (int c = 0; c < PREFILL_VECTORS; c++) {
        const int d = (across + c * PREFILL_ACROSS) * 4;
        if (d < HEAD_DIM_VO) {
            store_column(run, &finish, token, head, d, sum[c].x);
            store_column(run, &finish, token, head, d + 1, sum[c].y);
            store_column(run, &finish, token, head, d + 2, sum[c].z);
            store_column(run, &finish, token, head, d + 3, sum[c].w);
        }
    }
}

__kernel __attribute__((reqd_work_group_size(PREFILL_ITEMS, 1, 1))) void attn_prefill(OPENCL_PARAMETERS)
{
    __local struct prefill_tile tile;
    const int item = (int)get_local_id(0), r = item % PREFILL_ROWS;
    const int kv_heads = arguments.heads / arguments.group;
    /* Late rows, which see most keys, first. */
    const long index = (long)((get_num_groups(0) - 1 - get_group_id(0)) / kv_heads);
    struct prefill_rows rows;
    struct sequence s;
    struct row row;
    prefill_sums total;
#ifdef PREFILL_EXACT
    prefill_sums sum, span;
#endif
    float row_max = -INFINITY, weight = 0, weight_span = 0;

    OPENCL_BEGIN
    if (!prefill_find(&run, index, &s, &rows.first))
        return;
    rows.kv_head = (int)(get_group_id(0) % kv_heads);
    rows.count = (int)min((long)PREFILL_ROWS, (long)s.q_len * arguments.group - rows.first);
    row = find_row(&run, &s, token_of(&run, &s, rows.first + min(r, rows.count - 1)),
                   head_of(&run, rows.kv_head, rows.first + min(r, rows.count - 1)));
    if (item == 0)
        tile.holes = 0;
    if (item < PREFILL_ROWS) {
        tile.lo[r] = row.lo;
        tile.hi[r] = row.hi;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    prefill_range(&tile, &rows);
    prefill_clear(total);
#ifdef PREFILL_EXACT
    prefill_clear(span);
#endif
    const bool plain = !arguments.has_mask && !GIVEN(&run, slopes);
    __local const float *factors = tile.factor + item / PREFILL_ACROSS * PREFILL_MR;
    for (int first = rows.lo - rows.lo % PREFILL_KEYS; first < rows.hi; first += PREFILL_KEYS) {
        float factor;
        prefill_keys(&run, &s, &rows, first, item, &tile);
        const bool all =
            plain && tile.holes == 0 && first >= rows.all_lo && first + PREFILL_KEYS <= rows.all_hi;
        prefill_products(&run, &s, &rows, item, &tile);
        const float own = prefill_weights(&run, &s, &row, all, first, item, &tile, &row_max, &factor);
        weight_span = weight_span * factor + own;
        weight *= factor;
        if (tile.rescale != 0)
            prefill_scale(total, factors);
#ifdef PREFILL_EXACT
        if (tile.rescale != 0)
            prefill_scale(span, factors);
        prefill_clear(sum);
        prefill_values(&run, item, &tile, sum);
        prefill_join(span, sum);
#else
        prefill_values(&run, item, &tile, total);
#endif
        if (first / PREFILL_KEYS % PREFILL_SPAN == PREFILL_SPAN - 1) {
            weight += weight_span;
            weight_span = 0;
#ifdef PREFILL_EXACT
            prefill_join(total, span);
            prefill_clear(span);
#endif
        }
    }
#ifdef PREFILL_EXACT
    prefill_join(total, span);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    tile.segment_max[item] = weight + weight_span;
    if (item < PREFILL_ROWS)
        tile.factor[r] = row_max;
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL
    for (int i = 0; i < PREFILL_MR; i++) {
        const int at = item / PREFILL_ACROSS * PREFILL_MR + i;
        if (at < rows.count)
            prefill_store(&run, &s, &rows, at, item % PREFILL_ACROSS, &tile, total[i]);
    }
}
#endif
