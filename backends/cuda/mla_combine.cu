/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Combines the splits of the MLA kernels. */
#include "mla/combine.h"
