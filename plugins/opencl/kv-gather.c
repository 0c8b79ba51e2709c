/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Collects keys and values of sequences into contiguous rows: a write turned round, whose rows are those of a
 * batch. */
#include "opencl.h"

/* The scales of the rows. */
static int32_t add_scales(struct opencl_launch *launch, enum opencl_buffer which,
                          const struct attn_tensor *scales, const char *name, struct attn_error *err)
{
    launch->arguments.scales[which - OPENCL_BUFFER_q_scale] =
        (struct opencl_scale){.token = scales->token_stride, .head = scales->head_stride};
    return opencl_launch_add(launch, which, &scales->buffer, sizeof(float), name, err);
}

static int32_t resolve(struct attn_backend_impl *backend, struct opencl_launch *launch,
                       const struct attn_kv_gather_args *args, const struct attn_kv_desc *d,
                       struct attn_error *err)
{
    const struct opencl_place places[] = {
        {OPENCL_BUFFER_q_offsets, &args->offsets, 4, "offsets"},
        {OPENCL_BUFFER_positions, &args->starts, 4, "starts"},
        {OPENCL_BUFFER_k_new, &args->k.buffer, opencl_size(args->k_dtype), "k"},
        {OPENCL_BUFFER_v_new, &args->v.buffer, opencl_size(args->v_dtype), "v"},
    };
    struct opencl_arguments *a = &launch->arguments;

    a->heads = (opencl_i32)d->kv_heads;
    a->head_dim = (opencl_i32)d->head_dim;
    a->head_dim_vo = (opencl_i32)(d->head_dim_vo != 0 ? d->head_dim_vo : d->head_dim);
    a->block = (opencl_i32)d->block;
    a->k_new = opencl_rows_of(&args->k);
    a->v_new = opencl_rows_of(&args->v);
    a->k_from = (opencl_i32)d->k_dtype;
    a->v_from = (opencl_i32)d->v_dtype;
    a->k_to = (opencl_i32)args->k_dtype;
    a->v_to = (opencl_i32)args->v_dtype;
    /* The rows of sequences are those of `offsets`, whatever queries the batch has. */
    int32_t status = opencl_resolve_batch(launch, args->batch, args->addressing, args->index_dtype, err);
    if (status == ATTN_OK)
        status = opencl_resolve_places(launch, places, sizeof places / sizeof places[0], err);
    if (status == ATTN_OK)
        status = add_scales(launch, OPENCL_BUFFER_k_new_scale, &args->k_scales, "k_scales", err);
    if (status == ATTN_OK)
        status = add_scales(launch, OPENCL_BUFFER_v_new_scale, &args->v_scales, "v_scales", err);
    return status == ATTN_OK ? opencl_resolve_cache(backend, launch, d, err) : status;
}

int32_t opencl_kv_gather(struct attn_backend_impl *backend, const struct attn_kv_gather_args *args,
                         const struct attn_kv_ref *cache, void *stream, struct attn_error *err)
{
    const struct attn_kv_desc *d = attn_util_kv(cache->kv, cache->desc);
    struct opencl_launch launch = {.buffers = {NULL}};
    const struct opencl_grid grid = {{(size_t)args->tokens * d->kv_heads, 2, 1}, OPENCL_ITEMS};
    int32_t status = resolve(backend, &launch, args, d, err);

    if (status == ATTN_OK)
        status = opencl_launch_enqueue(backend, backend->kernels[OPENCL_KERNEL_gather], &launch, &grid,
                                       stream, err);
    opencl_launch_release(backend, &launch);
    return status;
}
