/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Small M: addresses and copies with a fast path for iterations whose keys are all in the cache. All lanes
 * of a warp agree on which these are.
 */
#ifndef ATTN_GPU_MMA_SMALL_M_LOAD_H
#define ATTN_GPU_MMA_SMALL_M_LOAD_H

#include "load.h"

/*
 * What the iterations of a work tile have in common. Keys below `keys` take the fast path: they are in the
 * cache, a token's place in its page is its lowest bits, and vectors are whole chunks.
 */
struct small_m_fast_path {
    uint64_t k, v; /* of the head: page 0, or the first of dense keys */
    uint64_t k_scale, v_scale;
    uint64_t entries;
    uint32_t keys;
    bool entries64; /* entries of 64 bits */
};

/* Address of the scale with these indices; 0: one scale serves all. */
GPU_INLINE uint64_t small_m_scale_address(const struct gpu_scale *scale, int64_t outer, int64_t token,
                                          uint32_t kv_head)
{
    return scale->base == 0
               ? 0
               : scale->base + (uint64_t)(outer * scale->outer_stride + token * scale->token_stride +
                                          (int64_t)kv_head * scale->head_stride);
}

template <class C>
GPU_INLINE struct small_m_fast_path small_m_fast_path_of(const struct gpu_run *run,
                                                         const struct gpu_sequence *s, uint32_t keys,
                                                         uint32_t kv_head, bool aligned)
{
    const bool dense = run->batch.addressing == ATTN_DENSE;
    struct small_m_fast_path fast;

    fast.k = gpu_vector(&run->k, dense ? s->page : 0, dense ? s->start : 0, kv_head);
    fast.v = gpu_vector(&run->v, dense ? s->page : 0, dense ? s->start : 0, kv_head);
    if constexpr (C::KV8) {
        const int64_t outer = run->problem.kv_source == ATTN_KV_NEW ? s->index : s->page;
        fast.k_scale = small_m_scale_address(&run->k.scale, dense ? outer : 0, dense ? s->start : 0, kv_head);
        fast.v_scale = small_m_scale_address(&run->v.scale, dense ? outer : 0, dense ? s->start : 0, kv_head);
    }
    fast.entries = gpu_entries(run, s);
    fast.keys = s->new_begin < keys ? s->new_begin : keys;
    fast.entries64 = run->batch.addressing == ATTN_CSR && run->batch.index_dtype == ATTN_INT64;
    if (!aligned || (!dense && run->batch.block_shift >= 32))
        fast.keys = 0;
    return fast;
}

/* End of the work tile's keys. Those behind it are another CTA's, although an iteration may reach them. */
template <class C> GPU_INLINE uint32_t small_m_key_end(const mma_shared<C> *shared)
{
    const uint32_t kv_len = shared->sequence.kv_len, end = shared->work.end * GPU_TILE;

    return kv_len < end ? kv_len : end;
}

/* Off the fast path. */
template <class C>
GPU_INLINE struct gpu_entry small_m_find_any_page(const struct gpu_run *run, const mma_shared<C> *shared,
                                                  uint32_t tile)
{
    const struct mma_key_range range = mma_key_range_of(run, &shared->sequence, small_m_key_end<C>(shared));

    return mma_find_page<C>(run, &range, tile, 0);
}

template <class C>
GPU_INLINE void small_m_write_any_addresses(const struct gpu_run *run, mma_shared<C> *shared, uint32_t tile,
                                            uint32_t slot, struct gpu_entry entry)
{
    const struct mma_key_range range = mma_key_range_of(run, &shared->sequence, small_m_key_end<C>(shared));

    mma_find_origins<C>(run, shared, shared->work.kv_head);
    gpu_warp_barrier();
    mma_write_addresses<C>(run, shared, &range, tile, slot, 0, entry);
    gpu_warp_barrier();
}

/* Reads the page table entry of a lane's key. */
template <class C>
GPU_INLINE struct gpu_entry small_m_find_page(const struct gpu_run *run, const mma_shared<C> *shared,
                                              const struct small_m_fast_path *fast, uint32_t tile)
{
    const uint32_t from = tile * C::UNIT_KEYS;
    struct gpu_entry entry;

    if (from + C::GROUP_KEYS > fast->keys)
        return small_m_find_any_page<C>(run, shared, tile);
    entry.low = entry.high = 0;
    if (fast->entries == 0)
        return entry;
    const uint32_t page = (from + gpu_thread() % C::GROUP_KEYS) >> run->batch.block_shift;
    if (fast->entries64) {
        const uint32_t *at = (const uint32_t *)fast->entries + (uint64_t)page * 2;
        entry.low = at[0];
        entry.high = at[1];
    } else {
        entry.low = ((const uint32_t *)fast->entries)[page];
    }
    return entry;
}

/* Copies a key's scale, which arrives with the next stage. */
GPU_INLINE void small_m_copy_scale(const struct gpu_scale *scale, uint64_t base, uint64_t page,
                                   uint32_t token, bool exists, float *to)
{
    if (exists && base != 0)
        gpu_copy_async4(to,
                        base + page * (uint64_t)scale->outer_stride + token * (uint64_t)scale->token_stride);
    else
        *to = exists ? scale->value : 1;
}

/* Writes addresses, and scales. True if all keys exist and are on the fast path. */
template <class C>
GPU_INLINE bool small_m_write_addresses(const struct gpu_run *run, mma_shared<C> *shared,
                                        const struct small_m_fast_path *fast, uint32_t tile, uint32_t slot,
                                        struct gpu_entry entry)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, from = tile * C::UNIT_KEYS;

    if (from + C::GROUP_KEYS > fast->keys) {
        small_m_write_any_addresses<C>(run, shared, tile, slot, entry);
        return false;
    }
    const bool exists = (int32_t)(fast->entries64 ? entry.high : entry.low) >= 0;
    const uint64_t page = (uint64_t)entry.high << 32 | entry.low;
    const bool dense = run->batch.addressing == ATTN_DENSE;
    const uint32_t token = (from + lane % C::GROUP_KEYS) & (dense ? 0xffffffffu : run->batch.block - 1);
    const uint64_t k = fast->k + page * (uint64_t)run->k.page_stride + token * (uint64_t)run->k.token_stride;
    const uint64_t v = fast->v + page * (uint64_t)run->v.page_stride + token * (uint64_t)run->v.token_stride;
    if (lane < C::GROUP_KEYS) {
        shared->k_at[slot][lane] = exists ? k : MMA_NO_ADDRESS;
        shared->v_at[slot][lane] = exists ? v : MMA_NO_ADDRESS;
        if (mma_scale_per_key<C>(run->problem.k_scale))
            small_m_copy_scale(&run->k.scale, fast->k_scale, page, token, exists,
                               &shared->k_scale[slot][lane]);
        if (mma_scale_per_key<C>(run->problem.v_scale))
            small_m_copy_scale(&run->v.scale, fast->v_scale, page, token, exists,
                               &shared->v_scale[slot][lane]);
    }
    return gpu_ballot(!exists) == 0;
}

/* An address in a swizzled row, with `flip` bits flipped. */
GPU_INLINE unsigned char *small_m_swizzle_on(unsigned char *at, uint32_t flip)
{
    return flip == 0 ? at : (unsigned char *)((uintptr_t)at ^ flip);
}

/*
 * A lane's part of a copy: one chunk of two neighbouring rows, and of every so many rows behind them. Only
 * where a warp's copies have a whole number of rows.
 */
struct small_m_lane_copy {
    uint32_t row;    /* the first one */
    uint32_t column; /* byte */
    uint32_t to[2];  /* offsets in the stage */
};

template <class C> GPU_INLINE struct small_m_lane_copy small_m_lane_copy_of(uint32_t bytes)
{
    const uint32_t chunks = bytes / 16, lane = gpu_thread() % GPU_WARP, chunk = lane % chunks;
    struct small_m_lane_copy own;

    own.row = gpu_keep(lane / chunks * 2);
    own.column = gpu_keep(chunk * 16);
    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++)
        own.to[i] = gpu_keep(mma_swizzled<C>(own.row + i, chunk, bytes));
    return own;
}

/* Copies vectors of `dim` elements. What is behind them in a row stays zero. */
template <class C>
GPU_INLINE void small_m_copy_stage(const struct small_m_lane_copy *own, const uint64_t *at, uint32_t dim,
                                   uint32_t bytes, unsigned char *stage)
{
    const bool wanted = own->column / C::KV_SIZE < dim;
    const uint32_t rows = bytes > 512 ? 1 : GPU_WARP / (bytes / 16) * 2; /* of two copies by the warp */
    unsigned char *to[2] = {stage + own->to[0], stage + own->to[1]};
    struct gpu_u128 two[C::GROUP_KEYS * (C::DK > C::DV ? C::DK : C::DV) * C::KV_SIZE / 1024];

    at += own->row;
    GPU_UNROLL
    for (uint32_t j = 0; j < C::GROUP_KEYS / rows; j++)
        two[j] = gpu_load_u128(at + j * rows);
    GPU_UNROLL
    for (uint32_t j = 0; j < C::GROUP_KEYS / rows; j++) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const uint64_t vector = (uint64_t)two[j].x[2 * i + 1] << 32 | two[j].x[2 * i];
            /* These rows flip bits that the first two leave alone. */
            const uint32_t flip = mma_swizzle<C>(j * rows, bytes) * 16u;
            gpu_copy_async16_if(small_m_swizzle_on(to[i], flip) + j * rows * bytes, vector + own->column,
                                wanted);
        }
    }
}

/* Loads a group's keys, or values, of an iteration. `fast`: what small_m_write_addresses returned. */
template <class C>
GPU_INLINE void small_m_load_stage(const struct gpu_run *run, const mma_shared<C> *shared,
                                   const struct small_m_lane_copy *own, unsigned char *stage, uint32_t slot,
                                   uint32_t tile, bool values, bool fast)
{
    const uint32_t bytes = values ? C::V_BYTES : C::K_BYTES;

    if (!values && fast)
        mma_zero_behind_keys<C>(run, stage);
    if (GPU_WARP % (bytes / 16) == 0 && fast)
        small_m_copy_stage<C>(own, values ? shared->v_at[slot] : shared->k_at[slot],
                              values ? run->v.dim : run->k.dim, bytes, stage);
    else
        mma_load_stage<C>(run, shared, stage, slot, tile, 0, values, run->kv_aligned != 0);
}

#endif
