/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sizes of the matrix kernels, for the device code that has them and the host code that launches it. */
#ifndef ATTN_HIP_TILE_H
#define ATTN_HIP_TILE_H

#include <stdint.h>

#include "constexpr.h"

/* A third value of gpu_run.kv_aligned: layout paged-x. Every 16 bytes of a key are contiguous; an element of
 * a value lies next to the same element of the neighbouring tokens, in pages of a multiple of four tokens. */
enum { HIP_TILE_PAGED_X = 2 };

enum {
    HIP_TILE_VALUE_PITCH = 136, /* bytes of LDS between columns of values */
    HIP_TILE_RESULT_PITCH = 68  /* floats of LDS between rows of results, of which 64 are used */
};

/* Waves that share the columns of the same rows. A wave of 32 lanes holds eight f32 of a 16x16 product in a
 * lane, so 256 columns would take all of its registers. */
GPU_CONSTEXPR uint32_t hip_tile_column_waves(uint32_t dv, uint32_t wave_size)
{
    return dv > 128 && wave_size == 32 ? 2 : 1;
}

GPU_CONSTEXPR uint32_t hip_tile_threads(uint32_t dv, uint32_t wave_size)
{
    return 4 * hip_tile_column_waves(dv, wave_size) * wave_size;
}

/* Bytes of LDS between rows of queries and keys: neighbours begin in different banks. */
GPU_CONSTEXPR uint32_t hip_tile_key_pitch(uint32_t dk)
{
    return dk * 2 + 16;
}

GPU_CONSTEXPR uint32_t hip_tile_max(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Bytes of the area that holds queries, keys, values and 64 columns of results, one after the other. */
GPU_CONSTEXPR uint32_t hip_tile_area_bytes(uint32_t dk, uint32_t dv)
{
    return hip_tile_max(64 * HIP_TILE_RESULT_PITCH * 4,
                        hip_tile_max(64 * hip_tile_key_pitch(dk), dv * HIP_TILE_VALUE_PITCH));
}

/* Bytes beside it, a multiple of 128: struct tile_shared. */
GPU_CONSTEXPR uint32_t hip_tile_state_bytes(uint32_t rows, uint32_t dv)
{
    return (4608 + 16 * dv + 88 * rows + 127) / 128 * 128;
}

GPU_CONSTEXPR uint32_t hip_tile_shared_bytes(uint32_t rows, uint32_t dk, uint32_t dv)
{
    return hip_tile_state_bytes(rows, dv) + hip_tile_area_bytes(dk, dv);
}

#endif
