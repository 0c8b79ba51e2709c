/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sizes of the MLA kernels, for the kernels themselves and for the host code that launches them. */
#ifndef ATTN_GPU_MLA_SIZES_H
#define ATTN_GPU_MLA_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#include "constexpr.h"

enum {
    MLA_QK_DIM = 576, /* columns of queries and keys; smaller ones are padded with zeros */
    MLA_VO_DIM = 512, /* the first of them, which are the values too */
    MLA_KV_TILE = 64, /* keys of a tile */
    MLA_THREADS = 256,
    MLA_NOTE_BYTES = 32, /* of what a CTA tells those that combine splits */
    /* Instances of at most so many rows have registers left for a mask, ALiBi or a soft cap. */
    MLA_SMALL_ROWS = 32,
    /* The instance that is multiplied by warp groups on Hopper, over keys of 16 bits. */
    MLA_GROUP_ROWS = 64,
    MLA_BOX_TOKENS = 16,                 /* that a warp of a group copies at once */
    MLA_BLOCK_BYTES = MLA_KV_TILE * 128, /* of 64 columns of a tile, which lie together there */
    MLA_GROUP_STATE = 11 << 10           /* beside the tiles and the queries */
};

/* Bytes of a KV tile in shared memory, where keys lie as in the cache. */
GPU_CONSTEXPR uint32_t mla_tile_bytes(uint32_t kv_size)
{
    return MLA_KV_TILE * MLA_QK_DIM * kv_size;
}

/* Stages of the circular buffer of KV tiles where the device has the shared memory. */
GPU_CONSTEXPR uint32_t mla_max_stages(uint32_t rows, uint32_t kv_size)
{
    return kv_size == 1 ? 5 : rows <= MLA_SMALL_ROWS ? 3 : 2;
}

/* The fewest, of whatever rows: they have to hold O, which takes their place at the end. */
GPU_CONSTEXPR uint32_t mla_min_stages(uint32_t kv_size)
{
    return kv_size == 1 ? 4 : 2;
}

/*
 * Warps that divide the columns of a product of queries and keys among themselves: four read the keys for 32
 * rows at once, but exchange more, for which three stages of 16-bit keys leave no shared memory.
 */
GPU_CONSTEXPR uint32_t mla_column_warps(uint32_t rows, uint32_t kv_size)
{
    return rows > MLA_SMALL_ROWS || kv_size == 1 ? 4 : 2;
}

/* Bytes of shared memory beside the KV tiles, a multiple of 128. */
GPU_CONSTEXPR uint32_t mla_state_bytes(uint32_t rows, uint32_t kv_size)
{
    const uint32_t exchange = (mla_column_warps(rows, kv_size) - 1) * 4096, scales = kv_size == 1 ? 1536 : 0;
    const uint32_t row = (rows > MLA_SMALL_ROWS ? 24u : 88u) + (kv_size == 1 ? 4u : 0u);

    return (rows * row + exchange + scales + 3840 + 127) / 128 * 128;
}

/* Whether warp groups multiply on Hopper. */
GPU_CONSTEXPR bool mla_has_groups(uint32_t rows, uint32_t kv_size)
{
    return rows == MLA_GROUP_ROWS && kv_size == 2;
}

/* Bytes of shared memory of a CTA there: two tiles, and the queries. */
GPU_CONSTEXPR uint32_t mla_group_bytes(void)
{
    return MLA_GROUP_STATE + 2 * mla_tile_bytes(2) + MLA_GROUP_ROWS * MLA_QK_DIM * 2;
}

/* Bytes of shared memory of a CTA. */
GPU_CONSTEXPR uint32_t mla_shared_bytes(uint32_t rows, uint32_t kv_size, uint32_t stages)
{
    return mla_state_bytes(rows, kv_size) + stages * mla_tile_bytes(kv_size);
}

#endif
