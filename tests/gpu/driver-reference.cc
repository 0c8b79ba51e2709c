/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The reference kernels, for the driver of tests. */
#include "fiber-names.h"

#include "reference/kernel.h"

REFERENCE_INSTANCES(REFERENCE_KERNEL)

#define CALL(name, dim, type) DRIVER_KERNEL(name, gpu_run)
REFERENCE_INSTANCES(CALL)

const struct driver_kernel driver_reference_kernels[] = {
#define LINE(name, dim, type) DRIVER_LINE(name, gpu_run),
    REFERENCE_INSTANCES(LINE){NULL, NULL, 0, 0},
};
