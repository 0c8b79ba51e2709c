/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The reference kernels. */
#include "reference/kernel.h"

REFERENCE_INSTANCES(REFERENCE_KERNEL)
