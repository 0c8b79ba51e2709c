/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Where the keys and values of an iteration lie in memory: page table entries are read early, and the
 * addresses made of them are kept in shared memory.
 */
#ifndef ATTN_GPU_MMA_ADDRESSES_H
#define ATTN_GPU_MMA_ADDRESSES_H

#include "config.h"

/* The keys of a sequence that a CTA may read. */
struct mma_key_range {
    uint64_t entries;
    uint32_t cached; /* keys below it are looked up in the page table */
    uint32_t keys;
};

/* The keys of a sequence below `keys`. */
GPU_INLINE struct mma_key_range mma_key_range_of(const struct gpu_run *run, const struct gpu_sequence *s,
                                                 uint32_t keys)
{
    struct mma_key_range range;

    range.entries = gpu_entries(run, s);
    range.keys = keys;
    range.cached = range.entries == 0 ? 0 : s->new_begin < keys ? s->new_begin : keys;
    return range;
}

/* Where cached and new keys and values of a KV head begin, and their scales: by the first lanes of a warp. */
template <class C>
GPU_INLINE void mma_find_origins(const struct gpu_run *run, mma_looked_up<C> *to, uint32_t kv_head)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const bool value = lane / 2 != 0, is_new = lane % 2 != 0;

    if (lane >= 4)
        return;
    to->origin[value][is_new] = gpu_origin_of(run, &to->sequence, kv_head, value, is_new);
    if constexpr (C::KV8)
        to->scale_origin[value][is_new] = gpu_scale_origin_of(run, &to->sequence, kv_head, value, is_new);
    if (C::SCALED && lane == 0)
        to->scale_origin[0][0] = gpu_scale_origin_of(run, &to->sequence, kv_head, false, false);
}

/* The key of a tile that a thread of a group looks up. */
template <class C> GPU_INLINE uint32_t mma_key_of_thread(uint32_t tile, uint32_t key0)
{
    return tile * C::UNIT_KEYS + key0 + gpu_thread() % C::GROUP_KEYS;
}

/* Reads the page table entry of a thread's key. */
template <class C>
GPU_INLINE struct gpu_entry mma_find_page(const struct gpu_run *run, const struct mma_key_range *range,
                                          uint32_t tile, uint32_t key0)
{
    const uint32_t key = mma_key_of_thread<C>(tile, key0);
    struct gpu_entry entry;

    entry.low = entry.high = 0;
    if (key < range->cached)
        entry = gpu_entry(run, range->entries, key);
    return entry;
}

/*
 * Copies a key's or value's scale, which arrives with the next stage. Where P is bf16 for another reason, the
 * scales that it is multiplied by are 1.
 */
template <class C>
GPU_INLINE void mma_copy_scale(const struct gpu_run *run, mma_shared<C> *shared, bool value, bool is_new,
                               bool exists, int64_t page, int64_t token, uint32_t slot, uint32_t column)
{
    const struct gpu_scale_origin *origin = &shared->scale_origin[value][is_new];
    const bool per_key = mma_scale_per_key<C>(value ? run->problem.v_scale : run->problem.k_scale);
    float *to = &(value ? shared->v_scale : shared->k_scale)[slot][mma_scale_at<C>(column)];

    if (per_key && exists && origin->base != 0)
        gpu_copy_async4(to,
                        origin->base + (uint64_t)(page * origin->page_stride + token * origin->token_stride));
    else if (per_key || (value && mma_p_bf16<C>(run)))
        *to = per_key && exists ? origin->value : 1;
}

/* Writes the address, and copies the scale, of a thread's key or value. */
template <class C>
GPU_INLINE void mma_write_address(const struct gpu_run *run, mma_shared<C> *shared,
                                  const struct mma_key_range *range, uint32_t tile, uint32_t slot,
                                  uint32_t key0, struct gpu_entry entry, bool value)
{
    const uint32_t column = key0 + gpu_thread() % C::GROUP_KEYS, key = mma_key_of_thread<C>(tile, key0);
    const bool is_new = key >= shared->sequence.new_begin;
    const struct gpu_origin *origin = &shared->origin[value][is_new];
    int64_t page = 0, token = key;

    if (key < range->cached) {
        token = key - gpu_page_of(run, key) * run->batch.block;
        page = gpu_entry_page(run, entry);
    }
    const bool exists = key < range->keys && page >= 0;
    (value ? shared->v_at : shared->k_at)[slot][column] =
        exists ? origin->base + (uint64_t)(page * origin->page_stride + token * origin->token_stride)
               : MMA_NO_ADDRESS;
    if constexpr (C::ANY) /* loads wait for what others only copy */
        for (uint32_t i = 0; exists && i < (value ? run->v.x_bytes : run->k.x_bytes); i += 32)
            gpu_prefetch((value ? shared->v_at : shared->k_at)[slot][column] + i);
    if constexpr (C::KV8)
        mma_copy_scale<C>(run, shared, value, is_new, exists, page, token, slot, column);
    if constexpr (C::SCALED) {
        const struct gpu_scale_origin *scales = &shared->scale_origin[0][0];
        if (!value && exists)
            gpu_copy_async4(&shared->k_scale[slot][mma_scale_at<C>(column)],
                            scales->base +
                                (uint64_t)(page * scales->page_stride + token * scales->token_stride));
    }
}

/*
 * Writes addresses of keys and values. Where a group has two threads for a key, one of them takes the value.
 */
template <class C>
GPU_INLINE void mma_write_addresses(const struct gpu_run *run, mma_shared<C> *shared,
                                    const struct mma_key_range *range, uint32_t tile, uint32_t slot,
                                    uint32_t key0, struct gpu_entry entry)
{
    if constexpr (C::GROUP_THREADS >= 2 * C::GROUP_KEYS) {
        mma_write_address<C>(run, shared, range, tile, slot, key0, entry,
                             gpu_thread() % C::GROUP_THREADS >= C::GROUP_KEYS);
    } else {
        GPU_LOOP
        for (uint32_t value = 0; value < 2; value++)
            mma_write_address<C>(run, shared, range, tile, slot, key0, entry, value != 0);
    }
}

#endif
