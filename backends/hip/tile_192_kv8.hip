/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix kernels for head dimensions up to 192, values up to 128, keys and values of 8 bits. */
#define TILE_DK    192
#define TILE_DV    128
#define TILE_EIGHT 1
#include "tile-body.h"

TILE_KERNELS(tile_192_kv8)
