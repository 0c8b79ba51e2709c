/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The arithmetic ceiling of AMX: a plain loop of tile products in bf16, with their loads from the L1 cache.
 */
#include <immintrin.h>

#include "ceilings.h"

enum { TILE_BYTES = 1024, FLOPS = 2 * 16 * 16 * 32 };

/* Intel's layout of what the tiles look like: eight of 16 rows of 64 bytes. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} shapes = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

/* Two by two tiles of sums, so that each operand is loaded once for two products. */
static float compute_products(uint64_t rounds)
{
    static const unsigned char operands[4 * TILE_BYTES] __attribute__((aligned(64)));
    float sums[16][16];

    _tile_loadconfig(&shapes);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint64_t i = 0; i < rounds; i++) {
        _tile_loadd(4, operands, 64);
        _tile_loadd(5, operands + TILE_BYTES, 64);
        _tile_loadd(6, operands + 2 * TILE_BYTES, 64);
        _tile_loadd(7, operands + 3 * TILE_BYTES, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 64);
    _tile_release();
    return sums[0][0];
}

const struct ceiling_functions ceiling_amx = {.compute = compute_products, .flops = 4 * FLOPS};
