/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes into caches, gathers from them and converts them. */
#include "../gpu/kv-gather.h"
#include "../gpu/kv-write.h"
