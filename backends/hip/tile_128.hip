/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix kernels for head dimensions up to 128, keys and values of 16 bits. */
#define TILE_DK    128
#define TILE_DV    128
#define TILE_EIGHT 0
#include "tile-body.h"

TILE_KERNELS(tile_128)
