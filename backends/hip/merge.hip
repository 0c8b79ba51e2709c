/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Merges and rescales partial results. */
#include "../gpu/kernels/merge.h"
