/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Division on the device by a number that the host knows (divisor.h). */
#ifndef ATTN_GPU_QUOTIENT_H
#define ATTN_GPU_QUOTIENT_H

#include "device.h"

#include "divisor.h"

/* floor(n / value) = floor((floor(n * multiply / 2^32) + n) / 2^shift), n below GPU_DIVIDE_BELOW: of rows
 * plans see to that (backends/gpu/host/caps.c). */
GPU_INLINE uint32_t gpu_quotient(uint32_t n, const struct gpu_divisor *by)
{
    return ((uint32_t)((uint64_t)n * by->multiply >> 32) + n) >> by->shift;
}

#endif
