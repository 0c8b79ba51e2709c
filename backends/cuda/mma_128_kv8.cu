/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix kernels for up to 128 columns, keys and values of 8 bits. */
#define MMA_TAG   _128_kv8
#define MMA_DK    128
#define MMA_DV    128
#define MMA_EIGHT 1
#include "mma-all.h"
