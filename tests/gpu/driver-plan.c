/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel that plans, for the driver of tests. */
#include "fiber-names.h"
#include "plan-kernel.h"

DRIVER_KERNEL(gpu_plan, gpu_plan)

const struct driver_kernel driver_plan_kernels[] = {
    DRIVER_LINE(gpu_plan, gpu_plan),
    {NULL, NULL, 0},
};
