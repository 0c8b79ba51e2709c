/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plugin: its note, and the list of its flavours. */
#include "flavours.h"
#include "host.h"

ATTN_PLUGIN_NOTE(GPU_VENDOR_NAME, "libattn", GPU_PLUGIN_VERSION, "cuda/flash-attn,cuda/flashinfer",
                 ATTN_CLASS_ACCELERATOR, ATTN_CPU_BASELINE);

const struct attn_backend_table *const gpu_vendor_backends[] = {&cuda_flash_attn, &cuda_flashinfer};
const uint32_t gpu_vendor_backend_count = sizeof gpu_vendor_backends / sizeof gpu_vendor_backends[0];
