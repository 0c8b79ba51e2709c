/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Merge and rescale of partial results (docs/definition.md, section 3). Logarithms are subtracted in the base
 * that they have: a conversion before would cost the bits that the weights depend on.
 */
#ifndef HEAD_DIM

#define LN2 0.693147180559945309417f

#define PART_BUFFERS(X)                                                                                      \
    X(0)                                                                                                     \
    X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19)
#define PART_PARAMETER(n) __global uchar *part##n,
#define MERGE_PARAMETERS                                                                                     \
    PART_BUFFERS(PART_PARAMETER)                                                                             \
    __global uchar *out, __global uchar *lse, __global const uchar *list, const struct opencl_merge a
#define PART_MEMBER(n) run.buffers[n] = part##n;
#define MERGE_BEGIN                                                                                          \
    struct merge run;                                                                                        \
    PART_BUFFERS(PART_MEMBER)                                                                                \
    run.parts = (__global const struct opencl_part *)list;                                                   \
    run.a = &a;                                                                                              \
    run.row = (long)(get_group_id(0) / a.heads);                                                             \
    run.head = (int)(get_group_id(0) % a.heads);

/* A row and head, and where the parts are. */
struct merge {
    const struct opencl_merge *a;
    __global uchar *buffers[OPENCL_PART_BUFFERS];
    __global const struct opencl_part *parts;
    long row;
    int head;
};

/* Parts whose logarithm is infinite, of any sign, are empty: -inf. */
INLINE float lse_of(const struct merge *run, int k)
{
    __global const struct opencl_part *part = &run->parts[k];
    const float lse = *F32(run->buffers[part->lse_buffer] + part->lse_at + run->row * part->lse.token +
                           run->head * part->lse.head);

    return isinf(lse) ? -INFINITY : lse;
}

/* Powers of the base. */
INLINE float power(const struct merge *run, float x)
{
    return run->a->base2 ? exp2(x) : exp(x);
}

/* The largest logarithm; NaN if there is one, -inf if all parts are empty. */
INLINE float largest_lse(const struct merge *run)
{
    float max = -INFINITY;

    for (int k = 0; k < run->a->count; k++) {
        const float lse = lse_of(run, k);
        max = isnan(max) || lse <= max ? max : lse;
    }
    return max;
}

INLINE float sum_powers(const struct merge *run, float max)
{
    float sum = 0;

    for (int k = 0; k < run->a->count; k++) {
        const float lse = lse_of(run, k);
        sum += lse == -INFINITY ? 0 : power(run, lse - max);
    }
    return sum;
}

/* Merges a column; only then is it stored, because the result may overwrite a part. */
INLINE float merge_column(const struct merge *run, float max, float sum, int d)
{
    const int size = SIZE(run->a->dtype);
    float total = 0;

    for (int k = 0; k < run->a->count; k++) {
        __global const struct opencl_part *part = &run->parts[k];
        const float lse = lse_of(run, k);
        if (lse == -INFINITY)
            continue;
        total += power(run, lse - max) *
                 load_element(run->a->dtype, run->buffers[part->out_buffer] + part->out_at +
                                                 run->row * part->out.token + run->head * part->out.head +
                                                 d * size);
    }
    return max == -INFINITY ? 0 : total / sum;
}

__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_merge(MERGE_PARAMETERS)
{
    MERGE_BEGIN
    const float max = largest_lse(&run), sum = sum_powers(&run, max);
    __global uchar *to = out + a.out_at + row_at(&a.out, run.row, run.head);

    for (int d = (int)get_local_id(0); d < a.head_dim; d += OPENCL_ITEMS)
        store_element(a.dtype, to + d * SIZE(a.dtype), merge_column(&run, max, sum, d));
    /* The logarithm may overwrite that of a part, which all work-items have read by then. */
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (a.lse_at >= 0 && get_local_id(0) == 0)
        *(__global float *)(lse + a.lse_at + row_at(&a.lse, run.row, run.head)) =
            max == -INFINITY ? max : (a.base2 ? max * LN2 : max) + log(sum);
}

__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_rescale(MERGE_PARAMETERS)
{
    MERGE_BEGIN
    const float own = *F32(lse + a.lse_at + row_at(&a.lse, run.row, run.head));
    const float max = largest_lse(&run), sum = sum_powers(&run, max);
    const float weight = power(&run, own - max) / sum;
    __global uchar *to = out + a.out_at + row_at(&a.out, run.row, run.head);

    for (int d = (int)get_local_id(0); d < a.head_dim; d += OPENCL_ITEMS) {
        __global uchar *at = to + d * SIZE(a.dtype);
        store_element(a.dtype, at, isinf(own) ? 0 : load_element(a.dtype, at) * weight);
    }
}

#endif
