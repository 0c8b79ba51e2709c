/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* All kernels that the driver of tests knows; with DRIVER_FEW those that tests of host code launch. */
#include "fiber-names.h"

const struct driver_kernel *driver_find(const char *name)
{
    static const struct driver_kernel *const tables[] = {
#ifdef DRIVER_FEW /* fiber_few_names of meson.build */
        driver_mma_64_kv32_kernels, driver_tile_64_kernels,
#else
#define MMA(name, dk, dv, kv_size, rows) driver_##name##_kernels,
#define MLA(name, rows, kv_size)         driver_##name##_kernels,
#include "../../backends/cuda/instances.def"
#define TILE(name, dk, dv, kv_size) driver_##name##_kernels,
#include "../../backends/hip/instances.def"
#endif
        driver_kv_kernels, driver_plan_kernels, driver_reference_kernels};
    const struct driver_kernel *kernel = NULL;

    for (size_t t = 0; kernel == NULL && t < sizeof tables / sizeof tables[0]; t++)
        kernel = driver_named(tables[t], name);
    return kernel;
}
