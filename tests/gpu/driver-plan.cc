/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels that plan, that which converts keys and values, and that which combines the splits of MLA, for
 * the driver of tests. */
#include "fiber-names.h"

#include "cascade-kernel.h"
#include "convert-e4m3-kernel.h"
#include "mask-ranges.h"
#include "mla/combine.h"
#include "plan-kernel.h"

DRIVER_KERNEL(gpu_plan, gpu_plan)
DRIVER_KERNEL(gpu_cascade, gpu_cascade_job)
DRIVER_KERNEL(gpu_convert, gpu_convert)
DRIVER_KERNEL(gpu_convert_blocks, gpu_convert)
DRIVER_KERNEL(gpu_convert_e4m3_128, gpu_convert)
DRIVER_KERNEL(gpu_convert_e4m3_256, gpu_convert)
DRIVER_KERNEL(gpu_mask_ranges, gpu_run)
DRIVER_KERNEL(mla_combine, gpu_run)

const struct driver_kernel driver_plan_kernels[] = {
    DRIVER_LINE(gpu_plan, gpu_plan),
    DRIVER_LINE(gpu_cascade, gpu_cascade_job),
    DRIVER_LINE(gpu_convert, gpu_convert),
    DRIVER_LINE(gpu_convert_blocks, gpu_convert),
    DRIVER_LINE(gpu_convert_e4m3_128, gpu_convert),
    DRIVER_LINE(gpu_convert_e4m3_256, gpu_convert),
    DRIVER_LINE(gpu_mask_ranges, gpu_run),
    DRIVER_LINE(mla_combine, gpu_run),
    {NULL, NULL, 0, 0},
};
