/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention for sequences with many query tokens. A work-group takes PREFILL_ROWS rows (tokens and heads) of
 * one kv head and goes over the keys that they see in tiles of PREFILL_KEYS. Products of a tile are sums over
 * slices of queries and keys in local memory, where each work-item has PREFILL_MR rows and four keys; then a
 * work-item takes a row, or a part of it, for masks, maxima and weights; then slices of values are added,
 * PREFILL_MR rows and PREFILL_VECTORS times four columns a work-item. With PREFILL_EXACT a tile's sums begin
 * at zero and are added to totals that keep what they lose, for the first class of docs/definition.md,
 * section 6.
 */
#ifdef PREFILL_MR

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

/* What a work-item has of its rows, relative to the row's maximum, from one tile to the next. */
struct prefill_state {
    prefill_sums total;
#ifdef PREFILL_EXACT
    prefill_sums lost;
#endif
    float row_max, weight, weight_lost; /* of the row that it weights */
};

/* Finds the rows and the keys that they see; *row is the one that this work-item weights. */
INLINE void prefill_begin(const struct run *run, const struct sequence *s, int kv_head, int item,
                          __local struct prefill_tile *tile, struct prefill_rows *rows, struct row *row)
{
    const int r = item % PREFILL_ROWS;

    rows->kv_head = kv_head;
    rows->count = (int)min((long)PREFILL_ROWS, (long)s->q_len * run->a->group - rows->first);
    const int own = rows->first + min(r, rows->count - 1);
    *row = find_row(run, s, token_of(run, s, own), head_of(run, kv_head, own));
    if (item == 0)
        tile->holes = 0;
    if (item < PREFILL_ROWS) {
        tile->lo[r] = row->lo;
        tile->hi[r] = row->hi;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    prefill_range(tile, rows);
}

/* Adds the values of a tile to the sums, whose factors are in the tile. */
INLINE void prefill_sum(const struct run *run, int item, __local struct prefill_tile *tile,
                        struct prefill_state *state)
{
    __local const float *factors = tile->factor + item / PREFILL_ACROSS * PREFILL_MR;

    if (tile->rescale != 0)
        prefill_scale(state->total, factors);
#ifdef PREFILL_EXACT
    prefill_sums sum;
    if (tile->rescale != 0)
        prefill_scale(state->lost, factors);
    prefill_clear(sum);
    prefill_values(run, item, tile, sum);
    prefill_join(state->total, state->lost, sum);
#else
    prefill_values(run, item, tile, state->total);
#endif
}

/* Adds the tile of keys from `first` on. */
INLINE void prefill_add_tile(const struct run *run, const struct sequence *s, const struct prefill_rows *rows,
                             const struct row *row, int first, int item, __local struct prefill_tile *tile,
                             struct prefill_state *state)
{
    const bool plain = !run->a->has_mask && !GIVEN(run, slopes);
    float factor;

    prefill_keys(run, s, rows, first, item, tile);
    const bool all =
        plain && tile->holes == 0 && first >= rows->all_lo && first + PREFILL_KEYS <= rows->all_hi;
    prefill_products(run, s, rows, item, tile);
    const float own = prefill_weights(run, s, row, all, first, item, tile, &state->row_max, &factor);
    const float before = state->weight * factor, rest = own - state->weight_lost * factor;
    state->weight = before + rest;
    state->weight_lost = lost_of(before, rest, state->weight);
    prefill_sum(run, item, tile, state);
}

__kernel __attribute__((reqd_work_group_size(PREFILL_ITEMS, 1, 1))) void attn_prefill(OPENCL_PARAMETERS)
{
    __local struct prefill_tile tile;
    const int item = (int)get_local_id(0), kv_heads = arguments.heads / arguments.group;
    /* Late rows, which see most keys, first. */
    const long index = (long)((get_num_groups(0) - 1 - get_group_id(0)) / kv_heads);
    struct prefill_rows rows;
    struct prefill_state state;
    struct sequence s;
    struct row row;

    OPENCL_BEGIN
    if (!prefill_find(&run, index, &s, &rows.first))
        return;
    prefill_begin(&run, &s, (int)(get_group_id(0) % kv_heads), item, &tile, &rows, &row);
    prefill_clear(state.total);
#ifdef PREFILL_EXACT
    prefill_clear(state.lost);
#endif
    state.row_max = -INFINITY;
    state.weight = state.weight_lost = 0;
    for (int first = rows.lo - rows.lo % PREFILL_KEYS; first < rows.hi; first += PREFILL_KEYS)
        prefill_add_tile(&run, &s, &rows, &row, first, item, &tile, &state);
    barrier(CLK_LOCAL_MEM_FENCE);
    tile.segment_max[item] = state.weight;
    if (item < PREFILL_ROWS)
        tile.factor[item] = state.row_max;
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL
    for (int i = 0; i < PREFILL_MR; i++) {
        const int at = item / PREFILL_ACROSS * PREFILL_MR + i;
        if (at < rows.count)
            prefill_store(&run, &s, &rows, at, item % PREFILL_ACROSS, &tile, state.total[i]);
    }
}

#endif
