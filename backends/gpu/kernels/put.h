/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The argument of the kernel that writes a few values of the host into device memory. */
#ifndef ATTN_GPU_PUT_H
#define ATTN_GPU_PUT_H

#include <stdint.h>

#define GPU_PUT_VALUES  960u
#define GPU_PUT_THREADS 256u

struct gpu_put {
    uint64_t to; /* f32 [count] in device memory */
    uint32_t count;
    uint32_t reserved;
    float values[GPU_PUT_VALUES];
};

#endif
