/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kernels for latent caches, 32 rows a CTA. */
#define LATENT_ROWS    32u
#define LATENT_SPECIAL 1
#include "latent-body.h"

GPU_KERNEL(latent_32_bf16, GPU_LATENT_THREADS, 1)(GPU_ARGUMENT(struct gpu_run, run))
{
    latent_kernel(&run, true);
}

GPU_KERNEL(latent_32_f16, GPU_LATENT_THREADS, 1)(GPU_ARGUMENT(struct gpu_run, run))
{
    latent_kernel(&run, false);
}
