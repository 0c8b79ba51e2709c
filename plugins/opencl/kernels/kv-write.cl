/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Writes new keys and values into a cache, gathers those of a cache into rows, and maps rows to slots. A
 * work-group takes the vector of one row and head; plane 1 is that of values.
 */
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

/* A vector of the cache; `is_v` that of values. */
INLINE struct vector cache_vector(const struct run *run, bool is_v, uint dtype, long page, long token,
                                  int head)
{
    const struct opencl_arguments *a = run->a;
    struct vector v = vector_of(is_v ? run->v + vector_at(&a->v, page, token, head)
                                     : run->k + vector_at(&a->k, page, token, head),
                                dtype);

    v.x = is_v ? a->v_x : a->k_x;
    v.x_stride = is_v ? a->v_x_stride : a->k_x_stride;
    return v;
}

/* Where a vector of the cache has its scale. */
INLINE __global float *scale_place(const struct run *run, bool is_v, long page, long token, int head)
{
    return (__global float *)(is_v ? run->v_scale + scale_at(run, OPENCL_BUFFER_v_scale, page, token, head)
                                   : run->k_scale + scale_at(run, OPENCL_BUFFER_k_scale, page, token, head));
}

INLINE float cache_scale(const struct run *run, bool is_v, long page, long token, int head)
{
    return is_v ? SCALE(run, v_scale, page, token, head) : SCALE(run, k_scale, page, token, head);
}

/* A vector of the rows; its columns from `split` on may be in a tensor of their own. */
INLINE struct vector row_vector(const struct run *run, bool is_v, uint dtype, int row, int head)
{
    const struct opencl_arguments *a = run->a;
    struct vector v = vector_of(
        is_v ? run->v_new + row_at(&a->v_new, row, head) : run->k_new + row_at(&a->k_new, row, head), dtype);

    if (!is_v && GIVEN(run, q_rope)) {
        v.rest = run->q_rope + row_at(&a->q_rope, row, head);
        v.split = a->split;
    }
    return v;
}

__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_write(OPENCL_PARAMETERS)
{
    __local uint most[OPENCL_ITEMS];
    const int row = (int)(get_group_id(0) / arguments.heads), head = (int)(get_group_id(0) % arguments.heads);
    const bool is_v = get_group_id(1) != 0;
    const int dim = is_v ? arguments.head_dim_vo : arguments.head_dim;
    const bool own = is_v ? arguments.v_own : arguments.k_own;
    long page = 0, token = 0;
    struct vector from, to;

    OPENCL_BEGIN
    const bool there = write_place(&run, row, &page, &token);
    most[get_local_id(0)] = 0;
    if (there) {
        from = row_vector(&run, is_v, is_v ? arguments.v_from : arguments.k_from, row, head);
        to = cache_vector(&run, is_v, is_v ? arguments.v_to : arguments.k_to, page, token, head);
        to.scale = own ? 1 : cache_scale(&run, is_v, page, token, head);
        to.own = own ? scale_place(&run, is_v, page, token, head) : 0;
        if (own)
            most[get_local_id(0)] = largest_bits(&from, dim);
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* where all work-items come by, whatever they have to do */
    if (there && from.dtype == to.dtype)
        copy_vector(&from, &to, dim);
    else if (there)
        convert_vector(&from, &to, dim, most);
}

/* Fills a row: zeros of scale 1 where its key lies in an invalid block. */
INLINE void gather_vector(const struct run *run, bool is_v, int row, int head, bool there, long page,
                          long token)
{
    const struct opencl_arguments *a = run->a;
    const int dim = is_v ? a->head_dim_vo : a->head_dim;
    const struct vector to = row_vector(run, is_v, is_v ? a->v_to : a->k_to, row, head);
    struct vector from = cache_vector(run, is_v, is_v ? a->v_from : a->k_from, page, token, head);
    __global uchar *scales = is_v ? run->v_new_scale + scale_at(run, OPENCL_BUFFER_v_new_scale, 0, row, head)
                                  : run->k_new_scale + scale_at(run, OPENCL_BUFFER_k_new_scale, 0, row, head);

    from.scale = there ? cache_scale(run, is_v, page, token, head) : 1;
    if (get_local_id(0) == 0 && (is_v ? GIVEN(run, v_new_scale) : GIVEN(run, k_new_scale)))
        *(__global float *)scales = from.scale;
    if (!there)
        for (int d = (int)get_local_id(0); d < dim; d += OPENCL_ITEMS)
            store_element(to.dtype, element_of(&to, d), 0);
    else if (from.dtype == to.dtype)
        copy_vector(&from, &to, dim);
    else
        convert_vector(&from, &to, dim, 0);
}

/* The rows of the sequences begin at q_offsets, and their first keys are in `positions`, or 0. */
__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_gather(OPENCL_PARAMETERS)
{
    const int row = (int)(get_group_id(0) / arguments.heads), head = (int)(get_group_id(0) % arguments.heads);
    const bool is_v = get_group_id(1) != 0;
    long page = 0, token = 0;

    OPENCL_BEGIN
    if (!(is_v ? GIVEN(&run, v_new) : GIVEN(&run, k_new)) || row < I32(run.q_offsets)[0] ||
        !has_row(&run, row))
        return;
    const struct sequence s = find_sequence(&run, row);
    const int start = GIVEN(&run, positions) ? I32(run.positions)[s.index] : 0;
    const bool there = locate(&run, s.index, start + row - s.row, &page, &token);
    gather_vector(&run, is_v, row, head, there, page, token);
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
