/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Division by a number that the host knows: a product, a sum and a shift on the device (quotient.h). */
#ifndef ATTN_GPU_DIVISOR_H
#define ATTN_GPU_DIVISOR_H

#include <stdint.h>

/* What is divided has to be below this. */
#define GPU_DIVIDE_BELOW 0x80000000u

struct gpu_divisor {
    uint32_t value; /* 1 ... 2^31 - 1 */
    uint32_t multiply;
    uint32_t shift;
};

static inline struct gpu_divisor gpu_divisor_of(uint32_t value)
{
    struct gpu_divisor out;

    out.value = value;
    out.shift = 0;
    while (((uint64_t)1 << out.shift) < value)
        out.shift++;
    out.multiply = (uint32_t)((((((uint64_t)1 << out.shift) - value) << 32) / value) + 1);
    return out;
}

#endif
