/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Moves tokens and pages between caches. */
#include "../gpu/kernels/kv-move.h"
