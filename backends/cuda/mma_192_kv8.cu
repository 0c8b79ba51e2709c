/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix kernels for up to 192 columns of keys and 128 of values, keys and values of 8 bits. */
#define MMA_TAG   _192_kv8
#define MMA_DK    192
#define MMA_DV    128
#define MMA_EIGHT 1
#include "mma-all.h"
