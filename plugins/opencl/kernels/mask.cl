/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Rules that hide keys or change scores: explicit masks and ALiBi. */
#ifdef HEAD_DIM

/* What a row has for all of its keys. */
struct row {
    int lo, hi; /* keys in reach, which may be in invalid blocks; a square mask is not read for it */
    int unmasked_lo, unmasked_hi; /* keys that it sees where the mask does not cover them */
    int kv_head;
    long position;
    float slope;
    float scale; /* of the query */
    __global const uchar *mask;
    bool masked; /* its sequence has a mask */
    long bit;    /* bits: of column 0, counted from there */
    long first;  /* position of column 0 */
    long columns;
};

INLINE void find_mask(const struct run *run, const struct sequence *s, int i, int head, struct row *row)
{
    const bool by_start = GIVEN(run, mask_starts);
    const long start = by_start ? I64(run->mask_starts)[s->index] : s->index * run->a->mask_seq;

    row->masked = run->a->has_mask && !(by_start && start < 0);
    row->bit = 0;
    if (!row->masked)
        return;
    row->columns = run->a->square ? s->q_len : s->all_keys;
    row->first = run->a->square ? (long)s->all_keys - s->q_len : 0;
    row->mask = run->mask + start + head * run->a->mask_head;
    if (run->a->mask_packed)
        row->bit = i * row->columns;
    else
        row->mask += i * run->a->mask_row;
}

INLINE struct row find_row(const struct run *run, const struct sequence *s, int at, int head)
{
    struct row row;

    row.kv_head = head / run->a->group;
    row.position = query_position(run, s, at - s->row);
    row.slope = GIVEN(run, slopes) ? F32(run->slopes)[head] : 0;
    row.scale = SCALE(run, q_scale, s->index, at, head / run->a->q_scale_group);
    visible_range(run, s, row.position, s->square, &row.lo, &row.hi);
    visible_range(run, s, row.position, -1, &row.unmasked_lo, &row.unmasked_hi);
    find_mask(run, s, at - s->row, head, &row);
    return row;
}

/* Minus infinity and the lowest number of the type hide a key. */
INLINE bool hides(uint dtype, float value)
{
    const float lowest = dtype == OPENCL_F16    ? -65504.0f
                         : dtype == OPENCL_BF16 ? as_float(0xff7f0000u)
                                                : -FLT_MAX;

    return value == lowest || value == -INFINITY;
}

/* Whether the mask lets a row see one of its columns; *bias is what an additive mask adds. */
INLINE bool passes(const struct run *run, const struct row *row, long column, float *bias)
{
    const uint dtype = run->a->mask_dtype;
    const long bit = row->bit + column;

    if (dtype == 0)
        return row->mask[bit / 8] >> (bit % 8) & 1;
    *bias = load_element(dtype, row->mask + column * SIZE(dtype));
    return !hides(dtype, *bias);
}

/*
 * Whether a row sees a key of [lo, hi) that exists; *bias is what is added to its score. Causality and window
 * decide only where the mask does not.
 */
INLINE bool sees(const struct run *run, const struct sequence *s, const struct row *row, int key, float *bias)
{
    const long position = key_position(run, key), column = position - row->first;
    const bool covered = row->masked && column >= 0 && column < row->columns;
    const bool decides = covered && run->a->square;
    long at = position;

    *bias = 0;
    if (covered && !passes(run, row, column, bias))
        return false;
    if (!decides && (key < row->unmasked_lo || key >= row->unmasked_hi))
        return false;
    if (run->a->alibi == OPENCL_BY_MASK) {
        *bias *= row->slope;
    } else if (GIVEN(run, slopes)) {
        if (decides && GIVEN(run, positions)) /* a token of a square mask is where its query is */
            at = given_position(run, s->row + column);
        const long away = at - row->position;
        *bias += row->slope * (float)(run->a->alibi == OPENCL_DISTANCE && away > 0 ? -away : away);
    }
    return true;
}

#endif
