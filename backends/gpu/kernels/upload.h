/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The argument of the kernel gpu_put, which uploads a few values into device memory. */
#ifndef ATTN_GPU_UPLOAD_H
#define ATTN_GPU_UPLOAD_H

#include <stdint.h>

#define GPU_UPLOAD_VALUES  960u
#define GPU_UPLOAD_THREADS 256u

struct gpu_upload {
    uint64_t to; /* f32 [count] in device memory */
    uint32_t count;
    uint32_t reserved;
    float values[GPU_UPLOAD_VALUES];
};

#endif
