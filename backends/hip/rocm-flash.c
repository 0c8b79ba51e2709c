/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* hip/rocm-flash: a cache of the shape [2, pages, block * kv_heads * head_dim], and the refusal of encoders.
 */
#include "rocm-flash.h"

#include <stdio.h>

#include "flavour.h"
#include "host.h"

/* The only reason that encoders and cross-attention get, whatever the device and the rest of the problem. */
static void refuse_encoders(struct attn_query *out)
{
    attn__caps_begin(out, 0);
    out->accepted = 0;
    out->reason_count = 1;
    if (out->reason_capacity == 0)
        return;
    struct attn_reason *reason = &out->reasons[0];
    memset(reason, 0, sizeof *reason);
    reason->code = ATTN_REASON_ENC_DEC_ROCM_HIP;
    snprintf(reason->field, sizeof reason->field, "type");
    snprintf(reason->wanted, sizeof reason->wanted, "decoder or encoder_only");
    snprintf(reason->text, sizeof reason->text,
             "ROCm/HIP is not currently supported with encoder/decoder models.");
}

static int32_t query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *problem, struct attn_query *out)
{
    if (problem->type != ATTN_ENCODER && problem->type != ATTN_ENCODER_DECODER)
        return gpu_query(instance, device, problem, 0, GPU_TENSOR_CORES_AUTO, out);
    refuse_encoders(out);
    return ATTN_OK;
}

static const struct attn_kv_table kv = GPU_KV_TABLE(attn__kv_shape_rocm_flash);
const struct attn_backend_table hip_rocm_flash =
    GPU_BACKEND_TABLE("hip/rocm-flash", &kv, query, gpu_backend_open);
