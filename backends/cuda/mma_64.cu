/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix kernels for up to 64 columns, keys and values of 16 bits. */
#define MMA_TAG   _64
#define MMA_DK    64
#define MMA_DV    64
#define MMA_EIGHT 0
#include "mma-all.h"
