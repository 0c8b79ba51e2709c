/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels for latent caches with 64 rows a CTA, for the driver of tests. */
#include <assert.h>
#include <math.h>

#include "fiber-names.h"

#include "../../backends/cuda/latent_64.cu"

DRIVER_KERNEL(latent_64_bf16, gpu_run)
DRIVER_KERNEL(latent_64_f16, gpu_run)

const struct driver_kernel driver_latent_64_kernels[] = {
    DRIVER_LINE(latent_64_bf16, gpu_run),
    DRIVER_LINE(latent_64_f16, gpu_run),
    {NULL, NULL, 0},
};
