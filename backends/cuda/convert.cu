/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Converts 8-bit keys and values for prefill. */
#include "../gpu/kernels/convert-kernel.h"
