/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* All kernels that the driver of tests knows. */
#include <string.h>

#include "fiber-names.h"

const struct driver_kernel *driver_find(const char *name)
{
    static const struct driver_kernel *const tables[] = {
#define MMA(name, dk, dv, kv_size, rows) driver_##name##_kernels,
#define MLA(name, rows)                  driver_##name##_kernels,
#include "../../backends/cuda/instances.def"
        driver_kv_kernels,           driver_plan_kernels,        driver_reference_kernels,
        driver_tile_64_kernels,      driver_tile_64_kv8_kernels, driver_tile_128_kernels,
        driver_tile_128_kv8_kernels, driver_tile_192_kernels,    driver_tile_192_kv8_kernels,
        driver_tile_256_kernels,     driver_tile_256_kv8_kernels};

    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (const struct driver_kernel *kernel = tables[t]; kernel->name != NULL; kernel++)
            if (strcmp(kernel->name, name) == 0)
                return kernel;
    return NULL;
}
