/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The products of all rows and keys of a tile, in slices of columns through local memory. */
#ifdef PREFILL_MR

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

#endif
