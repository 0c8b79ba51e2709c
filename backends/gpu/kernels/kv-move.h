/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Moves the contents of places in caches to other places, by pairs that take effect in order. A CTA owns a
 * slice of every place, which no other CTA reads or writes, so the order matters within a CTA alone. For each
 * place that a chunk of pairs changes, the CTA finds the last pair that writes it and the place that this
 * pair's contents come from in the end; then it reads all of these, and writes them when all are read. So
 * chains, cycles and repeated targets come out right.
 */
#ifndef ATTN_GPU_KV_MOVE_H
#define ATTN_GPU_KV_MOVE_H

#include "kv-place.h"

constexpr uint64_t GPU_KV_NOWHERE = UINT64_MAX;
/* Units that a thread keeps in registers at once. */
constexpr uint32_t GPU_KV_HELD = GPU_KV_CHUNK * GPU_KV_SLICE / GPU_KV_THREADS;

/* Bits of the filter that finds pairs which may depend on each other. */
constexpr uint32_t GPU_KV_SEEN = 1u << 17;

/* A chunk of pairs. */
struct gpu_kv_chunk {
    uint32_t seen[GPU_KV_SEEN / 32]; /* a bit for each target; cleared after each chunk */
    uint32_t dependent;              /* 1: some pairs may depend on each other */
    uint64_t from[GPU_KV_CHUNK];     /* addresses of places */
    uint64_t to[GPU_KV_CHUNK];       /* GPU_KV_NOWHERE: nothing to write */
    uint16_t before[GPU_KV_CHUNK]; /* the last earlier pair that writes what this one reads; itself if none */
};

GPU_INLINE uint64_t gpu_kv_place_address(const struct gpu_kv_places *places, int64_t place)
{
    const int64_t page = places->block == 1 ? place : place / places->block;

    return places->base +
           (uint64_t)(page * places->page_stride + (place - page * places->block) * places->token_stride);
}

/* The word and the bit of a place. */
GPU_INLINE uint32_t *gpu_kv_seen(struct gpu_kv_chunk *chunk, uint64_t place, uint32_t *bit)
{
    const uint32_t at = (uint32_t)place % GPU_KV_SEEN;

    *bit = 1u << at % 32;
    return &chunk->seen[at / 32];
}

/*
 * Reads a chunk, and finds out whether its moves can be done at once as they are: no target occurs twice, and
 * none is a source. The numbers of places are compared, so this needs them to mean the same on both sides
 * (same_address); otherwise the moves count as dependent.
 */
GPU_INLINE void gpu_kv_chunk_read(struct gpu_kv_chunk *chunk, const struct gpu_kv_move *a,
                                  const struct gpu_kv_plane *plane, uint32_t first, uint32_t count)
{
    const uint32_t i = gpu_thread();
    int64_t from = -1, to = -1;
    uint32_t bit;

    if (i == 0)
        chunk->dependent = plane->same_address == 0;
    gpu_barrier();
    if (i < count) {
        const uint64_t at = 2 * ((uint64_t)first + i);
        from = a->pairs != 0 ? GPU_GLOBAL(const int64_t, a->pairs)[at] : a->here[at];
        to = a->pairs != 0 ? GPU_GLOBAL(const int64_t, a->pairs)[at + 1] : a->here[at + 1];
    }
    const bool valid =
        from >= 0 && to >= 0 && (uint64_t)from < plane->from.places && (uint64_t)to < plane->to.places;
    if (i < count) {
        chunk->from[i] = valid ? gpu_kv_place_address(&plane->from, from) : 0;
        chunk->to[i] = valid ? gpu_kv_place_address(&plane->to, to) : GPU_KV_NOWHERE;
    }
    uint32_t *const target = gpu_kv_seen(chunk, (uint64_t)to, &bit);
    if (valid && (gpu_atomic_or(target, bit) & bit) != 0)
        chunk->dependent = 1; /* all threads write the same value */
    gpu_barrier();
    if (valid && (*gpu_kv_seen(chunk, (uint64_t)from, &bit) & bit) != 0)
        chunk->dependent = 1;
    gpu_barrier();
    if (valid)
        *target = 0;
    gpu_barrier();
}

/* Turns pairs that take effect in order into moves that can be done at once. */
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
        all = gpu_load_global_u128(at);
    } else if (unit == 8) {
        const uint64_t two = gpu_at<const uint64_t>(at, 0);
        all.x[0] = (uint32_t)two;
        all.x[1] = (uint32_t)(two >> 32);
    } else {
        all.x[0] = unit == 4   ? gpu_at<const uint32_t>(at, 0)
                   : unit == 2 ? gpu_at<const uint16_t>(at, 0)
                               : gpu_at<const uint8_t>(at, 0);
    }
    return all;
}

GPU_INLINE void gpu_kv_unit_store(uint64_t at, uint32_t unit, struct gpu_u128 all)
{
    if (unit == 16)
        gpu_store_global_u128(at, all);
    else if (unit == 8)
        gpu_at<uint64_t>(at, 0) = (uint64_t)all.x[1] << 32 | all.x[0];
    else if (unit == 4)
        gpu_at<uint32_t>(at, 0) = all.x[0];
    else if (unit == 2)
        gpu_at<uint16_t>(at, 0) = (uint16_t)all.x[0];
    else
        gpu_at<uint8_t>(at, 0) = (uint8_t)all.x[0];
}

/* Addresses of a unit from those of its places. */
GPU_INLINE void gpu_kv_unit_offsets(const struct gpu_kv_plane *plane, uint64_t unit, uint64_t *from,
                                    uint64_t *to)
{
    const struct gpu_kv_places *one = &plane->from, *two = &plane->to;
    const bool small = plane->units >> 32 == 0; /* nearly always, and 32-bit division is much faster */
    const uint64_t outer = small ? (uint32_t)unit / (uint32_t)plane->n0 : unit / plane->n0;
    const uint64_t n2 = small ? (uint32_t)outer / (uint32_t)plane->n1 : outer / plane->n1;
    const uint64_t n1 = outer - n2 * plane->n1, rest = (unit - outer * plane->n0) * plane->unit;

    *from = (uint64_t)((int64_t)n2 * one->stride2 + (int64_t)n1 * one->stride1) + rest;
    *to = (uint64_t)((int64_t)n2 * two->stride2 + (int64_t)n1 * two->stride1) + rest;
}

/* Moves one slice of a plane for all pairs. Neighbouring threads have neighbouring units. */
GPU_INLINE void gpu_kv_move_slice(struct gpu_kv_chunk *chunk, const struct gpu_kv_move *a,
                                  const struct gpu_kv_plane *plane, uint64_t slice)
{
    const uint32_t size = 1u << a->slice_shift, mine = gpu_thread() >> a->slice_shift;
    const uint32_t step = GPU_KV_THREADS >> a->slice_shift, pairs = step * GPU_KV_HELD;
    const uint64_t unit = (slice << a->slice_shift) + (gpu_thread() & (size - 1));
    const bool there = unit < plane->units;
    uint64_t from, to;
    struct gpu_u128 held[GPU_KV_HELD];

    gpu_kv_unit_offsets(plane, there ? unit : 0, &from, &to);
    for (uint32_t first = 0; first < a->count; first += pairs) {
        const uint32_t left = a->count - first, count = left < pairs ? left : pairs;
        gpu_kv_chunk_read(chunk, a, plane, first, count);
        if (chunk->dependent != 0)
            gpu_kv_chunk_resolve(chunk, count);
        GPU_UNROLL
        for (uint32_t k = 0; k < GPU_KV_HELD; k++) {
            const uint32_t i = k * step + mine;
            held[k].x[0] = held[k].x[1] = held[k].x[2] = held[k].x[3] = 0;
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

GPU_KERNEL(gpu_kv_move_pairs, GPU_KV_THREADS, 4)(GPU_ARGUMENT(struct gpu_kv_move, a))
{
    GPU_SHARED struct gpu_kv_chunk chunk;

    for (uint32_t i = gpu_thread(); i < GPU_KV_SEEN / 32; i += GPU_KV_THREADS)
        chunk.seen[i] = 0;
    gpu_barrier();
    for (uint64_t slice = gpu_cta(); slice < a.slices; slice += gpu_ctas()) {
        uint32_t n = 0;
        while (n + 1 < a.plane_count && slice >= a.planes[n + 1].first)
            n++;
        gpu_kv_move_slice(&chunk, &a, &a.planes[n], slice - a.planes[n].first);
    }
}

#endif
