/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a work-group that prefills has: its rows, its local memory, and the keys of a tile. */
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

/* Scores of log-sum-exps are to be as exact as those of exact results. */
#if HEAD_DIM > 128 || defined(PREFILL_EXACT) || (defined(HAS_LSE) && HEAD_DIM > 64)
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

#endif
