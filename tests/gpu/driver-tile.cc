/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The matrix kernels for AMD of one row of instances.def, INSTANCE, for the driver of tests. */
#include "fiber-names.h"

#include "../../backends/hip/kernels/attend.h"

/* A launch says by its threads whether waves have 32 lanes or 64; where both would have as many it is 32. */
template <uint32_t rows, bool bf16, uint32_t dk, uint32_t dv, bool kv8> static void call(const void *argument)
{
    using wave32 = tile_config<tile_arch_dot<32, true>, dk, dv, kv8, rows, bf16>;
    using wave64 = tile_config<tile_arch_dot<64, true>, dk, dv, kv8, rows, bf16>;
    const struct gpu_run *run = (const struct gpu_run *)argument;

    if (gpu_threads() == wave32::threads)
        tile_run<wave32>(run);
    else
        tile_run<wave64>(run);
}

#define LINE(name, rows, bf16, dk, dv, kv_size)                                                              \
    {#name, call<rows, bf16, dk, dv, kv_size == 1>, sizeof(struct gpu_run), 0},
#define LINES(...)          TILE_KERNELS(LINE, __VA_ARGS__)
#define TABLE(...)          TABLE_OF(__VA_ARGS__)
#define TABLE_OF(name, ...) driver_##name##_kernels

const struct driver_kernel TABLE(INSTANCE)[] = {LINES(INSTANCE){NULL, NULL, 0, 0}};
