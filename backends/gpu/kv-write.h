/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* New rows into a cache, a warp per vector, and the slots where they go, a thread per row. */
#ifndef ATTN_GPU_KV_WRITE_H
#define ATTN_GPU_KV_WRITE_H

#include "kv-side.h"

/* Where a row goes; false if nowhere. */
GPU_INLINE bool gpu_kv_write_place(const struct gpu_kv_write *a, uint32_t row, int64_t *page, int64_t *token)
{
    if (a->slots != 0) {
        const int64_t slot = GPU_AT(const int64_t, a->slots, row);
        if (slot < 0)
            return false;
        *page = slot / a->block;
        *token = slot - *page * a->block;
    } else if (!gpu_kv_locate_row(&a->batch, row, page, token)) {
        return false;
    }
    if ((a->page >= 0 && a->page != *page) || (a->token >= 0 && a->token != *token))
        return false;
    return *page < (int64_t)a->pages && *token < (int64_t)a->block;
}

GPU_INLINE void gpu_kv_write_one(const struct gpu_kv_write *a, uint32_t row, uint32_t half, uint32_t head,
                                 int64_t page, int64_t token)
{
    const struct gpu_kv_side *to = &a->to[half];
    struct gpu_kv_vector from = gpu_kv_vector_in(&a->from[half], a->from_dtype[half], row, head);

    if (half == 0 && a->rope.base != 0) {
        from.rest = gpu_kv_vector_in(&a->rope, a->from_dtype[0], row, head).at;
        from.split = a->split;
    }
    if (from.dtype == to->cache.dtype) {
        const struct gpu_kv_vector into = gpu_kv_vector_of(to, page, token, head);
        gpu_kv_copy_vector(&from, &into, to->cache.dim, a->wide[half]);
    } else {
        gpu_kv_write_vector(&from, 1, to, page, token, head, a->wide[half]);
    }
}

GPU_KERNEL(gpu_kv_write_rows, GPU_KV_THREADS, 4)(GPU_ARGUMENT(struct gpu_kv_write, a))
{
    const uint32_t vectors = a.halves * a.heads;
    const uint64_t all = (uint64_t)a.rows * vectors;
    const uint32_t warps = GPU_KV_THREADS / GPU_WARP;
    int64_t page = 0, token = 0;

    for (uint64_t at = (uint64_t)gpu_cta() * warps + gpu_kv_warp(); at < all;
         at += (uint64_t)gpu_ctas() * warps) {
        const uint32_t row = (uint32_t)(at / vectors), which = (uint32_t)(at - (uint64_t)row * vectors);
        const uint32_t half = which / a.heads;
        if (gpu_kv_write_place(&a, row, &page, &token))
            gpu_kv_write_one(&a, row, half, which - half * a.heads, page, token);
    }
}

GPU_KERNEL(gpu_kv_map_slots, GPU_KV_THREADS, 4)(GPU_ARGUMENT(struct gpu_kv_slots, a))
{
    int64_t page = 0, token = 0;

    for (uint64_t at = (uint64_t)gpu_cta() * GPU_KV_THREADS + gpu_thread(); at < a.batch.rows;
         at += (uint64_t)gpu_ctas() * GPU_KV_THREADS) {
        const uint32_t row = (uint32_t)at;
        if (!gpu_kv_has_row(a.batch.q_offsets, a.batch.seqs, row))
            continue;
        const bool there = gpu_kv_locate_row(&a.batch, row, &page, &token);
        GPU_AT(int64_t, a.slots, row) = there ? page * (int64_t)a.block + token : -1;
    }
}

#endif
