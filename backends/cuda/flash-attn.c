/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda/flash-attn: block tables, and a cache of the shape [2, pages, block, kv_heads, head_dim]. */
#include "flavour.h"
#include "flavours.h"
#include "host.h"

static int32_t query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *problem, struct attn_query *out)
{
    return gpu_query(instance, device, problem, 0, GPU_TENSOR_CORES_AUTO, out);
}

static const struct attn_kv_table kv = GPU_KV_TABLE(attn__kv_shape_flash_attn);
const struct attn_backend_table cuda_flash_attn =
    GPU_BACKEND_TABLE("cuda/flash-attn", &kv, query, gpu_backend_open);
