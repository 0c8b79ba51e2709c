/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes into caches, gathers from them and converts them. */
#include "../gpu/kernels/kv-gather.h"
#include "../gpu/kernels/kv-write.h"
