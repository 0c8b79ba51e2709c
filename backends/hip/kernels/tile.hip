/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The matrix kernels of one row of instances.def, which the build gives as INSTANCE. */
#include "attend.h"

#define TILE_KERNEL(name, rows, bf16, dk, dv, kv_size)                                                       \
    using name##_config = tile_config<tile_target, dk, dv, kv_size == 1, rows, bf16>;                        \
    GPU_KERNEL(name, name##_config::threads, name##_config::occupancy)(GPU_ARGUMENT(struct gpu_run, run))    \
    {                                                                                                        \
        tile_run<name##_config>((const struct gpu_run *)gpu_argument(&run));                                 \
    }
#define INSTANTIATE(...) TILE_KERNELS(TILE_KERNEL, __VA_ARGS__)
INSTANTIATE(INSTANCE)
