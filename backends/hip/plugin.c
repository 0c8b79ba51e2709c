/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plugin: its note, and its flavour. */
#include "host.h"
#include "rocm-flash.h"

ATTN_PLUGIN_NOTE(GPU_VENDOR_NAME, "libattn", GPU_PLUGIN_VERSION, "hip/rocm-flash", ATTN_CLASS_ACCELERATOR,
                 ATTN_CPU_BASELINE);

const struct attn_backend_table *const gpu_vendor_backends[] = {&hip_rocm_flash};
const uint32_t gpu_vendor_backend_count = sizeof gpu_vendor_backends / sizeof gpu_vendor_backends[0];
