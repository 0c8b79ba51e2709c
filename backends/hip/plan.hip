/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel that plans, for all families. */
#include "../gpu/kernels/plan-kernel.h"
