/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix kernels for head dimensions up to 256, keys and values of 16 bits. */
#define TILE_DK    256
#define TILE_DV    256
#define TILE_EIGHT 0
#include "tile-body.h"

TILE_KERNELS(tile_256)
