/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Merge and rescale of partial results: a work-group for each row and head, which reads the places of parts
 * in a list. */
#include "opencl.h"

/* Parts that are being listed. */
struct list {
    struct opencl_launch launch;
    struct opencl_part *parts;
    int32_t buffers; /* different ones that were found */
};

/* The number of a buffer among those of the parts. */
static int32_t find_buffer(struct list *list, const struct attn_tensor *tensor, uint32_t size,
                           const char *name, opencl_i64 *out_at, opencl_i32 *out, struct attn_error *err)
{
    int32_t i = 0;

    while (i < list->buffers && list->launch.buffers[i] != (cl_mem)tensor->buffer.data)
        i++;
    if (i == OPENCL_PART_BUFFERS)
        return opencl_fail(err, ATTN_E_UNSUPPORTED, 0, name,
                           "the parts lie in more than %d buffers; up to so many are served",
                           OPENCL_PART_BUFFERS);
    list->buffers += i == list->buffers;
    *out = i;
    return opencl_launch_place(&list->launch, (uint32_t)i, &tensor->buffer, size, name, out_at, err);
}

/* Part `i`; `out` is NULL in a rescaling. */
static int32_t list_part(struct list *list, uint32_t i, const struct attn_tensor *out,
                         const struct attn_tensor *lse, uint32_t size, struct attn_error *err)
{
    struct opencl_part *part = &list->parts[i];
    int32_t status = find_buffer(list, lse, sizeof(float), out != NULL ? "parts.lse" : "all", &part->lse_at,
                                 &part->lse_buffer, err);

    part->lse = opencl_rows_of(lse);
    if (out == NULL || status != ATTN_OK)
        return status;
    part->out = opencl_rows_of(out);
    return find_buffer(list, out, size, "parts.out", &part->out_at, &part->out_buffer, err);
}

static int32_t add_results(struct opencl_launch *launch, const struct attn_tensor *out,
                           const struct attn_tensor *lse, uint32_t size, const char *lse_name,
                           struct attn_error *err)
{
    int32_t status =
        opencl_launch_place(launch, OPENCL_MERGE_OUT, &out->buffer, size, "out", &launch->merge.out_at, err);

    launch->merge.out = opencl_rows_of(out);
    launch->merge.lse = opencl_rows_of(lse);
    if (status == ATTN_OK)
        status = opencl_launch_place(launch, OPENCL_MERGE_LSE, &lse->buffer, sizeof(float), lse_name,
                                     &launch->merge.lse_at, err);
    return status;
}

/* Enqueues the kernel with the list, and frees it. */
static int32_t enqueue(struct attn_backend_impl *backend, struct list *list, enum opencl_kernel kernel,
                       uint32_t num_tokens, int32_t status, void *stream, struct attn_error *err)
{
    struct opencl_launch *launch = &list->launch;
    const struct opencl_grid grid = {{(size_t)num_tokens * (size_t)launch->merge.heads, 1, 1}, OPENCL_ITEMS};

    launch->buffer_count = OPENCL_MERGE_PARTS + 1;
    launch->size = sizeof launch->merge;
    if (status == ATTN_OK)
        status = opencl_copy_of(backend, list->parts, (size_t)launch->merge.count * sizeof *list->parts,
                                "count", &launch->owned[0], err);
    launch->buffers[OPENCL_MERGE_PARTS] = launch->owned[0];
    if (status == ATTN_OK)
        status = opencl_launch_enqueue(backend, backend->kernels[kernel], launch, &grid, stream, err);
    opencl_launch_release(backend, launch);
    free(list->parts);
    return status;
}

static int32_t list_init(struct list *list, const struct opencl_merge *block, struct attn_error *err)
{
    const uint32_t count = (uint32_t)block->count;

    *list = (struct list){.parts = calloc(count, sizeof *list->parts)};
    list->launch.merge = *block;
    return list->parts != NULL ? ATTN_OK
                               : opencl_fail(err, ATTN_E_MEMORY, 0, "count", "no memory for %u parts", count);
}

static struct opencl_merge block_of(uint32_t count, uint32_t heads, uint32_t head_dim, uint32_t dtype,
                                    uint32_t lse_base)
{
    return (struct opencl_merge){.count = (opencl_i32)count,
                                 .heads = (opencl_i32)heads,
                                 .head_dim = (opencl_i32)head_dim,
                                 .dtype = (opencl_i32)dtype,
                                 .base2 = lse_base == ATTN_LSE_BASE2};
}

static int32_t merge(struct attn_backend_impl *backend, const struct attn_merge_args *args, void *stream,
                     struct attn_error *err)
{
    const struct opencl_merge block =
        block_of(args->count, args->heads, args->head_dim, args->dtype, args->lse_base);
    const uint32_t size = opencl_size(args->dtype);
    struct list list;
    int32_t status = list_init(&list, &block, err);

    for (uint32_t i = 0; i < args->count && status == ATTN_OK; i++)
        status = list_part(&list, i, &args->parts[i].out, &args->parts[i].lse, size, err);
    if (status == ATTN_OK)
        status = add_results(&list.launch, &args->out, &args->lse, size, "lse", err);
    return enqueue(backend, &list, OPENCL_KERNEL_merge, args->num_tokens, status, stream, err);
}

static int32_t rescale(struct attn_backend_impl *backend, const struct attn_rescale_args *args, void *stream,
                       struct attn_error *err)
{
    const struct opencl_merge block =
        block_of(args->count, args->heads, args->head_dim, args->dtype, args->lse_base);
    const uint32_t size = opencl_size(args->dtype);
    struct list list;
    int32_t status = list_init(&list, &block, err);

    for (uint32_t i = 0; i < args->count && status == ATTN_OK; i++)
        status = list_part(&list, i, NULL, &args->all[i], size, err);
    if (status == ATTN_OK)
        status = add_results(&list.launch, &args->out, &args->own, size, "own", err);
    return enqueue(backend, &list, OPENCL_KERNEL_rescale, args->num_tokens, status, stream, err);
}

const struct attn_merge_table opencl_merge_table = {
    .struct_size = sizeof opencl_merge_table, .merge = merge, .rescale = rescale};
