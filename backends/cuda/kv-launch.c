/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finds and launches the kernels that work on caches. */
#include "cuda.h"

#include "../gpu/kv-resolve.h"

static const struct {
    enum cuda_module module;
    const char *name;
} kernels[] = {
    [CUDA_KV_WRITE] = {CUDA_MODULE_kv, "gpu_kv_write_rows"},
    [CUDA_KV_SLOTS] = {CUDA_MODULE_kv, "gpu_kv_map_slots"},
    [CUDA_KV_GATHER] = {CUDA_MODULE_kv, "gpu_kv_gather_rows"},
    [CUDA_KV_CONVERT] = {CUDA_MODULE_kv, "gpu_kv_convert_pages"},
    [CUDA_KV_MOVE] = {CUDA_MODULE_move, "gpu_kv_move_pairs"},
    [CUDA_KV_MERGE] = {CUDA_MODULE_merge, "gpu_merge_rows"},
    [CUDA_KV_RESCALE] = {CUDA_MODULE_merge, "gpu_rescale_rows"},
    [CUDA_KV_STEP_LENGTHS] = {CUDA_MODULE_step, "gpu_step_lengths"},
    [CUDA_KV_STEP_ROWS] = {CUDA_MODULE_step, "gpu_step_rows"},
};

int32_t cuda_kv_open(struct attn_backend_impl *backend, struct attn_error *err)
{
    int32_t status = cuda_enter(backend->context, err);

    if (status != ATTN_OK)
        return status;
    for (uint32_t i = 0; i < CUDA_KV_KERNELS && status == ATTN_OK; i++)
        status = cuda_module_function(backend->context, kernels[i].module, kernels[i].name, 0,
                                      &backend->kv.function[i], err);
    return cuda_leave(backend->context, status);
}

int32_t cuda_kv_launch(struct attn_backend_impl *backend, enum cuda_kv_kernel kernel, uint64_t work,
                       uint32_t each, uint32_t shares, const void *argument, void *stream,
                       struct attn_error *err)
{
    const uint64_t ctas = work / each + (work % each != 0);
    const uint32_t grid[3] = {ctas < GPU_KV_CTAS ? (uint32_t)ctas : GPU_KV_CTAS, shares, 1};

    if (ctas == 0 || shares == 0)
        return ATTN_OK;
    return cuda_launch(backend->context, backend->kv.function[kernel], grid, GPU_KV_THREADS, 0, argument,
                       kernels[kernel].name, stream, err);
}
