/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Converts whole pages to another element type or layout. A pair has work-groups for its vectors; one whose
 * target is that of a later pair does nothing, so that the last pair wins.
 */
#ifndef HEAD_DIM

/* The pages of a pair; false if it is skipped. */
INLINE bool convert_pair(const struct opencl_convert *a, __global const uchar *pairs, int i, long *from,
                         long *to)
{
    *from = *to = i;
    if (a->pairs >= 0) {
        *from = I64(pairs + a->pairs)[2 * (long)i];
        *to = I64(pairs + a->pairs)[2 * (long)i + 1];
    }
    return *from >= 0 && *to >= 0 && *from < a->from.pages && *to < a->to.pages;
}

/* Whether this work-item finds a later pair with the same target. */
INLINE bool finds_later(const struct opencl_convert *a, __global const uchar *pairs, int i, long page)
{
    long from, to;

    for (int j = i + 1 + (int)get_local_id(0); a->pairs >= 0 && j < a->count; j += OPENCL_ITEMS)
        if (convert_pair(a, pairs, j, &from, &to) && to == page)
            return true;
    return false;
}

/* A vector with its scale, or, of the target, with the place where its own is written. */
INLINE struct vector side_vector(const struct opencl_side *side, __global uchar *base, __global uchar *scales,
                                 long page, long token, int head, bool is_target)
{
    __global float *scale = (__global float *)(scales + side->scale_at + page * side->scale.outer +
                                               token * side->scale.token + head * side->scale.head);
    struct vector v = vector_of(base + side->at + vector_at(&side->strides, page, token, head), side->dtype);

    v.x = side->x;
    v.x_stride = side->x_stride;
    v.scale = side->scale.value;
    if (is_target && side->own)
        v.own = scale;
    else if (side->scale_at >= 0)
        v.scale = *scale;
    return v;
}

/* Dimension 0 of the grid is that of pairs, dimension 1 divides the vectors of a page. */
__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void
attn_convert(__global uchar *from_buffer, __global uchar *from_scale, __global uchar *to_buffer,
             __global uchar *to_scale, __global const uchar *pairs, const struct opencl_convert a)
{
    __local uint most[OPENCL_ITEMS];
    __local int later;
    const int pair = (int)get_group_id(0);
    long from_page, to_page;

    if (get_local_id(0) == 0)
        later = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    const bool there = convert_pair(&a, pairs, pair, &from_page, &to_page);
    if (there && finds_later(&a, pairs, pair, to_page))
        atomic_or(&later, 1);
    barrier(CLK_LOCAL_MEM_FENCE);
    const long count = there && later == 0 ? (long)a.block * a.heads : 0;
    for (long n = get_group_id(1); n < count; n += get_num_groups(1)) {
        const long token = n / a.heads;
        const int head = (int)(n % a.heads);
        const struct vector from =
            side_vector(&a.from, from_buffer, from_scale, from_page, token, head, false);
        const struct vector to = side_vector(&a.to, to_buffer, to_scale, to_page, token, head, true);
        if (to.own && !a.moved)
            most[get_local_id(0)] = largest_bits(&from, a.to.dim);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (!a.moved)
            convert_vector(&from, &to, a.to.dim, most);
        else
            copy_vector(&from, &to, a.to.dim);
        if (a.moved && to.own && get_local_id(0) == 0)
            *to.own = from.scale;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#endif
