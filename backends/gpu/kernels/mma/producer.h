/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The warp group that copies, on Hopper: it looks up pages, copies queries, keys and values, converts 8-bit
 * ones, and tells the warp groups that multiply (consumer.h) what has arrived. These neither copy nor compute
 * addresses.
 */
#ifndef ATTN_GPU_MMA_PRODUCER_H
#define ATTN_GPU_MMA_PRODUCER_H

#include "boxes.h"
#include "convert.h"
#include "nonfinite.h"
#include "query.h"

/* Reads the page table entries of an iteration that begins at a tile. */
template <class C>
GPU_INLINE void mma_find_pages(const struct gpu_run *run, mma_producer<C> *own, uint32_t tile)
{
    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++)
        own->entries[t] = mma_find_page<C>(run, &own->range, tile, t * GPU_TILE);
}

/* Writes the addresses of these keys and values, and which keys exist. */
template <class C>
GPU_INLINE void mma_write_pages(const struct gpu_run *run, mma_shared<C> *shared, const mma_producer<C> *own,
                                uint32_t tile, uint32_t slot)
{
    const uint32_t thread = gpu_thread();

    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++) {
        mma_write_addresses<C>(run, shared, &own->range, tile, slot, t * GPU_TILE, own->entries[t]);
        if (thread >= GPU_TILE)
            continue;
        const uint32_t bits = gpu_ballot(shared->k_at[slot][t * GPU_TILE + thread] != MMA_NO_ADDRESS);
        if (thread % GPU_WARP == 0)
            ((uint32_t *)&shared->present[slot][t])[thread / GPU_WARP] = bits;
    }
}

/* Zeros in place of values that do not exist, which P of 0 is multiplied with. */
template <class C> GPU_INLINE void mma_zero_missing(const uint64_t *at, uint32_t bytes, unsigned char *to)
{
    const uint32_t chunks = GPU_TILE * bytes / 16;

    GPU_LOOP
    for (uint32_t i = gpu_thread(); i < chunks; i += C::THREADS) {
        const struct mma_chunk chunk = mma_chunk_of<C>(i, bytes);
        if (at[chunk.row] == MMA_NO_ADDRESS)
            gpu_store_u128(to + chunk.offset, mma_zero_u128());
    }
}

/* Copies the keys, or values, of an iteration into a stage, or 8-bit ones into the raw stage. True if some
 * are stored instead. */
template <class C>
GPU_INLINE bool mma_copy_iteration(const struct gpu_run *run, const mma_shared<C> *shared, unsigned char *to,
                                   uint32_t slot, uint32_t tile, bool values, bool aligned)
{
    const uint32_t bytes = values ? C::V_BYTES : C::K_BYTES;
    bool stored = !aligned;

    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++) {
        const uint32_t at = C::CONVERTS ? t * GPU_TILE * bytes : mma_swizzled<C>(t * GPU_TILE, 0, bytes);
        mma_load_stage<C>(run, shared, to + at, slot, tile, t * GPU_TILE, values, aligned);
        if (!values || shared->present[slot][t] == C::ALL_PRESENT)
            continue;
        mma_zero_missing<C>(shared->v_at[slot] + t * GPU_TILE, bytes, to + at);
        stored = true;
    }
    return stored;
}

/* Tells that a stage is full of what the thread has copied and stored. */
GPU_INLINE void mma_tell_full(uint64_t *full)
{
    gpu_copy_commit();
    GPU_COPY_WAIT(0);
    gpu_mbarrier_arrive(full);
}

/* Marks values that are not finite, where they are not trusted. What was marked before has been read. */
template <class C>
GPU_INLINE void mma_check_stage(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *values,
                                uint32_t slot, uint32_t tile, uint32_t i, uint32_t n)
{
    gpu_copy_commit();
    GPU_COPY_WAIT(0);
    mma_group_barrier<C>();
    if (i > 0)
        mma_wait_released(&shared->pipeline[1], n - 1);
    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++)
        mma_clear_nonfinite<C>(run, shared, values + mma_swizzled<C>(t * GPU_TILE, 0, C::V_ROW), slot,
                               tile + t, t * GPU_TILE);
}

/* Waits until the stage of the n-th use is empty, and begins to fill it: addresses of its vectors have been
 * written. */
template <class C> GPU_INLINE void mma_begin_fill(struct mma_pipeline *pipeline, uint32_t n)
{
    if (n >= 2)
        mma_wait_released(pipeline, n - 2);
    if (gpu_thread() == 0)
        gpu_mbarrier_arrive(&pipeline->full[n % 2]); /* for what is written behind a barrier */
}

/* Fills the stage of the keys, or values, of iteration i. */
template <class C>
GPU_INLINE void mma_fill(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                         const struct gpu_work_tile *p, mma_producer<C> *own, uint32_t i, bool values)
{
    struct mma_pipeline *pipeline = &shared->pipeline[values];
    const uint32_t n = own->used + i, slot = i % C::ADDRESS_STAGES, tile = p->first + i * C::TILES;
    unsigned char *to = mma_pipeline_stage<C>(stages, values, n);

    mma_begin_fill<C>(pipeline, n);
    const bool stored = mma_copy_iteration<C>(run, shared, to, slot, tile, values, own->aligned);
    if (values && shared->trust == MMA_CHECKED)
        mma_check_stage<C>(run, shared, to, slot, tile, i, n);
    if (stored || (values && shared->trust == MMA_CHECKED))
        mma_tell_full(&pipeline->full[n % 2]);
    else
        gpu_copy_arrive(&pipeline->full[n % 2]);
}

/*
 * The same of 8-bit ones, which have been copied into the raw stage: a thread converts the chunks that it has
 * copied itself, and copies those of the next iteration into their place.
 */
template <class C>
GPU_INLINE void mma_fill_converted(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                                   const struct gpu_work_tile *p, mma_producer<C> *own, uint32_t i,
                                   bool values)
{
    struct mma_pipeline *pipeline = &shared->pipeline[values];
    const uint32_t n = own->used + i, slot = i % C::ADDRESS_STAGES, tile = p->first + i * C::TILES;
    const uint32_t bytes = values ? C::V_BYTES : C::K_BYTES;
    unsigned char *raw = mma_raw_stage<C>(stages, 0, values), *to = mma_pipeline_stage<C>(stages, values, n);

    GPU_COPY_WAIT(1);
    mma_begin_fill<C>(pipeline, n);
    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++) {
        unsigned char *place = to + mma_swizzled<C>(t * GPU_TILE, 0, 2 * bytes);
        const unsigned char *from = raw + t * GPU_TILE * bytes;
        mma_codes<C> codes;
        mma_read_codes<C>(from, bytes, &codes);
        if (values)
            mma_convert_values<C>(run, &codes, from, place);
        else
            mma_convert_keys<C>(run, &codes, from, place);
    }
    if (i + 1 < mma_iterations<C>(p))
        mma_copy_iteration<C>(run, shared, raw, (i + 1) % C::ADDRESS_STAGES, tile + C::TILES, values,
                              own->aligned);
    gpu_copy_commit();
    if (values && shared->trust == MMA_CHECKED)
        mma_check_stage<C>(run, shared, to, slot, tile, i, n);
    gpu_mbarrier_arrive(&pipeline->full[n % 2]);
}

/* Copies queries. */
template <class C>
GPU_INLINE void mma_produce_queries(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                                    const struct gpu_work_tile *p)
{
    const bool copied = mma_write_query_addresses<C>(run, shared, p->row0, p->kv_head);

    mma_group_barrier<C>();
    if (copied) {
        mma_copy_queries<C>(shared, queries);
        gpu_copy_arrive(&shared->queries_full);
    } else {
        mma_load_queries<C>(run, shared, queries, p->row0, p->kv_head);
        gpu_mbarrier_arrive(&shared->queries_full);
    }
}

/* Copies the keys and values of the iterations from `first` on, by all threads. */
template <class C>
GPU_INLINE void mma_produce_keys(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                                 const struct gpu_work_tile *p, mma_producer<C> *own, uint32_t first)
{
    const uint32_t iterations = mma_iterations<C>(p), tile = p->first + first * C::TILES;

    mma_find_pages<C>(run, own, tile);
    mma_write_pages<C>(run, shared, own, tile, first % C::ADDRESS_STAGES);
    mma_find_pages<C>(run, own, tile + C::TILES);
    mma_group_barrier<C>();
    GPU_UNROLL
    for (uint32_t values = 0; C::CONVERTS && values < 2; values++) {
        mma_copy_iteration<C>(run, shared, mma_raw_stage<C>(stages, 0, values != 0), 0, tile, values != 0,
                              own->aligned);
        gpu_copy_commit();
    }
    if constexpr (!C::CONVERTS)
        mma_fill<C>(run, shared, stages, p, own, first, false);
    GPU_LOOP
    for (uint32_t i = first; i < iterations; i++) {
        const uint32_t next = p->first + (i + 1) * C::TILES;
        if (i + 1 < iterations) {
            mma_write_pages<C>(run, shared, own, next, (i + 1) % C::ADDRESS_STAGES);
            mma_find_pages<C>(run, own, next + C::TILES);
        }
        mma_group_barrier<C>();
        if constexpr (C::CONVERTS) {
            mma_fill_converted<C>(run, shared, stages, p, own, i, false);
            mma_fill_converted<C>(run, shared, stages, p, own, i, true);
        } else {
            /* In the order in which stages become empty. */
            if (i + 1 < iterations)
                mma_fill<C>(run, shared, stages, p, own, i + 1, false);
            mma_fill<C>(run, shared, stages, p, own, i, true);
        }
    }
}

/* Copies all that a work tile needs. */
template <class C>
GPU_INLINE void mma_produce(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                            unsigned char *stages, const struct gpu_work_tile *p, mma_producer<C> *own)
{
    const uint32_t iterations = mma_iterations<C>(p);
    uint32_t boxed = 0;

    if (iterations == 0)
        return;
    mma_begin_boxes<C>(run, shared, p, own);
    mma_zero_padding<C>(run, stages);
    if (gpu_thread() < C::TILES)
        shared->nonfinite_tile[gpu_thread()] = 0;
    mma_produce_queries<C>(run, shared, queries, p);
    if constexpr (!C::CONVERTS)
        boxed = mma_produce_boxes<C>(run, shared, stages, p, own);
    if (boxed < iterations)
        mma_produce_keys<C>(run, shared, stages, p, own, boxed);
    own->used += iterations;
}

/* The part of the warp group in a work tile. */
template <class C>
GPU_INLINE void mma_produce_tile(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                                 unsigned char *stages, const struct gpu_work_tile *p)
{
    const uint32_t keys = shared->sequence.kv_len;
    mma_producer<C> own;

    own.used = 0;
    own.aligned = run->kv_aligned != 0;
    /* Keys of the last iteration that another split has do not exist. */
    own.range = mma_key_range_of(run, &shared->sequence, p->end * GPU_TILE < keys ? p->end * GPU_TILE : keys);
    do {
        mma_produce<C>(run, shared, queries, stages, p, &own);
    } while (mma_begins_again_together<C>(shared, false));
}

#endif
