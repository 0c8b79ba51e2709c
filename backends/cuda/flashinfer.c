/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda/flashinfer: lists of pages, a cache of the shape [pages, 2, block, kv_heads, head_dim], and the choice
 * of kernels for decode. */
#include "flavour.h"
#include "flavours.h"
#include "host.h"

static int32_t query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *problem, struct attn_query *out)
{
    enum gpu_tensor_cores choice;
    const char *value;
    struct attn_reason why = {0};

    if (gpu_tensor_cores_read(instance, &choice, &value))
        return gpu_query(instance, device, problem, 1, choice, out);
    attn__caps_begin(out, 1);
    gpu_tensor_cores_refuse(&why, value, "auto, on or off");
    attn__caps_add(out, &why);
    out->accepted = 0;
    return ATTN_OK;
}

static int32_t open_backend(struct attn_instance *instance, const struct attn_device *device,
                            const struct attn_open_config *config, struct attn_backend_impl **out,
                            struct attn_error *err)
{
    enum gpu_tensor_cores choice;
    const char *value;

    *out = NULL;
    if (!gpu_tensor_cores_read(instance, &choice, &value))
        return attn__fail(err, ATTN_E_INVALID, ATTN_REASON_OPTION, GPU_TENSOR_CORES_OPTION,
                          GPU_TENSOR_CORES_OPTION "=\"%.40s\" is not accepted; auto, on and off are", value);
    int32_t status = gpu_backend_open(instance, device, config, out, err);
    if (status == ATTN_OK)
        (*out)->tensor_cores = choice;
    return status;
}

static const struct attn_kv_table kv = GPU_KV_TABLE(attn__kv_shape_flashinfer);
const struct attn_backend_table cuda_flashinfer =
    GPU_BACKEND_TABLE("cuda/flashinfer", &kv, query, open_backend);
