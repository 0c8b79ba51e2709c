/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kernels for latent caches, 16 rows a CTA. */
#define LATENT_ROWS    16u
#define LATENT_SPECIAL 1
#include "latent-body.h"

GPU_KERNEL(latent_16_bf16, GPU_LATENT_THREADS, 1)(GPU_ARGUMENT(struct gpu_run, run))
{
    latent_kernel(&run, true);
}

GPU_KERNEL(latent_16_f16, GPU_LATENT_THREADS, 1)(GPU_ARGUMENT(struct gpu_run, run))
{
    latent_kernel(&run, false);
}
