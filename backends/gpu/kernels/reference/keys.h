/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which keys a row of the reference kernel sees, and where the query and these keys lie. */
#ifndef ATTN_GPU_REFERENCE_KEYS_H
#define ATTN_GPU_REFERENCE_KEYS_H

#include "config.h"

static_assert(ATTN_BLOCK_ELEMENTS == GPU_WARP, "lanes have the elements of a block");

GPU_INLINE struct reference_columns reference_columns_of(const struct gpu_cache *cache, uint32_t lane)
{
    struct reference_columns columns;

    columns.first = 0;
    columns.step = gpu_block_bytes(cache->dtype);
    if (gpu_has_blocks(cache->dtype))
        return columns;
    columns.first = gpu_column(cache, lane);
    columns.step = gpu_column(cache, GPU_WARP); /* GPU_WARP is a multiple of x, or vectors are contiguous */
    return columns;
}

/* Loads the query's columns of this lane, and clears the sums. */
template <class Config>
GPU_INLINE void reference_begin(const struct gpu_run *run, struct reference_warp<Config> *w, uint32_t head,
                                uint32_t row)
{
    const struct attn_problem *p = &run->problem;
    const uint32_t split = run->q_rope.base != 0 ? p->head_dim_vo : p->head_dim, size = GPU_SIZE(p->q_dtype);
    const uint64_t q = run->q.base + (uint64_t)(row * run->q.token_stride + head * run->q.head_stride);
    const uint64_t rope =
        run->q_rope.base + (uint64_t)(row * run->q_rope.token_stride + head * run->q_rope.head_stride);

    w->kv_head = head / run->group;
    w->q_scale = (double)gpu_scale_at(&run->q_scale, w->s.index, row, head / run->q_scale_group);
    w->k = reference_columns_of(&run->k, w->lane);
    w->v = reference_columns_of(&run->v, w->lane);
    w->row_max = -GPU_INFINITY;
    w->row_sum = 0;
    GPU_UNROLL
    for (uint32_t i = 0; i < Config::lane_columns; i++) {
        const uint32_t d = i * GPU_WARP + w->lane;
        w->q[i] = w->tile[i] = w->span[i] = w->total[i * GPU_WARP] = 0;
        if (d < p->head_dim)
            w->q[i] = gpu_load(
                p->q_dtype, GPU_U8(d < split ? q + (uint64_t)d * size : rope + (uint64_t)(d - split) * size));
    }
}

/* Finds one key per lane, from `first` on and below `end`. */
template <class Config>
GPU_INLINE void reference_find_keys(const struct gpu_run *run, const struct reference_warp<Config> *w,
                                    uint32_t first, uint32_t end, struct reference_keys *out)
{
    const uint32_t key = first + w->lane;
    struct gpu_place place;
    bool seen = key >= w->row.lo && key < end;

    out->bias = 0;
    out->k = out->v = 0;
    out->k_scale = out->v_scale = 1;
    place.is_new = false;
    seen = seen && gpu_sees(run, &w->s, &w->row, key, &out->bias);
    seen = seen && gpu_locate(run, &w->s, key, &place);
    if (seen) {
        const struct gpu_cache *k = place.is_new ? &run->k_new : &run->k;
        const struct gpu_cache *v = place.is_new ? &run->v_new : &run->v;
        out->k = gpu_vector(k, place.page, place.token, w->kv_head);
        out->v = gpu_vector(v, place.page, place.token, w->kv_head);
        out->k_scale = gpu_scale_at(&k->scale, place.outer, place.token, w->kv_head);
        out->v_scale = gpu_scale_at(&v->scale, place.outer, place.token, w->kv_head);
    }
    out->seen = gpu_ballot(seen);
    out->is_new = gpu_ballot(seen && place.is_new);
    if (out->seen == 0)
        return;
    const uint32_t leader = gpu_first_bit(out->seen);
    const uint64_t k = gpu_shuffle_u64(out->k, leader), v = gpu_shuffle_u64(out->v, leader);
    if (!seen) {
        out->k = k;
        out->v = v;
    }
    if (out->is_new >> leader & 1)
        out->is_new |= ~out->seen;
}

#endif
