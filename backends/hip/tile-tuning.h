/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What suits which GPU, for device code and its launches. None of it was ever timed: guesses from registers
 * and shared memory alone.
 */
#ifndef ATTN_HIP_TILE_TUNING_H
#define ATTN_HIP_TILE_TUNING_H

/* Lanes of a wave, by the number of an architecture (0x90a, 0x1100). */
#define HIP_TILE_WAVE(arch) ((arch) < 0x1000 ? 64u : 32u)
#define HIP_TILE_LATE(arch) ((arch) >= 0x90a)
/*
 * CTAs that a compute unit is to hold (two compute units where waves have 32 lanes): what registers leave
 * room for. Below gfx90a a unit with waves of 64 lanes has half the registers of later ones.
 */
#define HIP_TILE_CTAS(dv, wave, late) ((dv) > 128 || ((wave) == 64 && !(late)) ? 1u : 2u)
/*
 * Whether the next keys or values are on the way while these are multiplied. Waves of 32 lanes with rows of
 * their own have no registers to spare for them: other CTAs of the unit work meanwhile.
 */
#define HIP_TILE_EARLY(rows, wave) ((wave) == 64 || (rows) == 16)

#endif
