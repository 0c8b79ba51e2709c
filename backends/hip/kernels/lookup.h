/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where the keys and values of a tile lie, by the page table. */
#ifndef ATTN_HIP_LOOKUP_H
#define ATTN_HIP_LOOKUP_H

#include "shared.h"

template <class Config>
GPU_INLINE struct tile_keys tile_find_keys(const struct gpu_run *run,
                                           const struct tile_shared<Config> *shared)
{
    const uint32_t new_begin = tile_uniform(shared->sequence.new_begin);
    struct tile_keys keys;

    keys.entries = tile_uniform_u64(gpu_entries(run, &shared->sequence));
    keys.count = tile_uniform(shared->sequence.kv_len);
    keys.cached = keys.entries == 0 ? 0 : new_begin < keys.count ? new_begin : keys.count;
    return keys;
}

/* Loads the page of a thread's key: 64 threads have the keys of a tile, the next 64 its values. */
template <class Config>
GPU_INLINE struct gpu_entry tile_load_page(const struct gpu_run *run, const struct tile_keys *keys,
                                           uint32_t tile)
{
    const uint32_t thread = Config::thread(), key = tile * GPU_TILE + thread % GPU_TILE;
    struct gpu_entry entry;

    entry.low = entry.high = 0;
    if (thread < 2 * GPU_TILE && key < keys->cached)
        entry = gpu_entry(run, keys->entries, key);
    return entry;
}

/* Stores address and scale of the thread's key, or value, in its page. */
template <class Config>
GPU_INLINE void tile_store_places(const struct gpu_run *run, struct tile_shared<Config> *shared,
                                  const struct tile_keys *keys, uint32_t tile, uint32_t kv_head,
                                  struct gpu_entry entry)
{
    const uint32_t thread = Config::thread(), row = thread % GPU_TILE, key = tile * GPU_TILE + row;
    const uint32_t slot = tile % 2;
    const bool value = thread >= GPU_TILE;

    if (thread >= 2 * GPU_TILE)
        return;
    const struct gpu_origin *origin = &shared->origin[value][key >= shared->sequence.new_begin];
    int64_t page = 0, token = key;
    if (key < keys->cached) {
        token = key - gpu_page_of(run, key) * run->batch.block;
        page = gpu_entry_page(run, entry);
    }
    const bool exists = key < keys->count && page >= 0;
    const uint32_t present = gpu_ballot(exists);
    if (thread % GPU_WARP == 0 && !value)
        shared->present[slot][row / GPU_WARP] = present;
    shared->at[value][slot][row] =
        origin->base + (uint64_t)(page * origin->page_stride + token * origin->token_stride);
    if (tile_scales_by_key<Config>(run->problem.k_scale) ||
        tile_scales_by_key<Config>(run->problem.v_scale)) {
        struct gpu_place place;
        float scale = 1;
        if (exists && gpu_place_of(run, &shared->sequence, key, entry, &place))
            scale = gpu_scale_at(place.is_new ? (value ? &run->v_new.scale : &run->k_new.scale)
                                              : (value ? &run->v.scale : &run->k.scale),
                                 place.outer, place.token, kv_head);
        shared->scale[value][slot][row] = scale;
    }
}

#endif
