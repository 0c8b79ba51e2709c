/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a launch reads, the sequences of a step, and the places of their keys with every addressing. */

/* A launch: its argument block, and the buffers from their offsets on. */
struct run {
    const struct opencl_arguments *a;
#define MEMBER(name) __global uchar *name;
    OPENCL_FOR_BUFFERS(MEMBER)
#undef MEMBER
};

#define PARAMETER(name) __global uchar *name##_buffer,
#define OPENCL_PARAMETERS OPENCL_FOR_BUFFERS(PARAMETER) const struct opencl_arguments arguments
#define SET_MEMBER(name) run.name = name##_buffer + arguments.at[OPENCL_BUFFER_##name];
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
    int kv_len;
    int new_begin; /* first key that is in k_new; kv_len if none is */
    int causal;
    long left, right; /* -1 = unlimited */
    long shift;       /* position of query token 0, where no positions are given */
};

/* Whether a row belongs to a sequence of the step. */
bool has_row(const struct run *run, int row)
{
    return run->a->seqs > 0 && row < I32(run->q_offsets)[run->a->seqs];
}

/* The sequence of a row that has one; never one without queries. */
struct sequence find_sequence(const struct run *run, int row)
{
    __global const int *starts = I32(run->q_offsets);
    struct sequence s;
    int lo = 0, hi = run->a->seqs;

    while (hi - lo > 1) {
        const int middle = lo + (hi - lo) / 2;
        if (starts[middle] <= row)
            lo = middle;
        else
            hi = middle;
    }
    s.index = lo;
    s.row = starts[lo];
    s.q_len = starts[lo + 1] - s.row;
    s.kv_len = s.q_len;
    if (GIVEN(run, kv_lens))
        s.kv_len = I32(run->kv_lens)[lo];
    else if (GIVEN(run, kv_offsets))
        s.kv_len = I32(run->kv_offsets)[lo + 1] - I32(run->kv_offsets)[lo];
    s.new_begin = run->a->last_new ? s.kv_len - s.q_len : s.kv_len;
    s.causal = GIVEN(run, seq_causal) ? run->seq_causal[lo] != 0 : run->a->causal;
    s.left = run->a->left;
    s.right = run->a->right_given ? run->a->right : s.causal ? 0 : s.left;
    s.shift = run->a->from_start ? 0 : (long)s.kv_len - s.q_len;
    return s;
}

/* The position of the sequence's query token i in the numbering of the keys. */
long query_position(const struct run *run, const struct sequence *s, int i)
{
    if (!GIVEN(run, positions))
        return s->shift + i;
    return run->a->wide_positions ? I64(run->positions)[s->row + i] : (long)I32(run->positions)[s->row + i];
}

/* The keys [*lo, *hi) that a query at a position sees, apart from invalid blocks; both 0 if there are none. */
void visible_range(const struct sequence *s, long position, int *lo, int *hi)
{
    /* Clamping changes no result and keeps sums with window sides from overflowing. */
    const long p = clamp(position, -(1L << 40), 1L << 40);
    long begin = 0, end = s->kv_len;

    if (s->causal && p + 1 < end)
        end = p + 1;
    if (s->right >= 0 && p + s->right + 1 < end)
        end = p + s->right + 1;
    if (s->left >= 0 && p - s->left > begin)
        begin = p - s->left;
    if (begin >= end)
        begin = end = 0;
    *lo = (int)begin;
    *hi = (int)end;
}

/* Page and token of a key in the cache; false in an invalid block. */
bool locate(const struct run *run, int seq, int key, long *page, long *token)
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

long scale_at(const struct run *run, int which, long outer, long token, int head)
{
    const struct opencl_scale *scale = &run->a->scales[which - OPENCL_BUFFER_q_scale];

    return outer * scale->outer + token * scale->token + head * scale->head;
}

long row_at(const struct opencl_rows *strides, long row, int head)
{
    return row * strides->token + head * strides->head;
}

/* Byte offset of element 0 of a vector. */
long vector_at(const struct opencl_strides *strides, long page, long token, int head)
{
    return page * strides->page + token * strides->token + head * strides->head;
}
