/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sizes of the MLA kernels, for the kernels themselves and for the host code that launches them. */
#ifndef ATTN_GPU_MLA_SIZES_H
#define ATTN_GPU_MLA_SIZES_H

#include <stdint.h>

#include "constexpr.h"

enum {
    MLA_QK_DIM = 576, /* columns of queries and keys; smaller ones are padded with zeros */
    MLA_VO_DIM = 512, /* the first of them, which are the values too */
    MLA_KV_TILE = 64, /* keys of a tile */
    MLA_THREADS = 256,
    MLA_KV_TILE_BYTES = MLA_KV_TILE * MLA_QK_DIM * 2,
    /* Instances of at most so many rows have registers left for a mask, ALiBi or a soft cap. */
    MLA_SMALL_ROWS = 32
};

/* Stages of the circular buffer of KV tiles where the device has the shared memory; there are at least two.
 */
GPU_CONSTEXPR uint32_t mla_max_stages(uint32_t rows)
{
    return rows <= MLA_SMALL_ROWS ? 3 : 2;
}

/* Bytes of shared memory beside the KV tiles, a multiple of 128. */
GPU_CONSTEXPR uint32_t mla_state_bytes(uint32_t rows)
{
    return (rows * 88 + (rows > MLA_SMALL_ROWS ? 8192u : 4096u) + 3584 + 127) / 128 * 128;
}

/* Bytes of shared memory of a CTA. */
GPU_CONSTEXPR uint32_t mla_shared_bytes(uint32_t rows, uint32_t stages)
{
    return mla_state_bytes(rows) + stages * MLA_KV_TILE_BYTES;
}

#endif
