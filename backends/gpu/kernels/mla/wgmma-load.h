/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Copies queries and keys of the MLA kernel into the matrices that warp groups multiply. */
#ifndef ATTN_GPU_MLA_WGMMA_LOAD_H
#define ATTN_GPU_MLA_WGMMA_LOAD_H

#include "load.h"

/* Blocks of 64 columns: those of the values that each warp group has, and the one that is of keys alone. */
static constexpr uint32_t mla_half_blocks = MLA_VO_DIM / 64 / 2, mla_last_block = MLA_VO_DIM / 64;

static constexpr uint32_t mla_warp_keys =
    MLA_KV_TILE / 4; /* that a warp copies of a tile of its warp group */

/* Index of this thread's warp group, the same for all lanes in the eyes of the compiler too. */
GPU_INLINE uint32_t mla_group(void)
{
    return gpu_shuffle_u32(gpu_thread() / (4 * GPU_WARP), 0);
}

/* All threads of a warp group. */
GPU_INLINE void mla_group_barrier(uint32_t group)
{
    gpu_barrier_part(1 + group, 4 * GPU_WARP);
}

/* The key of a tile that a lane locates: two lanes have the same one. */
GPU_INLINE uint32_t mla_group_key(uint32_t tile)
{
    return tile * MLA_KV_TILE + gpu_thread() / GPU_WARP % 4 * mla_warp_keys + gpu_thread() % mla_warp_keys;
}

/* The address of the key of a tile that a lane locates, 0 if there is none. */
template <class Config>
GPU_INLINE uint64_t mla_find_group_key(const struct gpu_run *run, const struct mla_shared<Config> *shared,
                                       uint32_t tile, struct gpu_entry entry)
{
    struct gpu_place place;

    return mla_address_of<Config>(run, shared, mla_group_key(tile), entry, &place);
}

/* Copies `count` blocks from `first` on of this warp's keys, whose addresses its lanes have. */
template <uint32_t count>
GPU_INLINE void mla_copy_blocks(const struct gpu_run *run, uint64_t key, unsigned char *stage, uint32_t first)
{
    const uint32_t warp = gpu_thread() / GPU_WARP % 4, row = gpu_thread() % GPU_WARP / 8;
    const uint32_t chunk = gpu_thread() % 8, used = run->problem.head_dim * 2;
    unsigned char *const to = stage + first * MLA_BLOCK_BYTES + (warp * mla_warp_keys + row) * 128;

    GPU_UNROLL
    for (uint32_t j = 0; j < mla_warp_keys / 4; j++) {
        const uint64_t at = gpu_shuffle_u64(key, j * 4 + row), from = at + first * 128 + chunk * 16;
        unsigned char *const place = to + j * 4 * 128 + ((chunk ^ (j * 4 + row)) & 7) * 16;
        const uint32_t end = at != 0 ? used : 0; /* chunks behind it are zeros */
        GPU_UNROLL
        for (uint32_t i = 0; i < count; i++)
            gpu_copy_async16(place + i * MLA_BLOCK_BYTES, (const void *)(from + i * 128),
                             first * 128 + chunk * 16 + i * 128 < end ? 16 : 0);
    }
}

/* The same where keys are not aligned. */
template <class Config>
GPU_INLINE void mla_load_blocks(const struct gpu_run *run, uint64_t key, unsigned char *stage, uint32_t first,
                                uint32_t count)
{
    const uint32_t warp = gpu_thread() / GPU_WARP % 4, lane = gpu_thread() % GPU_WARP;
    const uint32_t used = run->problem.head_dim * 2;

    GPU_LOOP
    for (uint32_t i = lane; i < mla_warp_keys * 8 * count; i += GPU_WARP) {
        const uint32_t row = i / (8 * count), chunk = first * 8 + i % (8 * count);
        const uint64_t at = gpu_shuffle_u64(key, row);
        const bool inside = at != 0 && chunk * 16 < used;
        gpu_store_u128(stage + mla_chunk_offset<Config>(warp * mla_warp_keys + row, chunk),
                       mla_load_unaligned<Config>(at + chunk * 16, inside ? used - chunk * 16 : 0));
    }
}

/*
 * A half of the values' columns of this warp's keys: a group of copies. With `first`, of what is multiplied
 * first: two groups, the second of which also has the columns of keys alone.
 */
template <class Config, bool first>
GPU_INLINE void mla_copy_half(const struct gpu_run *run, const struct mla_shared<Config> *shared,
                              uint64_t key, unsigned char *stage, uint32_t half)
{
    constexpr uint32_t quarter = mla_half_blocks / 2;
    const uint32_t from = half * mla_half_blocks;

    if (shared->aligned) {
        mla_copy_blocks<quarter>(run, key, stage, from);
        if constexpr (first)
            gpu_copy_commit();
        mla_copy_blocks<quarter>(run, key, stage, from + quarter);
        if constexpr (first)
            mla_copy_blocks<1>(run, key, stage, mla_last_block);
    } else {
        mla_load_blocks<Config>(run, key, stage, from, mla_half_blocks);
        if constexpr (first) {
            mla_load_blocks<Config>(run, key, stage, mla_last_block, 1);
            gpu_copy_commit();
        }
    }
    gpu_copy_commit();
}

/* Notes which keys of its warp group's tile this warp has located. */
template <class Config>
GPU_INLINE void mla_note_group_keys(struct mla_shared<Config> *shared, uint32_t group, uint64_t key)
{
    const uint32_t present = gpu_ballot(key != 0);

    if (gpu_thread() % GPU_WARP == 0)
        ((uint16_t *)&shared->present[group])[gpu_thread() / GPU_WARP % 4] = (uint16_t)present;
}

/* Copies the queries, and of each warp group the first tile. */
template <class Config>
GPU_INLINE void mla_group_begin_copies(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                       unsigned char *buffer)
{
    const uint32_t group = mla_group(), tile = shared->work.first + group;
    unsigned char *const stage = buffer + group * Config::tile_bytes;
    const struct gpu_entry entry = mla_find_entry<Config>(run, shared, mla_group_key(tile));

    mla_load_queries<Config>(run, &shared->sequence, buffer + 2 * Config::tile_bytes, shared->work.row0);
    gpu_copy_commit();
    if (tile >= shared->work.end) {
        gpu_copy_commit();
        gpu_copy_commit();
        gpu_copy_commit();
        return;
    }
    const uint64_t at = mla_find_group_key<Config>(run, shared, tile, entry);
    mla_note_group_keys<Config>(shared, group, at);
    mla_copy_half<Config, true>(run, shared, at, stage, group);
    mla_copy_half<Config, false>(run, shared, at, stage, 1 - group);
}

#endif
