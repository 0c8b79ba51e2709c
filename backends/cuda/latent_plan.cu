/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels that plan for the kernels for latent caches, and that merge what they cut. */
#include "latent-plan.h"

#include "latent-merge.h"
