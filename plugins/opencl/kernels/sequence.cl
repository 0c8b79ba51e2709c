/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a launch reads, the sequences of a step, and the places of their keys with every addressing. */

/* A launch: its argument block, and the buffers from their offsets on. */
struct run {
    const struct opencl_arguments *a;
#define MEMBER(name) __global uchar *name;
    OPENCL_FOR_BUFFERS(MEMBER)
#undef MEMBER
};

#define PARAMETER(name)   __global uchar *name##_buffer,
#define OPENCL_PARAMETERS OPENCL_FOR_BUFFERS(PARAMETER) const struct opencl_arguments arguments
#define SET_MEMBER(name)  run.name = name##_buffer + arguments.at[OPENCL_BUFFER_##name];
/* Declares `run` in a kernel. */
#define OPENCL_BEGIN                                                                                         \
    struct run run;                                                                                          \
    run.a = &arguments;                                                                                      \
    OPENCL_FOR_BUFFERS(SET_MEMBER)

#define GIVEN(run, name) ((run)->a->given >> OPENCL_BUFFER_##name & 1)
#define I32(base)        ((__global const int *)(base))
#define I64(base)        ((__global const long *)(base))
#define F32(base)        ((__global const float *)(base))

struct sequence {
    int index;
    int row; /* of query token 0 */
    int q_len;
    int kv_len;    /* keys of this rank */
    int all_keys;  /* keys of all ranks */
    int new_begin; /* first key that is in k_new; kv_len if none is */
    int causal;
    int left, right; /* -1 = unlimited; as long, Rusticl of Mesa 22.3 finds them >= 0 */
    int square;      /* first key of a square mask, from which on the mask decides; -1 = there is none */
    long shift;      /* position of query token 0, where no positions are given */
};

/* Whether a row belongs to a sequence of the step. */
INLINE bool has_row(const struct run *run, int row)
{
    return run->a->seqs > 0 && row < I32(run->q_offsets)[run->a->seqs];
}

INLINE struct sequence sequence_at(const struct run *run, int index)
{
    __global const int *starts = I32(run->q_offsets);
    struct sequence s;

    s.index = index;
    s.row = starts[index];
    s.q_len = starts[index + 1] - s.row;
    s.kv_len = s.q_len;
    if (GIVEN(run, kv_lens))
        s.kv_len = I32(run->kv_lens)[index];
    else if (GIVEN(run, kv_offsets))
        s.kv_len = I32(run->kv_offsets)[index + 1] - I32(run->kv_offsets)[index];
    s.all_keys = GIVEN(run, global_lens) ? I32(run->global_lens)[index] : s.kv_len;
    s.new_begin = run->a->last_new ? s.kv_len - s.q_len : s.kv_len;
    s.causal = GIVEN(run, seq_causal) ? run->seq_causal[index] != 0 : run->a->causal;
    s.left = run->a->left;
    s.right = run->a->right_given ? run->a->right : s.causal ? 0 : s.left;
    s.shift = run->a->from_start ? 0 : (long)s.all_keys - s.q_len;
    s.square = run->a->has_mask && run->a->square ? max(s.all_keys - s.q_len, 0) : -1;
    return s;
}

/* The sequence of a row that has one; never one without queries. */
INLINE struct sequence find_sequence(const struct run *run, int row)
{
    __global const int *starts = I32(run->q_offsets);
    int lo = 0, hi = run->a->seqs;

    while (hi - lo > 1) {
        const int middle = lo + (hi - lo) / 2;
        if (starts[middle] <= row)
            lo = middle;
        else
            hi = middle;
    }
    return sequence_at(run, lo);
}

/* A row's position if positions are given. */
INLINE long given_position(const struct run *run, long row)
{
    return run->a->wide_positions ? I64(run->positions)[row] : (long)I32(run->positions)[row];
}

/* The position of the sequence's query token i in the numbering of the keys. */
INLINE long query_position(const struct run *run, const struct sequence *s, int i)
{
    return GIVEN(run, positions) ? given_position(run, (long)s->row + i) : s->shift + i;
}

/* The position of a key among those of all ranks (docs/definition.md, section 4). */
INLINE long key_position(const struct run *run, int key)
{
    const long share = run->a->cp_interleave, world = run->a->cp_world;

    return world == 0 ? key : (key / share * world + run->a->cp_rank) * share + key % share;
}

/* How many of the keys [0, all) this rank has. */
INLINE long count_keys(const struct run *run, long all)
{
    const long share = run->a->cp_interleave, round = share * run->a->cp_world;

    if (run->a->cp_world == 0)
        return all;
    return all / round * share + clamp(all % round - share * run->a->cp_rank, 0L, share);
}

/*
 * The keys [*lo, *hi) that a query at a position sees, apart from invalid blocks; both 0 if there are none.
 * With `square`, the first key of a square mask, those of the mask too, and any keys in between; -1 without.
 */
INLINE void visible_range(const struct run *run, const struct sequence *s, long position, int square, int *lo,
                          int *hi)
{
    /* Clamping changes no result and keeps sums with window sides from overflowing. */
    const long p = clamp(position, -(1L << 40), 1L << 40);
    long begin = 0, end = s->all_keys;

    if (s->causal && p + 1 < end)
        end = p + 1;
    if (s->right >= 0 && p + s->right + 1 < end)
        end = p + s->right + 1;
    if (s->left >= 0 && p - s->left > begin)
        begin = p - s->left;
    if (square >= 0) {
        begin = begin < end && begin < square ? begin : square;
        end = s->all_keys;
    }
    if (begin >= end)
        begin = end = 0;
    *lo = (int)count_keys(run, begin);
    *hi = (int)count_keys(run, end);
}

/* Page and token of a key in the cache; false in an invalid block. */
INLINE bool locate(const struct run *run, int seq, int key, long *page, long *token)
{
    const int block = run->a->block, entry = key / block;

    if (run->a->addressing == OPENCL_DENSE) {
        *page = GIVEN(run, kv_offsets) ? 0 : seq;
        *token = (GIVEN(run, kv_offsets) ? (long)I32(run->kv_offsets)[seq] : 0) + key;
        return true;
    }
    *token = key - entry * block;
    if (run->a->addressing == OPENCL_TABLE) {
        *page = I32(run->table + seq * run->a->table_stride)[entry];
    } else {
        const long at = (long)I32(run->indptr)[seq] + entry;
        *page = run->a->wide_index ? I64(run->table)[at] : (long)I32(run->table)[at];
    }
    return *page >= 0;
}

/* The scale `name` of a place. */
#define SCALE(run, name, outer, token, head)                                                                 \
    (GIVEN(run, name) ? *F32(run->name + scale_at(run, OPENCL_BUFFER_##name, outer, token, head))            \
                      : run->a->scales[OPENCL_BUFFER_##name - OPENCL_BUFFER_q_scale].value)

INLINE long scale_at(const struct run *run, int which, long outer, long token, int head)
{
    const struct opencl_scale *scale = &run->a->scales[which - OPENCL_BUFFER_q_scale];

    return outer * scale->outer + token * scale->token + head * scale->head;
}

INLINE long row_at(const struct opencl_rows *strides, long row, int head)
{
    return row * strides->token + head * strides->head;
}

/* Byte offset within a vector; `x` bytes are contiguous, all of them where it is 0. */
INLINE long column_at(int x, int x_stride, int byte)
{
    return x == 0 ? byte : (long)(byte / x) * x_stride + byte % x;
}

/* Byte offset of element 0 of a vector. */
INLINE long vector_at(const struct opencl_strides *strides, long page, long token, int head)
{
    return page * strides->page + token * strides->token + head * strides->head;
}
