/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Gathers keys and values of a cache into contiguous tensors, and converts pages into another type or layout.
 */
#ifndef ATTN_GPU_KV_GATHER_H
#define ATTN_GPU_KV_GATHER_H

#include "kv-rows.h"

/* ---------------------------------------------------------------- gather */

GPU_INLINE void gpu_kv_store_zeros(const struct gpu_kv_vector *to, uint32_t dim, uint32_t wide)
{
    const uint32_t zeros[4] = {0, 0, 0, 0};

    for (uint32_t d = gpu_thread() % GPU_WARP * wide; d < dim; d += GPU_WARP * wide)
        gpu_kv_store_raw(to, d, wide, zeros);
}

/* Gathers one vector: of keys, or with is_v of values. */
GPU_INLINE void gpu_kv_gather_one(const struct gpu_kv_gather *a, uint32_t row, uint32_t is_v, uint32_t head,
                                  bool missing, int64_t page, int64_t token)
{
    const struct gpu_kv_side *side = &a->from[is_v];
    const struct gpu_kv_vector to = gpu_kv_vector_in(&a->to[is_v], a->to_dtype[is_v], row, head);
    const uint32_t dim = side->cache.dim, wide = a->wide[is_v];
    const float scale = missing ? 1 : gpu_kv_scale(side, page, token, head);
    float values[4];

    if (a->scales[is_v].base != 0 && gpu_thread() % GPU_WARP == 0)
        gpu_at<float>(gpu_kv_vector_in(&a->scales[is_v], ATTN_F32, row, head).at, 0) = scale;
    if (missing) {
        gpu_kv_store_zeros(&to, dim, wide);
        return;
    }
    const struct gpu_kv_vector from = gpu_kv_vector_of(side, page, token, head);
    if (a->moved[is_v] != 0) {
        gpu_kv_copy_vector(&from, &to, dim, wide);
        return;
    }
    for (uint32_t d = gpu_thread() % GPU_WARP * wide; d < dim; d += GPU_WARP * wide) {
        gpu_kv_load(&from, d, wide, scale, values);
        gpu_kv_store(&to, d, wide, values);
    }
}

/* Where the key of a row lies: `missing` if its block is invalid. False if no sequence has the row. */
GPU_INLINE bool gpu_kv_gather_place(const struct gpu_kv_gather *a, uint32_t row, bool *missing, int64_t *page,
                                    int64_t *token)
{
    if (row >= a->tokens || !gpu_kv_has_row(a->offsets, a->batch.seqs, row))
        return false;
    const uint32_t seq = gpu_kv_find(a->offsets, a->batch.seqs, row);
    const uint32_t start = a->starts != 0 ? (uint32_t)gpu_at<const int32_t>(a->starts, seq) : 0;
    const uint32_t key = start + row - (uint32_t)gpu_at<const int32_t>(a->offsets, seq);

    *missing = !gpu_kv_locate(&a->batch, seq, key, page, token);
    return true;
}

/* One warp gathers a vector. */
GPU_INLINE void gpu_kv_gather_vectors(const struct gpu_kv_gather *a, uint32_t is_v)
{
    const uint32_t warps = GPU_KV_THREADS / GPU_WARP;
    const uint64_t all = (uint64_t)a->tokens * a->heads;
    int64_t page = 0, token = 0;
    bool missing = false;

    for (uint64_t at = (uint64_t)gpu_cta() * warps + gpu_kv_warp(); at < all;
         at += (uint64_t)gpu_ctas() * warps) {
        const uint32_t row = (uint32_t)(at / a->heads);
        if (gpu_kv_gather_place(a, row, &missing, &page, &token))
            gpu_kv_gather_one(a, row, is_v, (uint32_t)(at - (uint64_t)row * a->heads), missing, page, token);
    }
}

/* The row of a lane. */
GPU_INLINE struct gpu_kv_row gpu_kv_gather_row(const struct gpu_kv_gather *a, uint32_t row, uint32_t is_v)
{
    struct gpu_kv_row mine = {0, 0, 0, 0, 0};
    int64_t page = 0, token = 0;
    bool missing = false;

    if (!gpu_kv_gather_place(a, row, &missing, &page, &token))
        return mine;
    mine.to = gpu_kv_vector_in(&a->to[is_v], a->to_dtype[is_v], row, 0).at;
    if (a->scales[is_v].base != 0)
        mine.to_scale = gpu_kv_vector_in(&a->scales[is_v], ATTN_F32, row, 0).at;
    if (!missing) {
        mine.from = gpu_kv_vector_of(&a->from[is_v], page, token, 0).at;
        mine.from_scale = gpu_kv_row_scale(&a->from[is_v], page, token);
    }
    return mine;
}

/* Grid: x takes groups of rows; y splits each row's bytes into shares, those of keys first. */
GPU_KERNEL(gpu_kv_gather_rows, GPU_KV_THREADS, 4)(GPU_ARGUMENT(struct gpu_kv_gather, argument))
{
    const struct gpu_kv_gather *a = (const struct gpu_kv_gather *)gpu_argument(&argument);
    const uint32_t is_v = gpu_cta_y() / a->shares, share = gpu_cta_y() % a->shares;
    const uint32_t warps = GPU_KV_THREADS / GPU_WARP;
    const struct gpu_kv_rows *by = &a->by_row[is_v];

    if (a->to[is_v].base == 0)
        return;
    if (by->method == GPU_KV_BY_VECTOR) {
        if (share == 0)
            gpu_kv_gather_vectors(a, is_v);
        return;
    }
    for (uint64_t first = ((uint64_t)gpu_cta() * warps + gpu_kv_warp()) * a->each; first < a->tokens;
         first += (uint64_t)gpu_ctas() * warps * a->each) {
        const struct gpu_kv_taken taken = gpu_kv_rows_take((uint32_t)first, a->each, a->tokens);
        const struct gpu_kv_row mine = gpu_kv_gather_row(a, taken.own, is_v);
        gpu_kv_rows_do(by, &mine, taken.rows, share, a->shares, &a->from[is_v], NULL);
        if (a->scales[is_v].base != 0 && share == 0)
            gpu_kv_rows_scales(&a->from[is_v], a->scales[is_v].head_stride, &mine, taken.rows, a->heads);
    }
}

/* ---------------------------------------------------------------- convert */

GPU_INLINE void gpu_kv_convert_one(const struct gpu_kv_convert *a, uint32_t is_v, uint32_t token,
                                   uint32_t head, int64_t from_page, int64_t to_page)
{
    const struct gpu_kv_side *from = &a->from[is_v], *to = &a->to[is_v];
    const struct gpu_kv_vector source = gpu_kv_vector_of(from, from_page, token, head);
    const float scale = gpu_kv_scale(from, from_page, token, head);

    if (a->moved[is_v] == 0) {
        gpu_kv_write_vector(&source, scale, to, to_page, token, head, a->wide[is_v]);
        return;
    }
    const struct gpu_kv_vector target = gpu_kv_vector_of(to, to_page, token, head);
    gpu_kv_copy_vector(&source, &target, to->cache.dim, a->wide[is_v]);
    if (from->token_head != 0 && gpu_thread() % GPU_WARP == 0)
        gpu_at<float>(gpu_kv_scale_place(&to->cache.scale, to_page, token, head), 0) = scale;
}

/* Pages of pair i; false if the pair is skipped. */
GPU_INLINE bool gpu_kv_convert_pair(const struct gpu_kv_convert *a, uint32_t i, int64_t *from, int64_t *to)
{
    *from = *to = (int64_t)i;
    if (a->pairs != 0) {
        *from = gpu_at<const int64_t>(a->pairs, 2 * (uint64_t)i);
        *to = gpu_at<const int64_t>(a->pairs, 2 * (uint64_t)i + 1);
    }
    return *from >= 0 && *to >= 0 && *from < (int64_t)a->from_pages && *to < (int64_t)a->to_pages;
}

/* Whether this thread sees a later pair with the same target, which wins. */
GPU_INLINE bool gpu_kv_convert_later(const struct gpu_kv_convert *a, uint32_t i, int64_t to)
{
    bool later = false;
    int64_t other_from, other_to;

    for (uint64_t j = (uint64_t)i + 1 + gpu_thread(); a->pairs != 0 && j < a->count; j += GPU_KV_THREADS)
        later |= gpu_kv_convert_pair(a, (uint32_t)j, &other_from, &other_to) && other_to == to;
    return later;
}

/* One warp converts a vector, for this share of a page. */
GPU_INLINE void gpu_kv_convert_vectors(const struct gpu_kv_convert *a, uint32_t is_v, uint32_t part,
                                       int64_t from, int64_t to)
{
    const uint32_t all = a->block * a->heads, warps = GPU_KV_THREADS / GPU_WARP;

    for (uint32_t at = part * warps + gpu_kv_warp(); at < all; at += a->parts * warps) {
        a = (const struct gpu_kv_convert *)gpu_again(a);
        const uint32_t token = at / a->heads;
        gpu_kv_convert_one(a, is_v, token, at - token * a->heads, from, to);
    }
}

GPU_INLINE void gpu_kv_convert_rows(const struct gpu_kv_convert *a, uint32_t is_v, uint32_t part,
                                    int64_t from, int64_t to)
{
    const uint32_t warps = GPU_KV_THREADS / GPU_WARP;

    for (uint32_t first = (part * warps + gpu_kv_warp()) * a->each; first < a->block;
         first += a->parts * warps * a->each) {
        a = (const struct gpu_kv_convert *)gpu_again(a);
        const struct gpu_kv_side *one = &a->from[is_v], *two = &a->to[is_v];
        const struct gpu_kv_rows *by = &a->by_row[is_v];
        const struct gpu_kv_taken taken = gpu_kv_rows_take(first, a->each, a->block);
        struct gpu_kv_row mine = {0, 0, 0, 0, 0};
        if (taken.own < a->block) {
            mine.from = gpu_kv_vector_of(one, from, taken.own, 0).at;
            mine.to = gpu_kv_vector_of(two, to, taken.own, 0).at;
            mine.from_scale = gpu_kv_row_scale(one, from, taken.own);
            mine.to_scale = gpu_kv_row_scale(two, to, taken.own);
        }
        gpu_kv_rows_do(by, &mine, taken.rows, 0, 1, one, two);
        if (by->method == GPU_KV_MOVED && one->token_head != 0)
            gpu_kv_rows_scales(one, two->cache.scale.head_stride, &mine, taken.rows, a->heads);
    }
}

/* Grid: x takes pairs of pages; y splits each page into shares, those of keys first. */
GPU_KERNEL(gpu_kv_convert_pages, GPU_KV_THREADS, 3)(GPU_ARGUMENT(struct gpu_kv_convert, argument))
{
    const struct gpu_kv_convert *a = (const struct gpu_kv_convert *)gpu_argument(&argument);
    const uint32_t is_v = gpu_cta_y() / a->parts, part = gpu_cta_y() % a->parts;
    GPU_SHARED uint32_t later;
    int64_t from, to;

    for (uint64_t i = gpu_cta(); i < a->count; i += gpu_ctas()) {
        const bool valid = gpu_kv_convert_pair(a, (uint32_t)i, &from, &to);
        from = (int64_t)gpu_own_u64((uint64_t)from);
        to = (int64_t)gpu_own_u64((uint64_t)to);
        gpu_barrier();
        if (gpu_own_u32(gpu_thread()) == 0)
            later = 0;
        gpu_barrier();
        if (valid && gpu_kv_convert_later(a, (uint32_t)i, to))
            later = 1; /* all threads write the same value */
        gpu_barrier();
        if (!valid || later != 0)
            continue;
        const struct gpu_kv_convert *again = (const struct gpu_kv_convert *)gpu_again(a);
        if (again->by_row[is_v].method == GPU_KV_BY_VECTOR)
            gpu_kv_convert_vectors(again, is_v, part, from, to);
        else
            gpu_kv_convert_rows(again, is_v, part, from, to);
    }
}

#endif
