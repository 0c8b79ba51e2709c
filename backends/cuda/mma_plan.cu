/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel that plans for the matrix kernels. */
#include "mma-plan.h"
