/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Vectors of a cache into contiguous rows, and pages into a cache of another type or layout: a warp each. */
#ifndef ATTN_GPU_KV_GATHER_H
#define ATTN_GPU_KV_GATHER_H

#include "kv-side.h"

/* ---------------------------------------------------------------- gather */

GPU_INLINE void gpu_kv_put_zeros(const struct gpu_kv_vector *to, uint32_t dim, uint32_t wide)
{
    const uint32_t zeros[4] = {0, 0, 0, 0};

    for (uint32_t d = gpu_thread() % GPU_WARP * wide; d < dim; d += GPU_WARP * wide)
        gpu_kv_put(to, d, wide, zeros);
}

/* One vector of one half, which is wanted. */
GPU_INLINE void gpu_kv_gather_one(const struct gpu_kv_gather *a, uint32_t row, uint32_t half, uint32_t head,
                                  bool hole, int64_t page, int64_t token)
{
    const struct gpu_kv_side *side = &a->from[half];
    const struct gpu_kv_vector to = gpu_kv_vector_in(&a->to[half], a->to_dtype[half], row, head);
    const uint32_t dim = side->cache.dim, wide = a->wide[half];
    const float scale = hole ? 1 : gpu_kv_scale(side, page, token, head);
    float values[4];

    if (a->scales[half].base != 0 && gpu_thread() % GPU_WARP == 0)
        GPU_AT(float, gpu_kv_vector_in(&a->scales[half], ATTN_F32, row, head).at, 0) = scale;
    if (hole) {
        gpu_kv_put_zeros(&to, dim, wide);
        return;
    }
    const struct gpu_kv_vector from = gpu_kv_vector_of(side, page, token, head);
    if (a->moved[half] != 0) {
        gpu_kv_copy_vector(&from, &to, dim, wide);
        return;
    }
    for (uint32_t d = gpu_thread() % GPU_WARP * wide; d < dim; d += GPU_WARP * wide) {
        gpu_kv_load(&from, d, wide, scale, values);
        gpu_kv_store(&to, d, wide, values);
    }
}

GPU_KERNEL(gpu_kv_gather_rows, GPU_KV_THREADS, 4)(GPU_ARGUMENT(struct gpu_kv_gather, a))
{
    const uint32_t vectors = 2 * a.heads, warps = GPU_KV_THREADS / GPU_WARP;
    const uint64_t all = (uint64_t)a.tokens * vectors;
    int64_t page = 0, token = 0;

    for (uint64_t at = (uint64_t)gpu_cta() * warps + gpu_kv_warp(); at < all;
         at += (uint64_t)gpu_ctas() * warps) {
        const uint32_t row = (uint32_t)(at / vectors), which = (uint32_t)(at - (uint64_t)row * vectors);
        const uint32_t half = which / a.heads;
        if (a.to[half].base == 0 || !gpu_kv_has_row(a.offsets, a.batch.seqs, row))
            continue;
        const uint32_t seq = gpu_kv_find(a.offsets, a.batch.seqs, row);
        const uint32_t start = a.starts != 0 ? (uint32_t)GPU_AT(const int32_t, a.starts, seq) : 0;
        const uint32_t key = start + row - (uint32_t)GPU_AT(const int32_t, a.offsets, seq);
        const bool hole = !gpu_kv_locate(&a.batch, seq, key, &page, &token);
        gpu_kv_gather_one(&a, row, half, which - half * a.heads, hole, page, token);
    }
}

/* ---------------------------------------------------------------- convert */

GPU_INLINE void gpu_kv_convert_one(const struct gpu_kv_convert *a, uint32_t half, uint32_t token,
                                   uint32_t head, int64_t from_page, int64_t to_page)
{
    const struct gpu_kv_side *from = &a->from[half], *to = &a->to[half];
    const struct gpu_kv_vector source = gpu_kv_vector_of(from, from_page, token, head);
    const float scale = gpu_kv_scale(from, from_page, token, head);

    if (a->moved[half] == 0) {
        gpu_kv_write_vector(&source, scale, to, to_page, token, head, a->wide[half]);
        return;
    }
    const struct gpu_kv_vector target = gpu_kv_vector_of(to, to_page, token, head);
    gpu_kv_copy_vector(&source, &target, to->cache.dim, a->wide[half]);
    if (from->token_head != 0 && gpu_thread() % GPU_WARP == 0)
        GPU_AT(float, gpu_kv_scale_place(&to->cache.scale, to_page, token, head), 0) = scale;
}

/* Pages of pair i; false if it is to be left out. */
GPU_INLINE bool gpu_kv_convert_pair(const struct gpu_kv_convert *a, uint32_t i, int64_t *from, int64_t *to)
{
    *from = *to = (int64_t)i;
    if (a->pairs != 0) {
        *from = GPU_AT(const int64_t, a->pairs, 2 * (uint64_t)i);
        *to = GPU_AT(const int64_t, a->pairs, 2 * (uint64_t)i + 1);
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

/* A CTA per pair (x) and part of a page (y, `parts` of them). */
GPU_KERNEL(gpu_kv_convert_pages, GPU_KV_THREADS, 4)(GPU_ARGUMENT(struct gpu_kv_convert, a))
{
    const uint32_t vectors = a.halves * a.heads, warps = GPU_KV_THREADS / GPU_WARP;
    const uint64_t all = (uint64_t)a.block * vectors;
    GPU_SHARED uint32_t later;
    int64_t from, to;

    for (uint64_t i = gpu_cta(); i < a.count; i += gpu_ctas()) {
        const bool valid = gpu_kv_convert_pair(&a, (uint32_t)i, &from, &to);
        gpu_barrier();
        if (gpu_thread() == 0)
            later = 0;
        gpu_barrier();
        if (valid && gpu_kv_convert_later(&a, (uint32_t)i, to))
            later = 1; /* all write the same */
        gpu_barrier();
        for (uint64_t at = (uint64_t)gpu_cta_y() * warps + gpu_kv_warp(); valid && later == 0 && at < all;
             at += (uint64_t)a.parts * warps) {
            const uint32_t token = (uint32_t)(at / vectors),
                           which = (uint32_t)(at - (uint64_t)token * vectors);
            const uint32_t half = which / a.heads;
            gpu_kv_convert_one(&a, half, token, which - half * a.heads, from, to);
        }
    }
}

#endif
