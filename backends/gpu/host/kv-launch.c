/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finds and launches the kernels that work on caches. */
#include "host.h"

#include "kv-resolve.h"

static const struct {
    enum gpu_module module;
    const char *name;
} kernels[] = {
    [GPU_KV_WRITE] = {GPU_MODULE_kv, "gpu_kv_write_rows"},
    [GPU_KV_SLOTS] = {GPU_MODULE_kv, "gpu_kv_map_slots"},
    [GPU_KV_GATHER] = {GPU_MODULE_kv, "gpu_kv_gather_rows"},
    [GPU_KV_CONVERT] = {GPU_MODULE_kv, "gpu_kv_convert_pages"},
    [GPU_KV_MOVE] = {GPU_MODULE_move, "gpu_kv_move_pairs"},
    [GPU_KV_MERGE] = {GPU_MODULE_merge, "gpu_merge_rows"},
    [GPU_KV_RESCALE] = {GPU_MODULE_merge, "gpu_rescale_rows"},
    [GPU_KV_STEP_LENGTHS] = {GPU_MODULE_step, "gpu_step_lengths"},
    [GPU_KV_STEP_ROWS] = {GPU_MODULE_step, "gpu_step_rows"},
};

int32_t gpu_kv_open(struct attn_backend_impl *backend, struct attn_error *err)
{
    int32_t status = gpu_enter(backend->context, err);

    if (status != ATTN_OK)
        return status;
    for (uint32_t i = 0; i < GPU_KV_KERNELS && status == ATTN_OK; i++)
        status = gpu_module_function(backend->context, kernels[i].module, kernels[i].name, 0,
                                     &backend->kv.function[i], err);
    return gpu_leave(backend->context, status);
}

int32_t gpu_kv_launch(struct attn_backend_impl *backend, enum gpu_kv_kernel kernel, uint64_t work,
                      uint32_t each, uint32_t shares, const void *argument, void *stream,
                      struct attn_error *err)
{
    const uint64_t ctas = work / each + (work % each != 0);
    const uint32_t grid[3] = {ctas < GPU_KV_CTAS ? (uint32_t)ctas : GPU_KV_CTAS, shares, 1};

    if (ctas == 0 || shares == 0)
        return ATTN_OK;
    return gpu_launch(backend->context, backend->kv.function[kernel], grid, GPU_KV_THREADS, 0, argument,
                      kernels[kernel].name, stream, err);
}
