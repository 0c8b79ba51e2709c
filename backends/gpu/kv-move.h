/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Moves what is at places of caches to other places, by pairs that take effect in order. A CTA owns a slice
 * of every place and no other touches it, so that it alone has to keep the order. Of a chunk of pairs it
 * finds out, for every place that changes, which pair is the last to write it and where that pair's contents
 * come from in the end; then it reads all of them, and writes them when all are read. That holds for chains,
 * cycles and targets that come twice.
 */
#ifndef ATTN_GPU_KV_MOVE_H
#define ATTN_GPU_KV_MOVE_H

#include "kv-side.h"

#define GPU_KV_NOWHERE UINT64_MAX
/* Units that a thread holds at once. */
#define GPU_KV_HELD (GPU_KV_CHUNK * GPU_KV_SLICE / GPU_KV_THREADS)

/* A chunk of pairs. */
struct gpu_kv_chunk {
    uint64_t from[GPU_KV_CHUNK];   /* addresses of places */
    uint64_t to[GPU_KV_CHUNK];     /* GPU_KV_NOWHERE: nothing is written */
    uint16_t before[GPU_KV_CHUNK]; /* the last earlier pair that writes what this one reads; itself if none */
};

GPU_INLINE uint64_t gpu_kv_lane_at(const struct gpu_kv_lane *lane, int64_t place)
{
    const int64_t page = lane->block == 1 ? place : place / lane->block;

    return lane->base +
           (uint64_t)(page * lane->page_stride + (place - page * lane->block) * lane->token_stride);
}

GPU_INLINE void gpu_kv_chunk_read(struct gpu_kv_chunk *chunk, const struct gpu_kv_move *a,
                                  const struct gpu_kv_plane *plane, uint32_t first, uint32_t count)
{
    const uint32_t i = gpu_thread();

    if (i >= count)
        return;
    const uint64_t at = 2 * ((uint64_t)first + i);
    const int64_t from = a->pairs != 0 ? GPU_AT(const int64_t, a->pairs, at) : a->here[at];
    const int64_t to = a->pairs != 0 ? GPU_AT(const int64_t, a->pairs, at + 1) : a->here[at + 1];
    const bool valid =
        from >= 0 && to >= 0 && (uint64_t)from < plane->from.places && (uint64_t)to < plane->to.places;
    chunk->from[i] = valid ? gpu_kv_lane_at(&plane->from, from) : 0;
    chunk->to[i] = valid ? gpu_kv_lane_at(&plane->to, to) : GPU_KV_NOWHERE;
}

/* From pairs in order to moves that can be done at once. */
GPU_INLINE void gpu_kv_chunk_resolve(struct gpu_kv_chunk *chunk, uint32_t count)
{
    const uint32_t i = gpu_thread();
    const uint64_t from = i < count ? chunk->from[i] : 0;
    const uint64_t to = i < count ? chunk->to[i] : GPU_KV_NOWHERE;
    uint32_t before = i, last = i;

    for (uint32_t j = 0; j < count; j++) {
        const uint64_t written = chunk->to[j];
        before = j < i && written == from ? j : before;
        last = j > i && written == to ? j : last;
    }
    if (i < count)
        chunk->before[i] = (uint16_t)before;
    gpu_barrier();
    uint32_t root = i;
    while (i < count && chunk->before[root] != root)
        root = chunk->before[root];
    const uint64_t source = i < count ? chunk->from[root] : 0;
    gpu_barrier();
    if (i < count) {
        chunk->from[i] = source;
        chunk->to[i] = last == i && source != to ? to : GPU_KV_NOWHERE;
    }
    gpu_barrier();
}

GPU_INLINE struct gpu_u128 gpu_kv_unit_load(uint64_t at, uint32_t unit)
{
    struct gpu_u128 all;

    all.x[0] = all.x[1] = all.x[2] = all.x[3] = 0;
    if (unit == 16) {
        all = gpu_load_u128((const void *)(uintptr_t)at);
    } else if (unit == 8) {
        const uint64_t two = GPU_AT(const uint64_t, at, 0);
        all.x[0] = (uint32_t)two;
        all.x[1] = (uint32_t)(two >> 32);
    } else {
        all.x[0] = unit == 4   ? GPU_AT(const uint32_t, at, 0)
                   : unit == 2 ? GPU_AT(const uint16_t, at, 0)
                               : GPU_AT(const uint8_t, at, 0);
    }
    return all;
}

GPU_INLINE void gpu_kv_unit_store(uint64_t at, uint32_t unit, struct gpu_u128 all)
{
    if (unit == 16)
        gpu_store_u128((void *)(uintptr_t)at, all);
    else if (unit == 8)
        GPU_AT(uint64_t, at, 0) = (uint64_t)all.x[1] << 32 | all.x[0];
    else if (unit == 4)
        GPU_AT(uint32_t, at, 0) = all.x[0];
    else if (unit == 2)
        GPU_AT(uint16_t, at, 0) = (uint16_t)all.x[0];
    else
        GPU_AT(uint8_t, at, 0) = (uint8_t)all.x[0];
}

/* Address of a unit from that of its place. */
GPU_INLINE uint64_t gpu_kv_unit_offset(const struct gpu_kv_plane *plane, const struct gpu_kv_lane *lane,
                                       uint64_t unit)
{
    const uint64_t outer = unit / plane->n0, n2 = outer / plane->n1;

    return (uint64_t)((int64_t)n2 * lane->stride2 + (int64_t)(outer - n2 * plane->n1) * lane->stride1) +
           (unit - outer * plane->n0) * plane->unit;
}

/* All pairs for one slice of a plane. Thread t has unit t % GPU_KV_SLICE of it. */
GPU_INLINE void gpu_kv_move_slice(struct gpu_kv_chunk *chunk, const struct gpu_kv_move *a,
                                  const struct gpu_kv_plane *plane, uint64_t slice)
{
    const uint64_t unit = slice * GPU_KV_SLICE + gpu_thread() % GPU_KV_SLICE;
    const bool there = unit < plane->units;
    const uint64_t from = gpu_kv_unit_offset(plane, &plane->from, unit);
    const uint64_t to = gpu_kv_unit_offset(plane, &plane->to, unit);
    const uint32_t step = GPU_KV_THREADS / GPU_KV_SLICE, mine = gpu_thread() / GPU_KV_SLICE;
    struct gpu_u128 held[GPU_KV_HELD];

    for (uint32_t first = 0; first < a->count; first += GPU_KV_CHUNK) {
        const uint32_t left = a->count - first, count = left < GPU_KV_CHUNK ? left : GPU_KV_CHUNK;
        gpu_kv_chunk_read(chunk, a, plane, first, count);
        gpu_barrier();
        gpu_kv_chunk_resolve(chunk, count);
        GPU_UNROLL
        for (uint32_t k = 0; k < GPU_KV_HELD; k++) {
            const uint32_t i = k * step + mine;
            if (there && i < count && chunk->to[i] != GPU_KV_NOWHERE)
                held[k] = gpu_kv_unit_load(chunk->from[i] + from, plane->unit);
        }
        gpu_barrier();
        GPU_UNROLL
        for (uint32_t k = 0; k < GPU_KV_HELD; k++) {
            const uint32_t i = k * step + mine;
            if (there && i < count && chunk->to[i] != GPU_KV_NOWHERE)
                gpu_kv_unit_store(chunk->to[i] + to, plane->unit, held[k]);
        }
        gpu_barrier();
    }
}

GPU_KERNEL(gpu_kv_move_pairs, GPU_KV_THREADS, 3)(GPU_ARGUMENT(struct gpu_kv_move, a))
{
    GPU_SHARED struct gpu_kv_chunk chunk;

    for (uint64_t slice = gpu_cta(); slice < a.slices; slice += gpu_ctas()) {
        uint32_t n = 0;
        while (n + 1 < a.plane_count && slice >= a.planes[n + 1].first)
            n++;
        gpu_kv_move_slice(&chunk, &a, &a.planes[n], slice - a.planes[n].first);
    }
}

#endif
