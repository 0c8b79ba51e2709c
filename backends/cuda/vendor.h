/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the host code of all GPUs has to know of CUDA at compile time. */
#ifndef ATTN_CUDA_VENDOR_H
#define ATTN_CUDA_VENDOR_H

/* The plugin; devices are cuda:0 and so on. */
#define GPU_VENDOR_NAME        "cuda"
#define GPU_VENDOR_DEVICE      "cuda"
#define GPU_VENDOR_DEVICE_TYPE ATTN_DEVICE_CUDA
/* The driver in error messages, the oldest that serves, and the option that names its file. */
#define GPU_VENDOR_DRIVER  "the CUDA driver"
#define GPU_VENDOR_LEAST   "a driver for CUDA 12.0 or newer"
#define GPU_VENDOR_LIBRARY "ATTN_CUDA_LIBRARY"
/* What makes a context current, and the last one again. */
#define GPU_VENDOR_ENTER "cuCtxPushCurrent"
#define GPU_VENDOR_LEAVE "cuCtxPopCurrent"
/* Threads of a launch's first dimension at most. */
#define GPU_VENDOR_THREADS ((uint64_t)INT32_MAX * 1024)
/* An architecture by number. */
#define GPU_VENDOR_ARCH "sm_%u"

/* Types of problems that some kernel serves. */
#define GPU_VENDOR_TYPES "decoder", "encoder", "encoder_only", "encoder_decoder"

/* 10 * major + minor of the oldest devices that are served. */
#define CUDA_ARCH_LEAST 80

#endif
