/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of backends/gpu/lane.h as host code. */
#include "lane.h"

#include "fiber-kernels.h"

GPU_LANE_LIST(GPU_LANE_KERNEL)

#define CALL(name, dim, type)                                                                                \
    static void call_##name(const void *run)                                                                 \
    {                                                                                                        \
        name(*(const struct gpu_run *)run);                                                                  \
    }
GPU_LANE_LIST(CALL)

static const struct {
    fiber_kernel_fn call;
    uint32_t dim, type;
} kernels[] = {
#define ROW(name, dim, type) {call_##name, dim, type},
    GPU_LANE_LIST(ROW)};

void fiber_run_lane(const struct gpu_run *run, uint32_t rows, uint32_t order)
{
    const struct fiber_grid grid = {
        .x = rows * run->problem.heads, .threads = GPU_LANE_THREADS, .order = order};
    uint32_t i = 0;

    while (!gpu_lane_fits(&run->problem, kernels[i].dim, kernels[i].type))
        i++;
    fiber_launch(kernels[i].call, run, &grid);
}
