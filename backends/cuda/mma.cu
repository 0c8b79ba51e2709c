/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The mma kernels of one row of instances.def, which the build gives as INSTANCE. */
#include "mma/kernel.h"

#define INSTANTIATE(...) MMA_KERNELS(MMA_KERNEL, __VA_ARGS__)
INSTANTIATE(INSTANCE)
