/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Converts 8-bit keys and values for prefill, or puts them in the order of products of e4m3. */
#include "../gpu/kernels/convert-e4m3-kernel.h"
