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

void write_vector(__global const uchar *from, uint from_dtype, __global uchar *to, uint to_dtype, int dim)
{
    for (int d = (int)get_local_id(0); d < dim; d += OPENCL_ITEMS) {
        __global const uchar *source = from + d * SIZE(from_dtype);
        __global uchar *target = to + d * SIZE(to_dtype);
        if (from_dtype != to_dtype)
            store_element(to_dtype, target, load_element(from_dtype, source));
        else if (SIZE(to_dtype) == 4)
            *(__global uint *)target = *(__global const uint *)source;
        else
            *(__global ushort *)target = *(__global const ushort *)source;
    }
}

__kernel __attribute__((reqd_work_group_size(OPENCL_ITEMS, 1, 1))) void attn_write(OPENCL_PARAMETERS)
{
    const int row = (int)(get_group_id(0) / arguments.heads), head = (int)(get_group_id(0) % arguments.heads);
    long page = 0, token = 0;

    OPENCL_BEGIN
    if (!write_place(&run, row, &page, &token))
        return;
    if (get_group_id(1) == 0)
        write_vector(run.k_new + vector_at(&arguments.k_new, 0, row, head), arguments.k_from,
                     run.k + vector_at(&arguments.k, page, token, head), arguments.k_to, arguments.head_dim);
    else
        write_vector(run.v_new + vector_at(&arguments.v_new, 0, row, head), arguments.v_from,
                     run.v + vector_at(&arguments.v, page, token, head), arguments.v_to, arguments.head_dim_vo);
}

#endif
