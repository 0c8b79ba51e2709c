/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kernels for latent caches, 64 rows a CTA. */
#define LATENT_ROWS    64u
#define LATENT_SPECIAL 0
#include "latent-body.h"

GPU_KERNEL(latent_64_bf16, GPU_LATENT_THREADS, 1)(GPU_ARGUMENT(struct gpu_run, run))
{
    latent_kernel(&run, true);
}

GPU_KERNEL(latent_64_f16, GPU_LATENT_THREADS, 1)(GPU_ARGUMENT(struct gpu_run, run))
{
    latent_kernel(&run, false);
}
