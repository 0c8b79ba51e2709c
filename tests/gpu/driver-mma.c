/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The matrix kernels of one size, for the driver of tests: DRIVER_TAG, and DRIVER_DK, _DV and _EIGHT as
 * mma-all.h wants them. */
#include <assert.h>
#include <math.h>

#include "fiber-names.h"

#define MMA_TAG   DRIVER_TAG
#define MMA_DK    DRIVER_DK
#define MMA_DV    DRIVER_DV
#define MMA_EIGHT DRIVER_EIGHT
#include "mma-all.h"

#define NAMED(first, tag, rest)  NAMED_(first, tag, rest)
#define NAMED_(first, tag, rest) first##tag##rest
#define DECLARE(name)            DRIVER_KERNEL(name, gpu_run)
#define LINE(name)               DRIVER_LINE(name, gpu_run)
#define KERNEL(what, rest)       what(NAMED(mma, DRIVER_TAG, rest))

KERNEL(DECLARE, _r8_bf16)
KERNEL(DECLARE, _r8_f16)
KERNEL(DECLARE, _r16_bf16)
KERNEL(DECLARE, _r16_f16)
KERNEL(DECLARE, _r64_bf16)
KERNEL(DECLARE, _r64_f16)
#if DRIVER_DK <= 128
KERNEL(DECLARE, _r128_bf16)
KERNEL(DECLARE, _r128_f16)
#endif

const struct driver_kernel NAMED(driver_mma, DRIVER_TAG, _kernels)[] = {
    KERNEL(LINE, _r8_bf16),   KERNEL(LINE, _r8_f16),   KERNEL(LINE, _r16_bf16),
    KERNEL(LINE, _r16_f16),   KERNEL(LINE, _r64_bf16), KERNEL(LINE, _r64_f16),
#if DRIVER_DK <= 128
    KERNEL(LINE, _r128_bf16), KERNEL(LINE, _r128_f16),
#endif
    {NULL, NULL, 0},
};
