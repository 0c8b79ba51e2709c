/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Merge and rescale of partial results, and one step of decoding in place. */
#include "host.h"

#include "kv-resolve.h"

static int32_t launch(struct attn_backend_impl *backend, enum gpu_kv_kernel kernel,
                      const struct gpu_merge *merge, void *stream, struct attn_error *err)
{
    int32_t status = gpu_enter(backend->context, err);

    if (status != ATTN_OK)
        return status;
    status = gpu_kv_launch(backend, kernel, (uint64_t)merge->rows * merge->heads, GPU_KV_THREADS / 32u, 1,
                           merge, stream, err);
    return gpu_leave(backend->context, status);
}

static int32_t merge_parts(struct attn_backend_impl *backend, const struct attn_merge_args *args,
                           void *stream, struct attn_error *err)
{
    struct gpu_merge merge;
    int32_t status = gpu_merge_resolve(&merge, args, err);

    return status == ATTN_OK ? launch(backend, GPU_KV_MERGE, &merge, stream, err) : status;
}

static int32_t rescale(struct attn_backend_impl *backend, const struct attn_rescale_args *args, void *stream,
                       struct attn_error *err)
{
    struct gpu_merge merge;
    int32_t status = gpu_rescale_resolve(&merge, args, err);

    return status == ATTN_OK ? launch(backend, GPU_KV_RESCALE, &merge, stream, err) : status;
}

const struct attn_merge_table gpu_merge_table = {
    .struct_size = sizeof gpu_merge_table, .merge = merge_parts, .rescale = rescale};

int32_t gpu_kv_advance_step(struct attn_backend_impl *backend, const struct attn_kv_advance_step_args *args,
                            void *stream, struct attn_error *err)
{
    struct gpu_step step;
    int32_t status = attn__advance_step_align(args, err);

    if (status == ATTN_OK)
        status = gpu_enter(backend->context, err);
    if (status != ATTN_OK)
        return status;
    gpu_step_resolve(&step, args);
    status = gpu_kv_launch(backend, GPU_KV_STEP_LENGTHS, 1, 1, 1, &step, stream, err);
    if (status == ATTN_OK)
        status = gpu_kv_launch(backend, GPU_KV_STEP_ROWS, gpu_step_work(&step), GPU_KV_THREADS, 1, &step,
                               stream, err);
    return gpu_leave(backend->context, status);
}
