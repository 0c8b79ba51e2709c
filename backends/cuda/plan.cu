/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels that plan, for all families. */
#include "cascade-kernel.h"
#include "plan-kernel.h"
