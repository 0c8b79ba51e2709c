/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels that plan, for all families. */
#include "../gpu/kernels/cascade-kernel.h"
#include "../gpu/kernels/plan-kernel.h"
