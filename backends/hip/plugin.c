/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plugin: note, and the table of its flavour. */
#include <stdio.h>

#include "flavour.h"
#include "host.h"

ATTN_PLUGIN_NOTE(GPU_VENDOR_NAME, "libattn", GPU_PLUGIN_VERSION, "hip/rocm-flash", ATTN_CLASS_ACCELERATOR,
                 ATTN_CPU_BASELINE);

/* All there is to say of encoders and cross-attention, whatever the device and the rest of the problem. */
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

static int32_t query_rocm_flash(struct attn_instance *instance, const struct attn_device *device,
                                const struct attn_problem *problem, struct attn_query *out)
{
    if (problem->type != ATTN_ENCODER && problem->type != ATTN_ENCODER_DECODER)
        return gpu_query(instance, device, problem, 0, GPU_TENSOR_CORES_AUTO, out);
    refuse_encoders(out);
    return ATTN_OK;
}

static const struct attn_kv_table kv_rocm_flash = GPU_KV_TABLE(attn__kv_shape_rocm_flash);
static const struct attn_backend_table rocm_flash =
    GPU_BACKEND_TABLE("hip/rocm-flash", &kv_rocm_flash, query_rocm_flash, gpu_backend_open);
const struct attn_backend_table *const gpu_vendor_backends[] = {&rocm_flash};
const uint32_t gpu_vendor_backend_count = sizeof gpu_vendor_backends / sizeof gpu_vendor_backends[0];
