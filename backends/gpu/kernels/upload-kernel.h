/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Uploads values in the argument of a launch: they are read when the call is made, and a graph keeps them. */
#ifndef ATTN_GPU_UPLOAD_KERNEL_H
#define ATTN_GPU_UPLOAD_KERNEL_H

#include "device.h"

#include "address.h"
#include "upload.h"

GPU_KERNEL(gpu_put, GPU_UPLOAD_THREADS, 1)(GPU_ARGUMENT(struct gpu_upload, upload))
{
    float *to = GPU_GLOBAL(float, upload.to);

    for (uint32_t i = gpu_thread(); i < upload.count; i += gpu_threads())
        to[i] = upload.values[i];
}

#endif
