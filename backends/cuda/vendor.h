/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the host code of all GPUs has to know of CUDA at compile time. */
#ifndef ATTN_CUDA_VENDOR_H
#define ATTN_CUDA_VENDOR_H

/* The plugin; devices are cuda:0 and so on. */
#define GPU_VENDOR_NAME        "cuda"
#define GPU_VENDOR_DEVICE      "cuda"
#define GPU_VENDOR_DEVICE_TYPE ATTN_DEVICE_CUDA
/* For messages: the driver, the oldest one that is supported, and the option that names its file. */
#define GPU_VENDOR_DRIVER  "the CUDA driver"
#define GPU_VENDOR_NEEDED  "a driver for CUDA 12.0 or newer"
#define GPU_VENDOR_LIBRARY "ATTN_CUDA_LIBRARY"
/* The functions that make a context current, and the previous one again. */
#define GPU_VENDOR_ENTER "cuCtxPushCurrent"
#define GPU_VENDOR_LEAVE "cuCtxPopCurrent"
/* Largest number of threads in the first dimension of a launch. */
#define GPU_VENDOR_THREADS ((uint64_t)INT32_MAX * 1024)
/* An architecture by number. */
#define GPU_VENDOR_ARCH "sm_%u"

/* Types of problems that some kernel serves. */
#define GPU_VENDOR_TYPES "decoder", "encoder", "encoder_only", "encoder_decoder"

/* 10 * major + minor of the oldest devices that are served. */
#define CUDA_ARCH_MIN 80

#endif
