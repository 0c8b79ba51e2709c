/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes new keys and values into a cache, and maps their rows to slots, a thread per row. */
#ifndef ATTN_GPU_KV_WRITE_H
#define ATTN_GPU_KV_WRITE_H

#include "kv-rows.h"

/* Page and token where a row is written; false if it is not. */
GPU_INLINE bool gpu_kv_write_place(const struct gpu_kv_write *a, uint32_t row, int64_t *page, int64_t *token)
{
    if (a->slots != 0) {
        const int64_t slot = gpu_at<const int64_t>(a->slots, row);
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

GPU_INLINE void gpu_kv_write_one(const struct gpu_kv_write *a, uint32_t row, uint32_t is_v, uint32_t head,
                                 int64_t page, int64_t token)
{
    const struct gpu_kv_side *to = &a->to[is_v];
    struct gpu_kv_vector from = gpu_kv_vector_in(&a->from[is_v], a->from_dtype[is_v], row, head);

    if (is_v == 0 && a->rope.base != 0) {
        from.rest = gpu_kv_vector_in(&a->rope, a->from_dtype[0], row, head).at;
        from.split = a->split;
    }
    if (from.dtype == to->cache.dtype) {
        const struct gpu_kv_vector into = gpu_kv_vector_of(to, page, token, head);
        gpu_kv_copy_vector(&from, &into, to->cache.dim, a->wide[is_v]);
    } else {
        gpu_kv_write_vector(&from, 1, to, page, token, head, a->wide[is_v]);
    }
}

/* A warp per vector. */
GPU_INLINE void gpu_kv_write_vectors(const struct gpu_kv_write *a, uint32_t is_v)
{
    const uint64_t all = (uint64_t)a->rows * a->heads;
    const uint32_t warps = GPU_KV_THREADS / GPU_WARP;
    int64_t page = 0, token = 0;

    for (uint64_t at = (uint64_t)gpu_cta() * warps + gpu_kv_warp(); at < all;
         at += (uint64_t)gpu_ctas() * warps) {
        const uint32_t row = (uint32_t)(at / a->heads);
        if (gpu_kv_write_place(a, row, &page, &token))
            gpu_kv_write_one(a, row, is_v, (uint32_t)(at - (uint64_t)row * a->heads), page, token);
    }
}

/* The row of this lane. */
GPU_INLINE struct gpu_kv_row gpu_kv_write_row(const struct gpu_kv_write *a, uint32_t row, uint32_t is_v)
{
    const struct gpu_kv_side *to = &a->to[is_v];
    struct gpu_kv_row mine = {0, 0, 0, 0, 0};
    int64_t page = 0, token = 0;

    if (row >= a->rows || !gpu_kv_write_place(a, row, &page, &token))
        return mine;
    mine.from = gpu_kv_vector_in(&a->from[is_v], a->from_dtype[is_v], row, 0).at;
    mine.rest = a->rope.base != 0 ? gpu_kv_vector_in(&a->rope, a->from_dtype[0], row, 0).at : 0;
    mine.to = gpu_kv_vector_of(to, page, token, 0).at;
    mine.to_scale = gpu_kv_row_scale(to, page, token);
    return mine;
}

/* Grid: x takes groups of rows; y splits each row's bytes into shares, those of keys first. */
GPU_KERNEL(gpu_kv_write_rows, GPU_KV_THREADS, 4)(GPU_ARGUMENT(struct gpu_kv_write, argument))
{
    const struct gpu_kv_write *a = (const struct gpu_kv_write *)gpu_argument(&argument);
    const uint32_t is_v = gpu_cta_y() / a->shares, share = gpu_cta_y() % a->shares;
    const uint32_t warps = GPU_KV_THREADS / GPU_WARP;
    const struct gpu_kv_rows *by = &a->by_row[is_v];

    if (by->method == GPU_KV_BY_VECTOR) {
        if (share == 0)
            gpu_kv_write_vectors(a, is_v);
        return;
    }
    for (uint64_t first = ((uint64_t)gpu_cta() * warps + gpu_kv_warp()) * a->each; first < a->rows;
         first += (uint64_t)gpu_ctas() * warps * a->each) {
        const struct gpu_kv_taken taken = gpu_kv_rows_take((uint32_t)first, a->each, a->rows);
        const struct gpu_kv_row mine = gpu_kv_write_row(a, taken.own, is_v);
        gpu_kv_rows_do(by, &mine, taken.rows, share, a->shares, NULL, &a->to[is_v]);
    }
}

GPU_KERNEL(gpu_kv_map_slots, GPU_KV_THREADS, 4)(GPU_ARGUMENT(struct gpu_kv_slots, argument))
{
    const struct gpu_kv_slots *a = (const struct gpu_kv_slots *)gpu_argument(&argument);
    int64_t page = 0, token = 0;

    for (uint64_t at = (uint64_t)gpu_cta() * GPU_KV_THREADS + gpu_thread(); at < a->batch.num_tokens;
         at += (uint64_t)gpu_ctas() * GPU_KV_THREADS) {
        const uint32_t row = (uint32_t)at;
        if (!gpu_kv_has_row(a->batch.q_offsets, a->batch.seqs, row))
            continue;
        const bool there = gpu_kv_locate_row(&a->batch, row, &page, &token);
        gpu_at<int64_t>(a->slots, row) = there ? page * (int64_t)a->block + token : -1;
    }
}

#endif
