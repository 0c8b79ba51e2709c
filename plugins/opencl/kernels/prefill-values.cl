/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Adds the weighted values of a tile, in slices of keys through local memory. */
#ifdef PREFILL_MR

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

/* Adds a tile's sums to the totals, with what those lost before. */
INLINE void prefill_join(prefill_sums total, prefill_sums lost, prefill_sums tile)
{
    UNROLL
    for (int r = 0; r < PREFILL_MR; r++) {
        UNROLL
        for (int c = 0; c < PREFILL_VECTORS; c++) {
            const float4 rest = tile[r][c] - lost[r][c], sum = total[r][c] + rest;
            lost[r][c] = lost_of4(total[r][c], rest, sum);
            total[r][c] = sum;
        }
    }
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

#endif
