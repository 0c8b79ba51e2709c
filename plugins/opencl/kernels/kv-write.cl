/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes new keys and values into a cache, and maps their rows to slots. For writing a work-group takes the vector of one row and head; plane 1 is that of
 * values. Element types are arguments, so that one program serves all caches. */
#ifndef HEAD_DIM

/* Page and token of a query token's own key; false if it has none. */
INLINE bool locate_row(const struct run *run, int row, long *page, long *token)
{
    if (!has_row(run, row))
        return false;
    const struct sequence s = find_sequence(run, row);
    const int key = s.kv_len - s.q_len + row - s.row;
    return key >= 0 && locate(run, s.index, key, page, token);
}

/* Page and token where a row is written; false if it is not. */
INLINE bool write_place(const struct run *run, int row, long *page, long *token)
{
    if (GIVEN(run, slots)) {
        const long slot = I64(run->slots)[row];
        if (slot < 0)
            return false;
        *page = slot / run->a->block;
        *token = slot % run->a->block;
    } else if (!locate_row(run, row, page, token)) {
        return false;
    }
    return *page < run->a->pages && *token < run->a->block;
}

/* One side of a cache, keys or values, and the new rows for it. */
struct side {
    __global const uchar *from;
    __global const uchar *rest; /* elements from `split` on */
    __global uchar *to;
    __global float *own; /* where the vector's own scale is written, or NULL */
    uint from_dtype, to_dtype;
    float scale;
    int dim, split;
    int x, x_stride; /* of the cache */
};

INLINE __global const uchar *element_of(const struct side *side, int d)
{
    return d < side->split ? side->from + d * SIZE(side->from_dtype)
                           : side->rest + (d - side->split) * SIZE(side->from_dtype);
}

/* max|x| of this work-item's elements; as integers, floats >= 0 keep their order, and NaN is above all. */
INLINE uint largest_bits(const struct side *side)
{
    uint max = 0;

    for (int d = (int)get_local_id(0); d < side->dim; d += OPENCL_ITEMS) {
        const uint bits = as_uint(load_element(side->from_dtype, element_of(side, d))) & 0x7fffffffu;
        max = bits > max ? bits : max;
    }
    return max;
}

/* The scale that a vector gets: max|x| / Q, NaN if there is a NaN or an infinity, 1 if it is too small for one. */
INLINE float scale_of(uint dtype, __local const uint *most)
{
    const float q = dtype == OPENCL_INT8 ? 127.0f : decode8(dtype, (uchar)largest_of(dtype));
    uint max = 0;

    for (int i = 0; i < OPENCL_ITEMS; i++)
        max = most[i] > max ? most[i] : max;
    if (max >= 0x7f800000u)
        return NAN;
    const float own = as_float(max) / q;
    return own < 0x1p-126f ? 1.0f : own;
}

INLINE void copy_vector(const struct side *side)
{
    const int size = SIZE(side->to_dtype);

    for (int i = (int)get_local_id(0); i < side->dim * size; i += OPENCL_ITEMS)
        side->to[column_at(side->x, side->x_stride, i)] = element_of(side, i / size)[i % size];
}

INLINE void write_vector(const struct side *side, __local const uint *most)
{
    float scale = side->scale;

    if (side->from_dtype == side->to_dtype) {
        copy_vector(side);
        return;
    }
    if (side->own) {
        scale = scale_of(side->to_dtype, most);
        if (get_local_id(0) == 0)
            *side->own = scale;
    }
    for (int d = (int)get_local_id(0); d < side->dim; d += OPENCL_ITEMS)
        store_element(side->to_dtype, side->to + column_at(side->x, side->x_stride, d * SIZE(side->to_dtype)),
                      load_element(side->from_dtype, element_of(side, d)) / scale);
}

INLINE struct side side_of_keys(const struct run *run, int row, int head, long page, long token)
{
    const struct opencl_arguments *a = run->a;
    struct side side;

    side.from = run->k_new + row_at(&a->k_new, row, head);
    side.rest = run->q_rope + row_at(&a->q_rope, row, head);
    side.to = run->k + vector_at(&a->k, page, token, head);
    side.own = 0;
    if (a->k_own)
        side.own = (__global float *)(run->k_scale + scale_at(run, OPENCL_BUFFER_k_scale, page, token, head));
    side.from_dtype = a->k_from;
    side.to_dtype = a->k_to;
    side.scale = a->k_own ? 1 : SCALE(run, k_scale, page, token, head);
    side.dim = a->head_dim;
    side.split = a->split;
    side.x = a->k_x;
    side.x_stride = a->k_x_stride;
    return side;
}

INLINE struct side side_of_values(const struct run *run, int row, int head, long page, long token)
{
    const struct opencl_arguments *a = run->a;
    struct side side;

    side.from = side.rest = run->v_new + row_at(&a->v_new, row, head);
    side.to = run->v + vector_at(&a->v, page, token, head);
    side.own = 0;
    if (a->v_own)
        side.own = (__global float *)(run->v_scale + scale_at(run, OPENCL_BUFFER_v_scale, page, token, head));
    side.from_dtype = a->v_from;
    side.to_dtype = a->v_to;
    side.scale = a->v_own ? 1 : SCALE(run, v_scale, page, token, head);
    side.dim = side.split = a->head_dim_vo;
    side.x = a->v_x;
    side.x_stride = a->v_x_stride;
    return side;
}

__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_write(OPENCL_PARAMETERS)
{
    __local uint most[OPENCL_ITEMS];
    const int row = (int)(get_group_id(0) / arguments.heads), head = (int)(get_group_id(0) % arguments.heads);
    long page = 0, token = 0;
    struct side side;

    OPENCL_BEGIN
    const bool there = write_place(&run, row, &page, &token);
    most[get_local_id(0)] = 0;
    if (there) {
        side = get_group_id(1) == 0 ? side_of_keys(&run, row, head, page, token)
                                    : side_of_values(&run, row, head, page, token);
        if (side.own)
            most[get_local_id(0)] = largest_bits(&side);
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* where all work-items come by, whatever they have to do */
    if (there)
        write_vector(&side, most);
}

/* A work-item takes a row. */
__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_slots(OPENCL_PARAMETERS)
{
    const long row = get_global_id(0);
    long page = 0, token = 0;

    OPENCL_BEGIN
    if (row >= arguments.num_tokens || !has_row(&run, (int)row))
        return;
    const bool there = locate_row(&run, (int)row, &page, &token);
    ((__global long *)run.slots)[row] = there ? page * arguments.block + token : -1;
}

#endif
