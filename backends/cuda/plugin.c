/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plugin: note, and the tables of both flavours. */
#include "flashinfer.h"
#include "flavour.h"
#include "host.h"

ATTN_PLUGIN_NOTE(GPU_VENDOR_NAME, "libattn", GPU_PLUGIN_VERSION, "cuda/flash-attn,cuda/flashinfer",
                 ATTN_CLASS_ACCELERATOR, ATTN_CPU_BASELINE);

static int32_t query_flash_attn(struct attn_instance *instance, const struct attn_device *device,
                                const struct attn_problem *problem, struct attn_query *out)
{
    return gpu_query(instance, device, problem, 0, GPU_TENSOR_CORES_AUTO, out);
}

static const struct attn_kv_table kv_flash_attn = GPU_KV_TABLE(attn__kv_shape_flash_attn);
static const struct attn_backend_table flash_attn =
    GPU_BACKEND_TABLE("cuda/flash-attn", &kv_flash_attn, query_flash_attn, gpu_backend_open);
const struct attn_backend_table *const gpu_vendor_backends[] = {&flash_attn, &cuda_flashinfer};
const uint32_t gpu_vendor_backend_count = sizeof gpu_vendor_backends / sizeof gpu_vendor_backends[0];
