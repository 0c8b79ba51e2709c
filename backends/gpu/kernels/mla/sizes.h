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
    MLA_RAW_TILE_BYTES = MLA_KV_TILE * MLA_QK_DIM, /* of 8-bit codes */
    MLA_COMBINE_CTAS = 8,                          /* that combine the rows of a row tile */
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
GPU_CONSTEXPR uint32_t mla_state_bytes(uint32_t rows, uint32_t kv_size)
{
    const uint32_t exchange = rows > MLA_SMALL_ROWS ? 8192 : 4096, scales = kv_size == 1 ? 768 : 0;

    return (rows * 88 + exchange + scales + 3584 + 127) / 128 * 128;
}

/*
 * Tiles of 8-bit codes in shared memory beside `stages` tiles of 16-bit numbers: as many as a device that
 * holds them has room for.
 */
GPU_CONSTEXPR uint32_t mla_raw_stages(uint32_t rows, uint32_t stages)
{
    return rows > MLA_SMALL_ROWS && stages == 2 ? 1 : 2;
}

/* Bytes of shared memory of a CTA. With 8-bit caches there are one or two stages. */
GPU_CONSTEXPR uint32_t mla_shared_bytes(uint32_t rows, uint32_t kv_size, uint32_t stages)
{
    return mla_state_bytes(rows, kv_size) + stages * MLA_KV_TILE_BYTES +
           (kv_size == 1 ? mla_raw_stages(rows, stages) * MLA_RAW_TILE_BYTES : 0);
}

#endif
