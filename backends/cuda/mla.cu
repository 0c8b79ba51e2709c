/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The MLA kernels of one row of instances.def, which the build gives as INSTANCE. */
#include "mla/kernel.h"

#define INSTANTIATE(...) MLA_KERNELS(MLA_KERNEL, __VA_ARGS__)
INSTANTIATE(INSTANCE)
