/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Merges what the kernels for latent caches cut. */
#include "latent-merge.h"
