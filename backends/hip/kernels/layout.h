/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * How values lie in shared memory: column by column, in quads of four keys. A quad's place within its column
 * is swizzled by the column, so that neither threads that store eight columns each nor lanes that read 16
 * meet in few banks.
 */
#ifndef ATTN_HIP_LAYOUT_H
#define ATTN_HIP_LAYOUT_H

#include "../tile.h"
#include "intrinsics.h"

/* Byte offset of a quad of a column. */
GPU_INLINE uint32_t tile_quad_at(uint32_t column, uint32_t quad)
{
    return column * HIP_TILE_VALUE_PITCH + (quad ^ (column / 8 % 16)) * 8;
}

/* Quad 4 * keys + inner of column `column` + row, where `column` is a multiple of 16 and constant. */
GPU_INLINE struct gpu_u64 tile_load_quad(const unsigned char *values, uint32_t column, uint32_t row,
                                         uint32_t keys, uint32_t inner)
{
    const uint32_t same = (4 * keys ^ (column / 8 % 16)), low = inner ^ row / 8 ^ (same & 3);

    return tile_load_u64(values + row * HIP_TILE_VALUE_PITCH + low * 8 +
                         (column * HIP_TILE_VALUE_PITCH + (same & 12) * 8));
}

#endif
