/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix kernels for up to 192 columns of keys and 128 of values, keys and values of 16 bits. */
#define MMA_TAG   _192
#define MMA_DK    192
#define MMA_DV    128
#define MMA_EIGHT 0
#include "mma-all.h"
