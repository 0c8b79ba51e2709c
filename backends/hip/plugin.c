/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plugin: note, and the table of its flavour. */
#include <stdio.h>

#include "host.h"

ATTN_PLUGIN_NOTE(GPU_VENDOR_NAME, "libattn", GPU_PLUGIN_VERSION, "hip/rocm-flash", ATTN_CLASS_ACCELERATOR,
                 ATTN_CPU_BASELINE);

/* libattn refuses these for every backend of HIP in the same words; the plugin says so by itself too. */
static void refuse_encoders(const struct attn_problem *problem, struct attn_query *out)
{
    if (problem->type != ATTN_ENCODER && problem->type != ATTN_ENCODER_DECODER)
        return;
    if (out->reason_count < out->reason_capacity) {
        struct attn_reason *reason = &out->reasons[out->reason_count];
        memset(reason, 0, sizeof *reason);
        reason->code = ATTN_REASON_ENC_DEC_ROCM_HIP;
        snprintf(reason->field, sizeof reason->field, "type");
        snprintf(reason->wanted, sizeof reason->wanted, "decoder or encoder_only");
        snprintf(reason->text, sizeof reason->text,
                 "ROCm/HIP is not currently supported with encoder/decoder models.");
    }
    out->reason_count++;
    out->kernel_count = 0;
    out->accepted = 0;
}

static int32_t query_rocm_flash(struct attn_instance *instance, const struct attn_device *device,
                                const struct attn_problem *problem, struct attn_query *out)
{
    const int32_t status = gpu_query(instance, device, problem, 0, out);

    if (status == ATTN_OK)
        refuse_encoders(problem, out);
    return status;
}

static const struct attn_kv_table kv_rocm_flash = GPU_KV_TABLE(attn__kv_shape_rocm_flash);
static const struct attn_backend_table rocm_flash =
    GPU_BACKEND_TABLE("hip/rocm-flash", &kv_rocm_flash, query_rocm_flash);
const struct attn_backend_table *const gpu_vendor_backends[] = {&rocm_flash};
const uint32_t gpu_vendor_backend_count = sizeof gpu_vendor_backends / sizeof gpu_vendor_backends[0];
