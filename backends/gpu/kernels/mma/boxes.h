/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Keys and values that the copy engine for tensors (TMA) copies, on Hopper: those of iterations of which
 * every key exists and lies in the cache. What is left is copied by all threads (producer.h).
 */
#ifndef ATTN_GPU_MMA_BOXES_H
#define ATTN_GPU_MMA_BOXES_H

#include "../convert.h"
#include "pipeline.h"

/* What the warp group that copies keeps from one KV iteration to the next. */
template <class C> struct mma_producer {
    struct mma_key_range range;
    struct gpu_entry entries[C::TILES]; /* of the next iteration */
    struct gpu_entry box;               /* the same of a lane's box */
    uint32_t boxed;                     /* iterations that may be copied as boxes */
    uint32_t used;                      /* uses of the buffers before the work tile */
    bool aligned;
    bool cleared; /* shared memory may hold anything: results of a tile were gathered there */
    /* Of the warp that looks up work tiles: positions of the last two in the work list, how many that has,
     * whether others may be left, and whether the next one has been looked up. */
    uint32_t at, before, all;
    bool left, looked_up;
    bool ahead; /* of the warp that copies keys: those of the first iteration are under way */
};

/* The box of a lane, the same of keys and of values: consecutive tokens of a page. */
struct mma_box {
    uint32_t page, token;
    bool exists;
};

/* How many of the first iterations have only keys that the cache holds, as far as lengths tell. */
template <class C>
GPU_INLINE uint32_t mma_cached_iterations(const struct gpu_run *run, const struct mma_computed *tile,
                                          const mma_producer<C> *own)
{
    const uint32_t cached = tile->sequence.new_begin, keys = own->range.keys, first = tile->work.first;
    const uint32_t end = (cached < keys ? cached : keys) / GPU_TILE;

    if (C::E4M3) /* the workspace has whole iterations */
        return mma_iterations<C>(&tile->work);
    if (run->box_tokens == 0 || tile->trust == MMA_CHECKED || end <= first)
        return 0;
    return (end - first) / C::TILES;
}

/* The first key of a lane's box of an iteration that begins at a tile; lanes behind the last box have that of
 * the first. */
template <class C> GPU_INLINE uint32_t mma_box_key(const struct gpu_run *run, uint32_t tile)
{
    const uint32_t key = gpu_thread() % GPU_WARP * run->box_tokens;

    return tile * GPU_TILE + (key < C::KEYS ? key : 0);
}

/* Reads the page table entry of a box. */
template <class C>
GPU_INLINE struct gpu_entry mma_find_box(const struct gpu_run *run, const mma_producer<C> *own, uint32_t tile)
{
    struct gpu_entry entry = {0, 0};

    if (own->range.entries != 0)
        entry = gpu_entry(run, own->range.entries, mma_box_key<C>(run, tile));
    return entry;
}

template <class C>
GPU_INLINE struct mma_box mma_box_of(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t tile,
                                     struct gpu_entry entry)
{
    struct gpu_place place;

    gpu_place_of(run, s, mma_box_key<C>(run, tile), entry, &place);
    const struct mma_box box = {(uint32_t)place.page, (uint32_t)place.token,
                                place.page >= 0 && place.page <= INT32_MAX};
    return box;
}

/* Warps of the group that copies: one begins the boxes of keys, two those of values, which are waited for
 * sooner after their stage is empty, and one looks up the next work tile meanwhile. */
enum mma_copy_warp { MMA_WARP_KEYS, MMA_WARP_VALUES, MMA_WARP_TILES, MMA_WARP_VALUES_TOO };

/* Copies the scales of the keys of iteration i, which lie one behind the other, by four bytes: their order is
 * another one in shared memory. */
template <class C>
GPU_INLINE void mma_copy_box_scales(const struct gpu_run *run, mma_shared<C> *shared,
                                    const mma_producer<C> *own, uint32_t i, uint32_t kv_head,
                                    struct mma_box box, uint64_t *full)
{
    constexpr uint32_t each = C::KEYS / GPU_WARP;
    const struct gpu_scale *scale = &run->k.scale;
    const uint32_t key = gpu_thread() % GPU_WARP * each, slot = (own->used + i) % C::ADDRESS_STAGES;
    const uint64_t first =
        scale->base + (uint64_t)((int64_t)gpu_shuffle_u32(box.page, 0) * scale->outer_stride +
                                 (int64_t)gpu_shuffle_u32(box.token, 0) * scale->token_stride +
                                 (int64_t)kv_head * scale->head_stride);

    GPU_UNROLL
    for (uint32_t j = 0; j < each; j++)
        gpu_copy_async4(&shared->k_scale[slot][mma_scale_at<C>(key + j)], first + (key + j) * sizeof(float));
    gpu_copy_arrive(full);
}

/*
 * Copies every `step`-th box of the keys, or values, of iteration i into their stage, from `half` on. Each
 * lane begins those of its tokens: what a lane has is handed to the copy engine faster than what is shuffled
 * to one.
 */
template <class C, bool values>
GPU_INLINE void mma_copy_boxes(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                               const mma_producer<C> *own, uint32_t i, uint32_t half, uint32_t kv_head,
                               struct mma_box box)
{
    constexpr uint32_t blocks = (values ? C::V_ROW : C::K_ROW) / 128, step = values ? 2 : 1;
    static_assert(C::KEYS / GPU_TILE * blocks % step == 0, "all warps have as many boxes, of at most a tile");
    struct mma_pipeline *pipeline = &shared->pipeline[values];
    const struct gpu_tensor_map *map = values ? &run->v_map : &run->k_map;
    const uint32_t n = own->used + i, lane = gpu_thread() % GPU_WARP, bytes = run->box_tokens * 128;
    unsigned char *to = mma_pipeline_stage<C>(stages, values, n) + lane * bytes;
    const bool has_box = lane * run->box_tokens < C::KEYS;
    uint64_t *full = &pipeline->full[n % 2];

    if (n >= 2)
        mma_wait_released(pipeline, n - 2);
    if (lane == 0)
        gpu_mbarrier_expect(full, C::KEYS * 128 * blocks / step);
    gpu_warp_barrier();
    if constexpr (C::E4M3 && values) { /* a box of columns of values, which are rows of all keys */
        constexpr uint32_t rows = C::V_ROWS / step;
        if (lane == 0)
            gpu_copy_box(to + half * rows * GPU_E4M3_ROW, map, 0, half * rows, kv_head, box.page, full);
    }
    GPU_UNROLL
    for (uint32_t c = 0; !(C::E4M3 && values) && c < blocks; c++)
        if (has_box && (lane * blocks + c) % step == half)
            gpu_copy_box(to + c * C::BLOCK_BYTES, map, c * 64, box.token, kv_head, box.page, full);
    constexpr bool scaled = C::SCALED && !values;
    if constexpr (scaled)
        mma_copy_box_scales<C>(run, shared, own, i, kv_head, box, full);
    if (lane == 0)
        gpu_mbarrier_arrive_as(full, C::THREADS / step + (half == 0 ? 1 : 0) - (scaled ? GPU_WARP : 0));
}

/* Whether queries are copied as boxes. */
template <class C> GPU_INLINE bool mma_has_query_boxes(const struct gpu_run *run)
{
    return C::WGMMA && !C::CONVERTS && run->query_box != 0;
}

/* Copies the queries of the n-th work tile as boxes of 64 columns, by one thread. Rows behind the sequence's
 * last are those of the next one. */
template <class C>
GPU_INLINE void mma_copy_query_boxes(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                                     const struct mma_computed *tile, uint32_t n)
{
    uint64_t *full = &shared->handover.queries_full[n % 2];
    const uint32_t token = tile->sequence.row + tile->work.row0 / run->group;

    if (mma_iterations<C>(&tile->work) > 0) {
        gpu_mbarrier_expect(full, C::ROWS * C::Q_ROW);
        GPU_UNROLL
        for (uint32_t row = 0; row < C::ROWS; row += C::QUERY_BOX) {
            GPU_UNROLL
            for (uint32_t c = 0; c < C::Q_ROW / 128; c++)
                gpu_copy_box(queries + mma_swizzled<C>(row, 0, C::Q_ROW) + c * C::BLOCK_BYTES, &run->q_map,
                             c * 64, 0, token + row / run->group, tile->work.kv_head, full);
        }
    }
    gpu_mbarrier_arrive_as(full, C::THREADS);
}

/* Finds the iterations that may be copied as boxes, and reads the page table entries of the first one from
 * `first` on. */
template <class C>
GPU_INLINE void mma_begin_boxes(const struct gpu_run *run, const struct mma_computed *tile,
                                mma_producer<C> *own, uint32_t first)
{
    own->boxed = C::CONVERTS ? 0 : mma_cached_iterations<C>(run, tile, own);
    if (own->boxed > first)
        own->box = mma_find_box<C>(run, own, tile->work.first + first * C::TILES);
}

/* Which keys of iteration i exist, and of which values are NaN, as the workspace has it. */
template <class C>
GPU_INLINE void mma_find_marks(const struct gpu_run *run, mma_shared<C> *shared,
                               const struct mma_computed *work, const mma_producer<C> *own, uint32_t i,
                               struct mma_box box)
{
    const uint32_t slot = (own->used + i) % C::ADDRESS_STAGES, tile = work->work.first + i * C::TILES;
    const uint32_t unit = box.page * run->problem.kv_heads + work->work.kv_head;

    if (gpu_thread() % GPU_WARP != 0)
        return;
    const struct gpu_marks *marks = GPU_GLOBAL(const struct gpu_marks, run->marks) + unit;
    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++)
        shared->present[slot][t] =
            tile + t >= work->work.first + work->lead && tile + t < work->work.end ? marks->present[t] : 0;
    shared->handover.nonfinite_at[slot] = marks->nonfinite != 0 ? (uint64_t)marks->values : 0;
}

/* A warp's share of iterations from i on until a key does not exist; returns where. */
template <class C, bool values>
GPU_INLINE uint32_t mma_copy_box_iterations(const struct gpu_run *run, mma_shared<C> *shared,
                                            unsigned char *stages, const struct mma_computed *work,
                                            mma_producer<C> *own, uint32_t half, uint32_t i, uint32_t end)
{
    const uint32_t kv_head = work->work.kv_head;

    GPU_LOOP
    for (; i < end; i++) {
        const uint32_t tile = work->work.first + i * C::TILES;
        const struct mma_box box = mma_box_of<C>(run, &work->sequence, tile, own->box);
        if (i + 1 < own->boxed)
            own->box = mma_find_box<C>(run, own, tile + C::TILES);
        if (gpu_ballot(!box.exists) != 0)
            break;
        if constexpr (C::E4M3 && !values) {
            mma_find_marks<C>(run, shared, work, own, i, box);
        } else if (!values && gpu_thread() == 0) {
            GPU_UNROLL
            for (uint32_t t = 0; t < C::TILES; t++)
                shared->present[(own->used + i) % C::ADDRESS_STAGES][t] = C::ALL_PRESENT;
        }
        mma_copy_boxes<C, values>(run, shared, stages, own, i, half, kv_head, box);
    }
    return i;
}

#endif
