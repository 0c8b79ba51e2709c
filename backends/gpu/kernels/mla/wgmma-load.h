/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Copies queries and keys of the MLA kernel into the matrices that warp groups multiply. */
#ifndef ATTN_GPU_MLA_WGMMA_LOAD_H
#define ATTN_GPU_MLA_WGMMA_LOAD_H

#include "load.h"

/* Blocks of 64 columns: those of the values that each warp group has, and the one that is of keys alone. */
static constexpr uint32_t mla_half_blocks = MLA_VO_DIM / 64 / 2, mla_last_block = MLA_VO_DIM / 64;

static constexpr uint32_t mla_warp_keys =
    MLA_KV_TILE / 4; /* that a warp copies of a tile of its warp group */
static_assert(mla_warp_keys == MLA_BOX_TOKENS, "a box");

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

/* A key that a lane locates. */
struct mla_located {
    uint64_t address;     /* 0 if there is none */
    uint32_t page, token; /* in the cache; token is MLA_NO_BOX where no box holds it */
};

static constexpr uint32_t MLA_NO_BOX = UINT32_MAX;

/* The key of a tile that a lane locates, by its page table entry. */
template <class Taken>
GPU_INLINE struct mla_located mla_find_group_key(const struct gpu_run *run, const Taken *taken, uint32_t tile,
                                                 struct gpu_entry entry)
{
    struct mla_located key = {0, 0, MLA_NO_BOX};
    struct gpu_place place;

    key.address = mla_address_of(run, taken, mla_group_key(tile), entry, &place);
    if (key.address != 0 && !place.is_new && place.page <= INT32_MAX) {
        key.page = (uint32_t)place.page;
        key.token = (uint32_t)place.token;
    }
    return key;
}

/* Copies `count` blocks from `first` on of this warp's keys, whose addresses its lanes have. */
GPU_INLINE void mla_copy_blocks(const struct gpu_run *run, uint64_t key, unsigned char *stage, uint32_t first,
                                uint32_t count)
{
    constexpr uint32_t rows = mla_warp_keys / 4;
    const uint32_t warp = gpu_thread() / GPU_WARP % 4, row = gpu_thread() % GPU_WARP / 8;
    const uint32_t chunk = gpu_thread() % 8, used = run->problem.head_dim * 2;
    unsigned char *const to = stage + (warp * mla_warp_keys + row) * 128;
    uint64_t at[rows];

    GPU_UNROLL
    for (uint32_t j = 0; j < rows; j++)
        at[j] = gpu_shuffle_u64(key, j * 4 + row);
    GPU_LOOP
    for (uint32_t block = first; block < first + count; block++) {
        const uint32_t byte = block * 128 + chunk * 16;
        GPU_UNROLL
        for (uint32_t j = 0; j < rows; j++) /* chunks behind the last are zeros */
            gpu_copy_async16(to + block * MLA_BLOCK_BYTES + j * 4 * 128 + ((chunk ^ (j * 4 + row)) & 7) * 16,
                             (const void *)(at[j] + byte), at[j] != 0 && byte < used ? 16 : 0);
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

/* Copies a part of this warp's keys of a tile of its warp group; `boxed`: in boxes of 16 tokens and 64
 * columns, one by each lane. */
template <class Config>
GPU_INLINE void mla_copy_part(const struct gpu_run *run, struct mla_shared<Config> *shared,
                              const struct mla_located *key, bool boxed, unsigned char *stage, uint32_t group,
                              uint32_t part)
{
    constexpr uint32_t quarter = mla_half_blocks / 2;
    const uint32_t warp = gpu_thread() / GPU_WARP % 4, lane = gpu_thread() % GPU_WARP;
    const uint32_t half = part == MLA_PART_OTHER ? 1 - group : group;
    const uint32_t first = half * mla_half_blocks + (part == MLA_PART_SECOND ? quarter : 0);
    const uint32_t count = part == MLA_PART_OTHER ? mla_half_blocks : quarter;
    const uint32_t last = part == MLA_PART_SECOND ? 1 : 0; /* with the columns of keys alone */
    uint64_t *const full = &shared->full[group][part];

    if (boxed) {
        const uint32_t page = gpu_shuffle_u32(key->page, 0), token = gpu_shuffle_u32(key->token, 0);
        const uint32_t block = lane < count ? first + lane : mla_last_block;
        if (lane == 0)
            gpu_mbarrier_expect(full, (count + last) * mla_warp_keys * 128);
        gpu_warp_barrier();
        if (lane < count + last)
            gpu_copy_box(stage + block * MLA_BLOCK_BYTES + warp * mla_warp_keys * 128, &run->k_map,
                         block * 64, token, 0, page, full);
        if (lane == 0)
            gpu_mbarrier_arrive_as(full, GPU_WARP);
    } else if (shared->aligned) {
        mla_copy_blocks(run, key->address, stage, first, count);
        mla_copy_blocks(run, key->address, stage, mla_last_block, last);
        gpu_copy_arrive(full);
    } else {
        mla_load_blocks<Config>(run, key->address, stage, first, count);
        mla_load_blocks<Config>(run, key->address, stage, mla_last_block, last);
        gpu_mbarrier_arrive(full);
    }
    if (lane == 0)
        gpu_mbarrier_arrive(full); /* for the note of keys, which gpu_copy_arrive does not show */
}

/* Whether a box holds this warp's keys. */
GPU_INLINE bool mla_has_box(const struct gpu_run *run, const struct mla_located *key)
{
    return run->box_tokens == MLA_BOX_TOKENS && gpu_ballot(key->token == MLA_NO_BOX) == 0;
}

/* Notes which keys of its warp group's tile this warp has located. */
template <class Config>
GPU_INLINE void mla_note_group_keys(struct mla_shared<Config> *shared, uint32_t group,
                                    const struct mla_located *key)
{
    const uint32_t present = gpu_ballot(key->address != 0);

    if (gpu_thread() % GPU_WARP == 0)
        ((uint16_t *)&shared->present[group])[gpu_thread() / GPU_WARP % 4] = (uint16_t)present;
}

/* Copies the queries of a work tile: those of all its rows as boxes of 64 columns, where there are such. */
template <class Config>
GPU_INLINE void mla_copy_queries(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                 const struct mla_taken *taken, unsigned char *queries)
{
    const uint32_t row = taken->work.row0, token = taken->sequence.row + row / run->group;
    const uint32_t head = row % run->group, lane = gpu_thread();

    if (run->query_box == 0) {
        mla_load_queries<Config>(run, &taken->sequence, queries, row);
        gpu_copy_arrive(&shared->queries_full);
        gpu_mbarrier_arrive(&shared->queries_full); /* for what is stored */
        return;
    }
    if (lane >= GPU_WARP)
        return;
    if (lane == 0)
        gpu_mbarrier_expect(&shared->queries_full, Config::rows * MLA_QK_DIM * 2);
    gpu_warp_barrier();
    if (lane < MLA_QK_DIM / 64)
        gpu_copy_box(queries + lane * MLA_BLOCK_BYTES, &run->q_map, lane * 64, head, token, 0,
                     &shared->queries_full);
    if (lane == 0)
        gpu_mbarrier_arrive_as(&shared->queries_full, 2 * MLA_THREADS);
}

/* Copies the queries of the work tile that has been looked up, and of each warp group the first tile. */
template <class Config>
GPU_INLINE void mla_group_begin_copies(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                       unsigned char *buffer)
{
    const struct mla_taken *taken = &shared->next;
    const uint32_t group = mla_group(), tile = taken->work.first + group;
    unsigned char *const stage = buffer + group * Config::tile_bytes;
    const struct gpu_entry entry = mla_find_entry(run, taken, mla_group_key(tile));

    mla_copy_queries<Config>(run, shared, taken, buffer + 2 * Config::tile_bytes);
    if (tile >= taken->work.end)
        return;
    const struct mla_located key = mla_find_group_key(run, taken, tile, entry);
    const bool boxed = mla_has_box(run, &key);
    mla_note_group_keys<Config>(shared, group, &key);
    GPU_LOOP
    for (uint32_t part = 0; part < MLA_PARTS; part++)
        mla_copy_part<Config>(run, shared, &key, boxed, stage, group, part);
}

/* By one thread, before a barrier of the CTA. */
template <class Config>
GPU_INLINE void mla_group_init(const struct gpu_run *run, struct mla_shared<Config> *shared)
{
    GPU_UNROLL
    for (uint32_t i = 0; i < 2 * MLA_PARTS; i++)
        gpu_mbarrier_init(&shared->full[i / MLA_PARTS][i % MLA_PARTS], 4 * (GPU_WARP + 1));
    gpu_mbarrier_init(&shared->queries_full, 2 * MLA_THREADS);
    shared->parity[0] = shared->parity[1] = shared->queries_parity = 0;
    gpu_wgmma_fence();
    if (run->box_tokens != 0)
        gpu_prefetch_map(&run->k_map);
    if (run->query_box != 0)
        gpu_prefetch_map(&run->q_map);
}

#endif
