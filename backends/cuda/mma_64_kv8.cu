/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix kernels for up to 64 columns, keys and values of 8 bits. */
#define MMA_TAG   _64_kv8
#define MMA_DK    64
#define MMA_DV    64
#define MMA_EIGHT 1
#include "mma-all.h"
