/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix kernels for up to 256 columns, keys and values of 8 bits. */
#define MMA_TAG   _256_kv8
#define MMA_DK    256
#define MMA_DV    256
#define MMA_EIGHT 1
#include "mma-all.h"
