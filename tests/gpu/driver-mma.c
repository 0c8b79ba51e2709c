/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The matrix kernels, for the driver of tests. */
#include <assert.h>
#include <math.h>

#include "fiber-names.h"

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

#define MMA_TAG   _192
#define MMA_DK    192
#define MMA_DV    128
#define MMA_EIGHT 0
#include "mma-all.h"

#define MMA_TAG   _192_kv8
#define MMA_DK    192
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

DRIVER_KERNEL(mma_64_r8_bf16, gpu_run)
DRIVER_KERNEL(mma_64_r8_f16, gpu_run)
DRIVER_KERNEL(mma_64_r16_bf16, gpu_run)
DRIVER_KERNEL(mma_64_r16_f16, gpu_run)
DRIVER_KERNEL(mma_64_r64_bf16, gpu_run)
DRIVER_KERNEL(mma_64_r64_f16, gpu_run)
DRIVER_KERNEL(mma_64_r128_bf16, gpu_run)
DRIVER_KERNEL(mma_64_r128_f16, gpu_run)
DRIVER_KERNEL(mma_64_kv8_r8_bf16, gpu_run)
DRIVER_KERNEL(mma_64_kv8_r8_f16, gpu_run)
DRIVER_KERNEL(mma_64_kv8_r16_bf16, gpu_run)
DRIVER_KERNEL(mma_64_kv8_r16_f16, gpu_run)
DRIVER_KERNEL(mma_64_kv8_r64_bf16, gpu_run)
DRIVER_KERNEL(mma_64_kv8_r64_f16, gpu_run)
DRIVER_KERNEL(mma_64_kv8_r128_bf16, gpu_run)
DRIVER_KERNEL(mma_64_kv8_r128_f16, gpu_run)
DRIVER_KERNEL(mma_128_r8_bf16, gpu_run)
DRIVER_KERNEL(mma_128_r8_f16, gpu_run)
DRIVER_KERNEL(mma_128_r16_bf16, gpu_run)
DRIVER_KERNEL(mma_128_r16_f16, gpu_run)
DRIVER_KERNEL(mma_128_r64_bf16, gpu_run)
DRIVER_KERNEL(mma_128_r64_f16, gpu_run)
DRIVER_KERNEL(mma_128_r128_bf16, gpu_run)
DRIVER_KERNEL(mma_128_r128_f16, gpu_run)
DRIVER_KERNEL(mma_128_kv8_r8_bf16, gpu_run)
DRIVER_KERNEL(mma_128_kv8_r8_f16, gpu_run)
DRIVER_KERNEL(mma_128_kv8_r16_bf16, gpu_run)
DRIVER_KERNEL(mma_128_kv8_r16_f16, gpu_run)
DRIVER_KERNEL(mma_128_kv8_r64_bf16, gpu_run)
DRIVER_KERNEL(mma_128_kv8_r64_f16, gpu_run)
DRIVER_KERNEL(mma_128_kv8_r128_bf16, gpu_run)
DRIVER_KERNEL(mma_128_kv8_r128_f16, gpu_run)
DRIVER_KERNEL(mma_192_r8_bf16, gpu_run)
DRIVER_KERNEL(mma_192_r8_f16, gpu_run)
DRIVER_KERNEL(mma_192_r16_bf16, gpu_run)
DRIVER_KERNEL(mma_192_r16_f16, gpu_run)
DRIVER_KERNEL(mma_192_r64_bf16, gpu_run)
DRIVER_KERNEL(mma_192_r64_f16, gpu_run)
DRIVER_KERNEL(mma_192_kv8_r8_bf16, gpu_run)
DRIVER_KERNEL(mma_192_kv8_r8_f16, gpu_run)
DRIVER_KERNEL(mma_192_kv8_r16_bf16, gpu_run)
DRIVER_KERNEL(mma_192_kv8_r16_f16, gpu_run)
DRIVER_KERNEL(mma_192_kv8_r64_bf16, gpu_run)
DRIVER_KERNEL(mma_192_kv8_r64_f16, gpu_run)
DRIVER_KERNEL(mma_256_r8_bf16, gpu_run)
DRIVER_KERNEL(mma_256_r8_f16, gpu_run)
DRIVER_KERNEL(mma_256_r16_bf16, gpu_run)
DRIVER_KERNEL(mma_256_r16_f16, gpu_run)
DRIVER_KERNEL(mma_256_r64_bf16, gpu_run)
DRIVER_KERNEL(mma_256_r64_f16, gpu_run)
DRIVER_KERNEL(mma_256_kv8_r8_bf16, gpu_run)
DRIVER_KERNEL(mma_256_kv8_r8_f16, gpu_run)
DRIVER_KERNEL(mma_256_kv8_r16_bf16, gpu_run)
DRIVER_KERNEL(mma_256_kv8_r16_f16, gpu_run)
DRIVER_KERNEL(mma_256_kv8_r64_bf16, gpu_run)
DRIVER_KERNEL(mma_256_kv8_r64_f16, gpu_run)

const struct driver_kernel driver_mma_kernels[] = {
    DRIVER_LINE(mma_64_r8_bf16, gpu_run),
    DRIVER_LINE(mma_64_r8_f16, gpu_run),
    DRIVER_LINE(mma_64_r16_bf16, gpu_run),
    DRIVER_LINE(mma_64_r16_f16, gpu_run),
    DRIVER_LINE(mma_64_r64_bf16, gpu_run),
    DRIVER_LINE(mma_64_r64_f16, gpu_run),
    DRIVER_LINE(mma_64_r128_bf16, gpu_run),
    DRIVER_LINE(mma_64_r128_f16, gpu_run),
    DRIVER_LINE(mma_64_kv8_r8_bf16, gpu_run),
    DRIVER_LINE(mma_64_kv8_r8_f16, gpu_run),
    DRIVER_LINE(mma_64_kv8_r16_bf16, gpu_run),
    DRIVER_LINE(mma_64_kv8_r16_f16, gpu_run),
    DRIVER_LINE(mma_64_kv8_r64_bf16, gpu_run),
    DRIVER_LINE(mma_64_kv8_r64_f16, gpu_run),
    DRIVER_LINE(mma_64_kv8_r128_bf16, gpu_run),
    DRIVER_LINE(mma_64_kv8_r128_f16, gpu_run),
    DRIVER_LINE(mma_128_r8_bf16, gpu_run),
    DRIVER_LINE(mma_128_r8_f16, gpu_run),
    DRIVER_LINE(mma_128_r16_bf16, gpu_run),
    DRIVER_LINE(mma_128_r16_f16, gpu_run),
    DRIVER_LINE(mma_128_r64_bf16, gpu_run),
    DRIVER_LINE(mma_128_r64_f16, gpu_run),
    DRIVER_LINE(mma_128_r128_bf16, gpu_run),
    DRIVER_LINE(mma_128_r128_f16, gpu_run),
    DRIVER_LINE(mma_128_kv8_r8_bf16, gpu_run),
    DRIVER_LINE(mma_128_kv8_r8_f16, gpu_run),
    DRIVER_LINE(mma_128_kv8_r16_bf16, gpu_run),
    DRIVER_LINE(mma_128_kv8_r16_f16, gpu_run),
    DRIVER_LINE(mma_128_kv8_r64_bf16, gpu_run),
    DRIVER_LINE(mma_128_kv8_r64_f16, gpu_run),
    DRIVER_LINE(mma_128_kv8_r128_bf16, gpu_run),
    DRIVER_LINE(mma_128_kv8_r128_f16, gpu_run),
    DRIVER_LINE(mma_192_r8_bf16, gpu_run),
    DRIVER_LINE(mma_192_r8_f16, gpu_run),
    DRIVER_LINE(mma_192_r16_bf16, gpu_run),
    DRIVER_LINE(mma_192_r16_f16, gpu_run),
    DRIVER_LINE(mma_192_r64_bf16, gpu_run),
    DRIVER_LINE(mma_192_r64_f16, gpu_run),
    DRIVER_LINE(mma_192_kv8_r8_bf16, gpu_run),
    DRIVER_LINE(mma_192_kv8_r8_f16, gpu_run),
    DRIVER_LINE(mma_192_kv8_r16_bf16, gpu_run),
    DRIVER_LINE(mma_192_kv8_r16_f16, gpu_run),
    DRIVER_LINE(mma_192_kv8_r64_bf16, gpu_run),
    DRIVER_LINE(mma_192_kv8_r64_f16, gpu_run),
    DRIVER_LINE(mma_256_r8_bf16, gpu_run),
    DRIVER_LINE(mma_256_r8_f16, gpu_run),
    DRIVER_LINE(mma_256_r16_bf16, gpu_run),
    DRIVER_LINE(mma_256_r16_f16, gpu_run),
    DRIVER_LINE(mma_256_r64_bf16, gpu_run),
    DRIVER_LINE(mma_256_r64_f16, gpu_run),
    DRIVER_LINE(mma_256_kv8_r8_bf16, gpu_run),
    DRIVER_LINE(mma_256_kv8_r8_f16, gpu_run),
    DRIVER_LINE(mma_256_kv8_r16_bf16, gpu_run),
    DRIVER_LINE(mma_256_kv8_r16_f16, gpu_run),
    DRIVER_LINE(mma_256_kv8_r64_bf16, gpu_run),
    DRIVER_LINE(mma_256_kv8_r64_f16, gpu_run),
    {NULL, NULL, 0},
};
