/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The matrix kernels, for the driver of tests. */
#include <assert.h>
#include <math.h>

#include "fiber-names.h"
#include "mma-plan.h"

#define MMA_TAG   _64
#define MMA_DK    64
#define MMA_DV    64
#define MMA_EIGHT 0
#include "mma-all.h"

#define MMA_TAG   _64_kv8
#define MMA_DK    64
#define MMA_DV    64
#define MMA_EIGHT 1
#include "mma-all.h"

#define MMA_TAG   _128
#define MMA_DK    128
#define MMA_DV    128
#define MMA_EIGHT 0
#include "mma-all.h"

#define MMA_TAG   _128_kv8
#define MMA_DK    128
#define MMA_DV    128
#define MMA_EIGHT 1
#include "mma-all.h"

#define MMA_TAG   _256
#define MMA_DK    256
#define MMA_DV    256
#define MMA_EIGHT 0
#include "mma-all.h"

#define MMA_TAG   _256_kv8
#define MMA_DK    256
#define MMA_DV    256
#define MMA_EIGHT 1
#include "mma-all.h"

DRIVER_KERNEL(mma_plan, gpu_run)
DRIVER_KERNEL(mma_64_r1_bf16, gpu_run)
DRIVER_KERNEL(mma_64_r4_bf16, gpu_run)
DRIVER_KERNEL(mma_64_r1_f16, gpu_run)
DRIVER_KERNEL(mma_64_r4_f16, gpu_run)
DRIVER_KERNEL(mma_64_kv8_r1_bf16, gpu_run)
DRIVER_KERNEL(mma_64_kv8_r4_bf16, gpu_run)
DRIVER_KERNEL(mma_64_kv8_r1_f16, gpu_run)
DRIVER_KERNEL(mma_64_kv8_r4_f16, gpu_run)
DRIVER_KERNEL(mma_128_r1_bf16, gpu_run)
DRIVER_KERNEL(mma_128_r4_bf16, gpu_run)
DRIVER_KERNEL(mma_128_r1_f16, gpu_run)
DRIVER_KERNEL(mma_128_r4_f16, gpu_run)
DRIVER_KERNEL(mma_128_kv8_r1_bf16, gpu_run)
DRIVER_KERNEL(mma_128_kv8_r4_bf16, gpu_run)
DRIVER_KERNEL(mma_128_kv8_r1_f16, gpu_run)
DRIVER_KERNEL(mma_128_kv8_r4_f16, gpu_run)
DRIVER_KERNEL(mma_256_r1_bf16, gpu_run)
DRIVER_KERNEL(mma_256_r4_bf16, gpu_run)
DRIVER_KERNEL(mma_256_r1_f16, gpu_run)
DRIVER_KERNEL(mma_256_r4_f16, gpu_run)
DRIVER_KERNEL(mma_256_kv8_r1_bf16, gpu_run)
DRIVER_KERNEL(mma_256_kv8_r4_bf16, gpu_run)
DRIVER_KERNEL(mma_256_kv8_r1_f16, gpu_run)
DRIVER_KERNEL(mma_256_kv8_r4_f16, gpu_run)

const struct driver_kernel driver_mma_kernels[] = {
    DRIVER_LINE(mma_plan, gpu_run),
    DRIVER_LINE(mma_64_r1_bf16, gpu_run),
    DRIVER_LINE(mma_64_r4_bf16, gpu_run),
    DRIVER_LINE(mma_64_r1_f16, gpu_run),
    DRIVER_LINE(mma_64_r4_f16, gpu_run),
    DRIVER_LINE(mma_64_kv8_r1_bf16, gpu_run),
    DRIVER_LINE(mma_64_kv8_r4_bf16, gpu_run),
    DRIVER_LINE(mma_64_kv8_r1_f16, gpu_run),
    DRIVER_LINE(mma_64_kv8_r4_f16, gpu_run),
    DRIVER_LINE(mma_128_r1_bf16, gpu_run),
    DRIVER_LINE(mma_128_r4_bf16, gpu_run),
    DRIVER_LINE(mma_128_r1_f16, gpu_run),
    DRIVER_LINE(mma_128_r4_f16, gpu_run),
    DRIVER_LINE(mma_128_kv8_r1_bf16, gpu_run),
    DRIVER_LINE(mma_128_kv8_r4_bf16, gpu_run),
    DRIVER_LINE(mma_128_kv8_r1_f16, gpu_run),
    DRIVER_LINE(mma_128_kv8_r4_f16, gpu_run),
    DRIVER_LINE(mma_256_r1_bf16, gpu_run),
    DRIVER_LINE(mma_256_r4_bf16, gpu_run),
    DRIVER_LINE(mma_256_r1_f16, gpu_run),
    DRIVER_LINE(mma_256_r4_f16, gpu_run),
    DRIVER_LINE(mma_256_kv8_r1_bf16, gpu_run),
    DRIVER_LINE(mma_256_kv8_r4_bf16, gpu_run),
    DRIVER_LINE(mma_256_kv8_r1_f16, gpu_run),
    DRIVER_LINE(mma_256_kv8_r4_f16, gpu_run),
    {NULL, NULL, 0},
};
