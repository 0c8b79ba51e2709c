/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix kernels for head dimensions up to 64, keys and values of 8 bits. */
#define TILE_DK    64
#define TILE_DV    64
#define TILE_EIGHT 1
#include "tile-body.h"

TILE_KERNELS(tile_64_kv8)
