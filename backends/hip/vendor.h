/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the host code of all GPUs has to know of HIP at compile time. */
#ifndef ATTN_HIP_VENDOR_H
#define ATTN_HIP_VENDOR_H

/* The plugin; devices are rocm:0 and so on. */
#define GPU_VENDOR_NAME        "hip"
#define GPU_VENDOR_DEVICE      "rocm"
#define GPU_VENDOR_DEVICE_TYPE ATTN_DEVICE_ROCM
/* For messages: the runtime, the oldest one that is supported, and the option that names its file. */
#define GPU_VENDOR_DRIVER  "the HIP runtime"
#define GPU_VENDOR_NEEDED  "one of ROCm 5.2 or newer"
#define GPU_VENDOR_LIBRARY "ATTN_HIP_LIBRARY"
/* The functions that make a device the current one of the thread, and the previous one again. */
#define GPU_VENDOR_ENTER "hipSetDevice"
#define GPU_VENDOR_LEAVE "hipSetDevice"
/* Threads of a launch's first dimension at most. */
#define GPU_VENDOR_THREADS ((uint64_t)UINT32_MAX)
/* An architecture by number: gfx90a is 0x90a. */
#define GPU_VENDOR_ARCH "gfx%x"
/* Types of problems that some kernel serves. */
#define GPU_VENDOR_TYPES "decoder", "encoder_only"

#endif
