/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels for latent caches with 16 rows a CTA, and that which merges, for the driver of tests. */
#include <assert.h>
#include <math.h>

#include "fiber-names.h"

#include "../../backends/cuda/latent_16.cu"
#include "../../backends/cuda/latent_merge.cu"

DRIVER_KERNEL(latent_merge, gpu_run)
DRIVER_KERNEL(latent_16_bf16, gpu_run)
DRIVER_KERNEL(latent_16_f16, gpu_run)

const struct driver_kernel driver_latent_16_kernels[] = {
    DRIVER_LINE(latent_merge, gpu_run),
    DRIVER_LINE(latent_16_bf16, gpu_run),
    DRIVER_LINE(latent_16_f16, gpu_run),
    {NULL, NULL, 0},
};
