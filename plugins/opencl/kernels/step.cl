/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * One step of decoding in place, in two kernels: one work-group grows the lengths and adds them up, then any
 * number of them write rows and page numbers.
 */
#ifndef HEAD_DIM

/* A launch: its argument block, and the arrays from their offsets on. */
struct step {
    const struct opencl_step *a;
#define MEMBER(name) __global uchar *name;
    OPENCL_FOR_STEP_BUFFERS(MEMBER)
#undef MEMBER
};

#define STEP_PARAMETERS       OPENCL_FOR_STEP_BUFFERS(PARAMETER) const struct opencl_step arguments
#define SET_STEP_MEMBER(name) step.name = name##_buffer + arguments.at[OPENCL_STEP_##name];
#define STEP_BEGIN                                                                                           \
    struct step step;                                                                                        \
    step.a = &arguments;                                                                                     \
    OPENCL_FOR_STEP_BUFFERS(SET_STEP_MEMBER)

#define HAS(step, name) ((step)->a->at[OPENCL_STEP_##name] >= 0)
#define I32_OUT(base)   ((__global int *)(base))
#define I64_OUT(base)   ((__global long *)(base))

INLINE long first_token(const struct step *step, int seq)
{
    return HAS(step, query_starts) ? I32(step->query_starts)[seq] : seq;
}

INLINE long table_page(const struct step *step, int seq, long index)
{
    __global const uchar *row = step->table + seq * step->a->table_stride;

    return step->a->wide_index ? I64(row)[index] : (long)I32(row)[index];
}

/* Length and pages of a sequence, which is advanced first if the step has queries of it. */
INLINE long grow(const struct step *step, int seq, long *pages)
{
    const int block = step->a->block;
    long len = I32(step->seq_lens)[seq];

    *pages = 0;
    if (seq >= step->a->queries)
        return len;
    len += HAS(step, accepted) ? I32(step->accepted)[seq] : 1;
    *pages = len / block + (len % block != 0);
    I32_OUT(step->seq_lens)[seq] = (int)len;
    if (HAS(step, context_lens))
        I32_OUT(step->context_lens)[seq] = (int)(len - (first_token(step, seq + 1) - first_token(step, seq)));
    if (HAS(step, csr_indptr)) {
        I32_OUT(step->csr_pages)[seq] = (int)*pages;
        I32_OUT(step->last_page_lens)[seq] = (int)(len % block != 0 ? len % block : block);
    }
    return len;
}

/* Sums of the values of the work-items up to each, tokens and pages. */
INLINE void add_up(__local long2 *sums, long2 own)
{
    const int item = (int)get_local_id(0);

    sums[item] = own;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int distance = 1; distance < OPENCL_ITEMS; distance *= 2) {
        const long2 more = item >= distance ? sums[item - distance] : (long2)(0, 0);
        barrier(CLK_LOCAL_MEM_FENCE);
        sums[item] += more;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* Launched with one work-group. */
__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_step_lengths(STEP_PARAMETERS)
{
    __local long2 sums[OPENCL_ITEMS];
    const int item = (int)get_local_id(0);
    long2 before = (long2)(0, 0); /* of the sequences before these */

    STEP_BEGIN
    if (item == 0 && HAS(&step, seq_starts))
        I32_OUT(step.seq_starts)[0] = 0;
    if (item == 0 && HAS(&step, csr_indptr))
        I32_OUT(step.csr_indptr)[0] = 0;
    for (long first = 0; first < arguments.seqs; first += OPENCL_ITEMS) {
        const bool there = first + item < arguments.seqs;
        const int seq = (int)(first + item);
        long pages = 0, len = there ? grow(&step, seq, &pages) : 0;
        add_up(sums, (long2)(len, pages));
        if (there && HAS(&step, seq_starts))
            I32_OUT(step.seq_starts)[seq + 1] = (int)(before.x + sums[item].x);
        if (there && HAS(&step, csr_indptr))
            I32_OUT(step.csr_indptr)[seq + 1] = (int)(before.y + sums[item].y);
        before += sums[OPENCL_ITEMS - 1];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* The last of `count` places that begins at or before `at`; there is one. */
INLINE int find_start(__global const uchar *starts, int count, long at)
{
    int lo = 0, hi = count;

    while (hi - lo > 1) {
        const int middle = lo + (hi - lo) / 2;
        if (I32(starts)[middle] <= at)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

/* Position and slot of a row of a sequence, whose length has grown. */
INLINE long position_of(const struct step *step, long row, long *slot)
{
    const int seq =
        HAS(step, query_starts) ? find_start(step->query_starts, step->a->queries, row) : (int)row;
    const long end = first_token(step, seq + 1), tokens = end - first_token(step, seq);
    const long position = I32(step->seq_lens)[seq] - (end - row), index = position / step->a->block;
    const bool shown = seq >= step->a->windowed || position >= tokens - step->a->window;

    *slot = -1;
    if (HAS(step, slots) && shown && position >= 0 && index < step->a->table_width) {
        const long page = table_page(step, seq, index);
        *slot = page < 0 ? -1 : page * step->a->block + position % step->a->block;
    }
    return position;
}

/* A row of a sequence, or from `end` on of padding. */
INLINE void advance_row(const struct step *step, long row, long end)
{
    long position = 0, slot = -1;

    if (row >= end && step->a->keep_padding)
        return;
    if (row < end)
        position = position_of(step, row, &slot);
    if (HAS(step, tokens) && row >= end)
        I64_OUT(step->tokens)[row] = 0;
    else if (HAS(step, tokens) && HAS(step, sampled))
        I64_OUT(step->tokens)[row] = I64(step->sampled)[row];
    if (HAS(step, positions))
        I64_OUT(step->positions)[row] = position;
    if (HAS(step, slots))
        I64_OUT(step->slots)[row] = slot;
}

/* Entry `at` of csr_indices. */
INLINE void write_entry(const struct step *step, long at)
{
    const int seq = find_start(step->csr_indptr, step->a->queries, at);
    const long index = at - I32(step->csr_indptr)[seq];

    if (index >= step->a->table_width)
        return;
    if (step->a->wide_index)
        I64_OUT(step->csr_indices)[at] = table_page(step, seq, index);
    else
        I32_OUT(step->csr_indices)[at] = (int)table_page(step, seq, index);
}

/* A work-item takes a row, and an entry of csr_indices. */
__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_step_rows(STEP_PARAMETERS)
{
    const long at = get_global_id(0);

    STEP_BEGIN
    if (at < arguments.num_tokens)
        advance_row(&step, at, first_token(&step, arguments.queries));
    if (HAS(&step, csr_indptr) && at < arguments.csr_capacity && at < I32(step.csr_indptr)[arguments.queries])
        write_entry(&step, at);
}

#endif
