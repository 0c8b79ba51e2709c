/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Advances a batch by one step of decoding. */
#include "../gpu/kernels/step.h"
