/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The matrix kernels for AMD of one size, for the driver of tests: TILE_NAME, and what tile-body.h wants.
 * Made twice, for waves of TILE_LANES 32 and 64; the launch says by its threads which it means.
 */
#include <assert.h>
#include <math.h>

#include "fiber-names.h"

#include "../../backends/hip/tile-body.h"

#define NAMED(name, rest)  NAMED_(name, rest)
#define NAMED_(name, rest) name##rest
#define KERNELS(name)      TILE_KERNELS(name)

KERNELS(TILE_NAME)

#if TILE_LANES == 64
#define DECLARE(kernel)                                                                                      \
    void NAMED(kernel, _of_64)(struct gpu_run run);                                                          \
    void NAMED(kernel, _of_64)(struct gpu_run run)                                                           \
    {                                                                                                        \
        kernel(run);                                                                                         \
    }
#else
#define DECLARE(kernel)                                                                                      \
    void NAMED(kernel, _of_64)(struct gpu_run run);                                                          \
    static void NAMED(call_, kernel)(const void *argument)                                                   \
    {                                                                                                        \
        const struct gpu_run *run = argument;                                                                \
        if (gpu_threads() == TILE_THREADS)                                                                   \
            kernel(*run);                                                                                    \
        else                                                                                                 \
            NAMED(kernel, _of_64)(*run);                                                                     \
    }
#endif
#define LINE(name) DRIVER_LINE(name, gpu_run)

DECLARE(NAMED(TILE_NAME, _r16_bf16))
DECLARE(NAMED(TILE_NAME, _r16_f16))
DECLARE(NAMED(TILE_NAME, _r64_bf16))
DECLARE(NAMED(TILE_NAME, _r64_f16))

#if TILE_LANES == 32
const struct driver_kernel NAMED(driver_, NAMED(TILE_NAME, _kernels))[] = {
    LINE(NAMED(TILE_NAME, _r16_bf16)),
    LINE(NAMED(TILE_NAME, _r16_f16)),
    LINE(NAMED(TILE_NAME, _r64_bf16)),
    LINE(NAMED(TILE_NAME, _r64_f16)),
    {NULL, NULL, 0},
};
#endif
