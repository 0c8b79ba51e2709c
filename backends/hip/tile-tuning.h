/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Choices that depend on the GPU, for device code and its launches. None of them was measured: they follow
 * from registers and shared memory alone.
 */
#ifndef ATTN_HIP_TILE_TUNING_H
#define ATTN_HIP_TILE_TUNING_H

#include <stdbool.h>

#include "tile.h"

/* Lanes of a wave, by the number of an architecture (0x90a, 0x1100). */
GPU_CONSTEXPR uint32_t hip_tile_wave_size(uint32_t arch)
{
    return arch < 0x1000 ? 64 : 32;
}

/* Whether a compute unit has 512 vector registers a lane. gfx906 and gfx908 have half as many that every
 * instruction can use. */
GPU_CONSTEXPR bool hip_tile_large_registers(uint32_t arch)
{
    return arch >= 0x90a;
}

/* Work-groups that a compute unit is to hold (two compute units where waves have 32 lanes): what registers
 * leave room for. */
GPU_CONSTEXPR uint32_t hip_tile_occupancy(uint32_t dv, uint32_t wave_size, bool large_registers)
{
    return dv > 128 || (wave_size == 64 && !large_registers) ? 1 : 2;
}

/*
 * Whether the next keys or values are loaded while these are multiplied. Waves of 32 lanes with rows of their
 * own have no registers to spare for them: other work-groups of the unit work meanwhile.
 */
GPU_CONSTEXPR bool hip_tile_prefetches(uint32_t rows, uint32_t wave_size)
{
    return wave_size == 64 || rows == 16;
}

#endif
