/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Values of the host that travel as the argument of a launch: read when the call is made, and kept by a
 * graph. */
#ifndef ATTN_GPU_PUT_KERNEL_H
#define ATTN_GPU_PUT_KERNEL_H

#include "port.h"

#include "address.h"
#include "put.h"

GPU_KERNEL(gpu_put, GPU_PUT_THREADS, 1)(GPU_ARGUMENT(struct gpu_put, put))
{
    float *to = GPU_GLOBAL(float, put.to);

    for (uint32_t i = gpu_thread(); i < put.count; i += gpu_threads())
        to[i] = put.values[i];
}

#endif
