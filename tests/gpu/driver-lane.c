/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plain attention kernels, for the driver of tests. */
#include "fiber-names.h"

#include "lane.h"

GPU_LANE_LIST(GPU_LANE_KERNEL)

#define CALL(name, dim, type) DRIVER_KERNEL(name, gpu_run)
GPU_LANE_LIST(CALL)

const struct driver_kernel driver_lane_kernels[] = {
#define LINE(name, dim, type) DRIVER_LINE(name, gpu_run),
    GPU_LANE_LIST(LINE){NULL, NULL, 0},
};
