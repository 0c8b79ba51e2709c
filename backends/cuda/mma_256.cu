/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix kernels for up to 256 columns, keys and values of 16 bits. */
#define MMA_TAG   _256
#define MMA_DK    256
#define MMA_DV    256
#define MMA_EIGHT 0
#include "mma-all.h"
