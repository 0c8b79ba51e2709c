/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes new keys and values into a cache. A work-group takes the vector of one row and head; plane 1 is that of
 * values. Element types are arguments, so that one program serves all caches. */
#ifndef COLUMNS

/* Page and token where a row is written; false if it is not. */
bool write_place(const struct run *run, int row, long *page, long *token)
{
    if (GIVEN(run, slots)) {
        const long slot = I64(run->slots)[row];
        if (slot < 0)
            return false;
        *page = slot / run->a->block;
        *token = slot % run->a->block;
    } else {
        if (!has_row(run, row))
            return false;
        const struct sequence s = find_sequence(run, row);
        const int key = s.kv_len - s.q_len + row - s.row;
        if (key < 0 || !locate(run, s.index, key, page, token))
            return false;
    }
    return *page < run->a->pages && *token < run->a->block;
}

/* One side of a cache, keys or values, and the new rows for it. */
struct side {
    __global const uchar *from;
    __global uchar *to;
    __global float *own; /* where the vector's own scale is written, or NULL */
    uint from_dtype, to_dtype;
    float scale;
    int dim;
};

/* The scale that a vector gets: max|x| / Q, NaN if there is a NaN or an infinity, 1 if it is too small for one. */
float scale_of(const struct side *side, __local uint *most)
{
    const float q = side->to_dtype == OPENCL_INT8 ? 127.0f
                                                  : decode8(side->to_dtype, (uchar)largest_of(side->to_dtype));
    uint max = 0; /* as integers, floats >= 0 keep their order, and NaN is above all */

    for (int d = (int)get_local_id(0); d < side->dim; d += OPENCL_ITEMS) {
        const float value = load_element(side->from_dtype, side->from + d * SIZE(side->from_dtype));
        const uint bits = as_uint(value) & 0x7fffffffu;
        max = bits > max ? bits : max;
    }
    most[get_local_id(0)] = max;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < OPENCL_ITEMS; i++)
        max = most[i] > max ? most[i] : max;
    if (max >= 0x7f800000u)
        return NAN;
    const float own = as_float(max) / q;
    return own < 0x1p-126f ? 1.0f : own;
}

void copy_vector(const struct side *side)
{
    const int bytes = side->dim * SIZE(side->to_dtype);

    for (int i = (int)get_local_id(0); i < bytes; i += OPENCL_ITEMS)
        side->to[i] = side->from[i];
}

void write_vector(const struct side *side, __local uint *most)
{
    float scale = side->scale;

    if (side->from_dtype == side->to_dtype) {
        copy_vector(side);
        return;
    }
    if (side->own) {
        scale = scale_of(side, most);
        if (get_local_id(0) == 0)
            *side->own = scale;
    }
    for (int d = (int)get_local_id(0); d < side->dim; d += OPENCL_ITEMS)
        store_element(side->to_dtype, side->to + d * SIZE(side->to_dtype),
                      load_element(side->from_dtype, side->from + d * SIZE(side->from_dtype)) / scale);
}

__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_write(OPENCL_PARAMETERS)
{
    __local uint most[OPENCL_ITEMS];
    const int row = (int)(get_group_id(0) / arguments.heads), head = (int)(get_group_id(0) % arguments.heads);
    long page = 0, token = 0;
    struct side side;

    OPENCL_BEGIN
    if (!write_place(&run, row, &page, &token))
        return;
    side.own = 0;
    if (get_group_id(1) == 0) {
        side.from = run.k_new + row_at(&arguments.k_new, row, head);
        side.to = run.k + vector_at(&arguments.k, page, token, head);
        side.from_dtype = arguments.k_from;
        side.to_dtype = arguments.k_to;
        side.dim = arguments.head_dim;
        if (arguments.k_own)
            side.own = (__global float *)(run.k_scale + scale_at(&run, OPENCL_BUFFER_k_scale, page, token, head));
        side.scale = arguments.k_own ? 1 : SCALE((&run), k_scale, page, token, head);
    } else {
        side.from = run.v_new + row_at(&arguments.v_new, row, head);
        side.to = run.v + vector_at(&arguments.v, page, token, head);
        side.from_dtype = arguments.v_from;
        side.to_dtype = arguments.v_to;
        side.dim = arguments.head_dim_vo;
        if (arguments.v_own)
            side.own = (__global float *)(run.v_scale + scale_at(&run, OPENCL_BUFFER_v_scale, page, token, head));
        side.scale = arguments.v_own ? 1 : SCALE((&run), v_scale, page, token, head);
    }
    write_vector(&side, most);
}

#endif
