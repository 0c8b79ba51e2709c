/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels that plan, for all families, and that which looks at masks. */
#include "cascade-kernel.h"
#include "mask-ranges.h"
#include "plan-kernel.h"
