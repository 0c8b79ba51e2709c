/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Asynchronous copies of keys and values from global memory into the stages of shared memory. */
#ifndef ATTN_GPU_MMA_LOAD_H
#define ATTN_GPU_MMA_LOAD_H

#include "any.h"

GPU_INLINE struct gpu_u128 mma_zero_u128(void)
{
    struct gpu_u128 out = {{0, 0, 0, 0}};
    return out;
}

/* The elements of a 16-byte chunk of a vector, read one by one; zero behind the last one. */
GPU_INLINE struct gpu_u128 mma_gather_chunk(const struct gpu_cache *cache, uint64_t vector, uint32_t chunk)
{
    struct gpu_u128 out = {{0, 0, 0, 0}};
    const uint32_t size = cache->size, each = 16 / size;

    for (uint32_t e = 0; e < each; e++) {
        const uint32_t d = chunk * each + e;
        if (d >= cache->dim)
            break;
        const unsigned char *at = GPU_U8(vector + (uint64_t)gpu_column(cache, d));
        for (uint32_t b = 0; b < size; b++)
            out.x[(e * size + b) / 4] |= (uint32_t)at[b] << (8 * ((e * size + b) % 4));
    }
    return out;
}

/* Threads of a copy that share a row. */
GPU_INLINE uint32_t mma_row_threads(uint32_t bytes)
{
    return bytes % 128 == 0 ? 8 : 4;
}

/* A 16-byte chunk of a tile: its row and column, and where it is in a stage. */
struct mma_chunk {
    uint32_t row, column;
    uint32_t offset;
};

/*
 * Chunk i of a tile, of thread i % GROUP_THREADS. In raw stages these are the chunks that the thread copies
 * with mma_copy, and they lie in the order of their numbers.
 */
template <class C> GPU_INLINE struct mma_chunk mma_chunk_of(uint32_t i, uint32_t bytes)
{
    const uint32_t chunks = bytes / 16;
    struct mma_chunk chunk;

    if constexpr (C::CONVERTS) {
        const uint32_t threads = mma_row_threads(bytes), thread = i % 128, own = i / 128;
        chunk.row = thread / threads * (threads / 2) + own / (chunks / threads);
        chunk.column = (thread % threads + own % (chunks / threads) * threads) * 16;
        chunk.offset = i * 16;
    } else {
        chunk.row = i / chunks;
        chunk.column = i % chunks * 16;
        chunk.offset = mma_swizzled<C>(chunk.row, i % chunks, bytes);
    }
    return chunk;
}

/* Copies vectors that are not 16-byte aligned, or not contiguous. */
template <class C>
GPU_INLINE void mma_copy_stage_unaligned(const struct gpu_cache *cached, const struct gpu_cache *uncached,
                                         const uint64_t *at, uint32_t first_new, uint32_t bytes,
                                         unsigned char *to)
{
    const uint32_t chunks = bytes / 16;

    GPU_LOOP
    for (uint32_t i = gpu_thread() % C::GROUP_THREADS; i < C::GROUP_KEYS * chunks; i += C::GROUP_THREADS) {
        const struct mma_chunk chunk = mma_chunk_of<C>(i, bytes);
        if (at[chunk.row] != MMA_NO_ADDRESS)
            gpu_store_u128(to + chunk.offset, mma_gather_chunk(chunk.row >= first_new ? uncached : cached,
                                                               at[chunk.row], chunk.column / 16));
    }
}

/*
 * Copies a group's vectors of `bytes` bytes into a stage, of which `used` bytes are read. Vectors that do
 * not exist are left as they were: no row sees them, and mma_clear_nonfinite makes their values finite.
 */
template <class C>
GPU_INLINE void mma_copy_stage(const uint64_t *at, uint32_t used, uint32_t bytes, unsigned char *to)
{
    const uint32_t chunks = bytes / 16, thread = gpu_thread() % C::GROUP_THREADS;

    if (C::GROUP_THREADS % chunks != 0) {
        GPU_UNROLL
        for (uint32_t j = 0; j < C::GROUP_KEYS * chunks / C::GROUP_THREADS; j++) {
            const uint32_t i = j * C::GROUP_THREADS + thread, row = i / chunks, chunk = i % chunks;
            gpu_copy_async16_if(to + mma_swizzled<C>(row, chunk, bytes), at[row] + chunk * 16u,
                                ((uint32_t)at[row] & 1) == 0 && chunk * 16u < used);
        }
        return;
    }
    /* A thread has one chunk of consecutive rows. */
    const uint32_t rows = C::GROUP_KEYS * chunks / C::GROUP_THREADS, first = thread / chunks * rows;
    const uint32_t chunk = thread % chunks, column = chunk * 16u;
    const uint32_t swizzled = chunk ^ mma_swizzle<C>(first, bytes);
    const bool inside = column < used;
    at += first;
    to += first * bytes;
    GPU_UNROLL
    for (uint32_t j = 0; j < rows; j += 2) {
        const struct gpu_u128 two = gpu_load_u128(at + j);
        GPU_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const uint64_t vector = (uint64_t)two.x[2 * i + 1] << 32 | two.x[2 * i];
            gpu_copy_async16_if(to + (j + i) * bytes + (swizzled ^ mma_swizzle<C>(j + i, bytes)) * 16u,
                                vector + column, inside && (two.x[2 * i] & 1) == 0);
        }
    }
}

/*
 * A copy by all warps, issued in steps between other work. Eight threads, or four, share a row: each copies
 * every eighth chunk, or every fourth, of some consecutive rows.
 */
struct mma_copy {
    const uint64_t *at; /* address of its first row */
    unsigned char *to;
    uint32_t column;
    uint32_t used; /* bytes of a vector; 0: nothing is copied */
    struct gpu_u128 two;
};

/* Steps of a copy, of two rows each. */
template <class C> GPU_INLINE uint32_t mma_copy_steps(uint32_t bytes)
{
    return mma_row_threads(bytes) * 32 / C::THREADS;
}

/* Rounds of other work, of `n` in all, from one step of a copy to the next. */
template <class C> GPU_INLINE uint32_t mma_step_interval(uint32_t n, uint32_t bytes)
{
    return C::GROUPS == 1 ? n / mma_copy_steps<C>(bytes) : 1;
}

template <class C>
GPU_INLINE struct mma_copy mma_copy_begin(const uint64_t *at, uint32_t used, uint32_t bytes,
                                          unsigned char *to)
{
    const uint32_t threads = mma_row_threads(bytes),
                   row = gpu_thread() / threads * (2 * mma_copy_steps<C>(bytes));
    struct mma_copy copy;

    copy.at = at + row;
    copy.column = gpu_thread() % threads * 16;
    copy.to = to + row * (C::WGMMA ? 128 : mma_row_pitch<C>(bytes)) + copy.column;
    if constexpr (C::CONVERTS)
        copy.to = to + mma_chunk_of<C>(gpu_thread(), bytes).offset;
    copy.used = used;
    return copy;
}

/* Reads the addresses of a step. */
GPU_INLINE void mma_copy_read_addresses(struct mma_copy *copy, uint32_t step)
{
    copy->two = gpu_load_u128(copy->at + 2 * step);
}

/* Issues the copies of a step whose addresses have been read. */
template <class C> GPU_INLINE void mma_copy_issue(const struct mma_copy *copy, uint32_t bytes, uint32_t step)
{
    const uint32_t stride = mma_row_threads(bytes) * 16;
    /* In raw stages, chunks of all threads lie side by side. */
    const uint32_t pitch = C::CONVERTS ? bytes / stride * 2048 : C::WGMMA ? 128 : mma_row_pitch<C>(bytes);
    const uint32_t next = C::CONVERTS ? 2048 : C::WGMMA ? C::BLOCK_BYTES : stride;

    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t low = copy->two.x[2 * i];
        const uint64_t vector = ((uint64_t)copy->two.x[2 * i + 1] << 32 | low) + copy->column;
        const uint32_t row = gpu_thread() / (stride / 16) * (stride / 32) + 2 * step + i;
        unsigned char *to = copy->to + (2 * step + i) * pitch;
        if (C::KV32 || (C::WGMMA && !C::CONVERTS))
            to = to - copy->column + (copy->column ^ mma_swizzle<C>(row, bytes) * 16);
        GPU_UNROLL
        for (uint32_t c = 0; c < bytes; c += stride)
            gpu_copy_async16_if(to + c / stride * next, vector + c,
                                (low & 1) == 0 && copy->column + c < copy->used);
    }
}

/*
 * Zeroes what is behind the columns of keys in a stage that values with more columns may have filled before,
 * and whose infinities would make NaN of the zeros that queries have there.
 */
template <class C> GPU_INLINE void mma_zero_behind_keys(const struct gpu_run *run, unsigned char *stage)
{
    /* Otherwise keys have stages of their own. */
    if constexpr (!C::CONVERTS && C::STAGES % 2 != 0) {
        const uint32_t chunks = C::K_BYTES / 16, first = (run->k.dim * C::KV_SIZE + 15) / 16;

        if (run->k.dim >= run->v.dim)
            return;
        GPU_LOOP
        for (uint32_t i = gpu_thread() % C::GROUP_THREADS; i < C::GROUP_KEYS * chunks; i += C::GROUP_THREADS)
            if (i % chunks >= first)
                gpu_store_u128(stage + mma_swizzled<C>(i / chunks, i % chunks, C::K_BYTES), mma_zero_u128());
    }
}

/* Loads a group's keys, or values, of a tile. `aligned`: all vectors are 16-byte aligned and contiguous. */
template <class C>
GPU_INLINE void mma_load_stage(const struct gpu_run *run, const mma_shared<C> *shared, unsigned char *stage,
                               uint32_t slot, uint32_t tile, uint32_t key0, bool values, bool aligned)
{
    const struct gpu_cache *cached = values ? &run->v : &run->k,
                           *uncached = values ? &run->v_new : &run->k_new;
    const uint64_t *at = (values ? shared->v_at[slot] : shared->k_at[slot]) + key0;
    const uint32_t bytes = values ? C::V_BYTES : C::K_BYTES;

    if (!values)
        mma_zero_behind_keys<C>(run, stage);
    if (aligned && C::GROUPS == 1) {
        struct mma_copy copy = mma_copy_begin<C>(at, cached->dim * cached->size, bytes, stage);
        GPU_UNROLL
        for (uint32_t step = 0; step < mma_copy_steps<C>(bytes); step++) {
            mma_copy_read_addresses(&copy, step);
            mma_copy_issue<C>(&copy, bytes, step);
        }
        return;
    }
    if (aligned) {
        mma_copy_stage<C>(at, cached->dim * cached->size, bytes, stage);
        return;
    }
    const uint32_t first = tile * C::UNIT_KEYS + key0, new_key = shared->sequence.new_begin;
    const uint32_t first_new = new_key > first ? new_key - first : 0;
    const struct mma_any_rows rows = {cached, uncached, at, first_new, bytes, stage};
    if constexpr (C::ANY)
        mma_any_stage<C>(&rows);
    else
        mma_copy_stage_unaligned<C>(cached, uncached, at, first_new, bytes, stage);
}

/* The same, `aligned` vectors in steps; nothing is copied unless `wanted`. */
template <class C>
GPU_INLINE struct mma_copy mma_load_stage_begin(const struct gpu_run *run, const mma_shared<C> *shared,
                                                unsigned char *stage, uint32_t slot, uint32_t tile,
                                                bool values, bool aligned, bool wanted)
{
    const struct gpu_cache *cached = values ? &run->v : &run->k;

    if (wanted && !aligned)
        mma_load_stage<C>(run, shared, stage, slot, tile, 0, values, false);
    else if (wanted && !values)
        mma_zero_behind_keys<C>(run, stage);
    return mma_copy_begin<C>(values ? shared->v_at[slot] : shared->k_at[slot],
                             wanted && aligned ? cached->dim * cached->size : 0,
                             values ? C::V_BYTES : C::K_BYTES, stage);
}

/* Stage `at` of a warp group. */
template <class C> GPU_INLINE unsigned char *mma_stage(unsigned char *stages, uint32_t group, uint32_t at)
{
    return stages + (group * C::STAGES + at) * C::STAGE_BYTES;
}

/* The raw stage `at` of keys, or of values. */
template <class C> GPU_INLINE unsigned char *mma_raw_stage(unsigned char *stages, uint32_t at, bool values)
{
    return stages + C::STAGES * C::STAGE_BYTES + (2 * at + values) * C::RAW_BYTES;
}

/* Begins the copies of the first stages of a work tile, which fills `count` stages in all. */
template <class C>
GPU_INLINE void mma_load_first_stages(const struct gpu_run *run, const mma_shared<C> *shared,
                                      unsigned char *stages, uint32_t group, uint32_t first, uint32_t count,
                                      bool aligned)
{
    GPU_LOOP
    for (uint32_t i = 0; i < (C::CONVERTS ? 2 * C::RAW_STAGES : C::STAGES - 1); i++) {
        unsigned char *stage =
            C::CONVERTS ? mma_raw_stage<C>(stages, i / 2, i % 2 != 0) : mma_stage<C>(stages, group, i);
        if (i < count)
            mma_load_stage<C>(run, shared, stage, i / 2, first + i / 2 * C::TILES, group * C::GROUP_KEYS,
                              i % 2 != 0, aligned);
        gpu_copy_commit();
    }
}

/* The columns behind values of e4m3, of which the first sums P up. */
template <class C> GPU_INLINE void mma_write_ones(unsigned char *stages)
{
    constexpr uint32_t row = GPU_E4M3_ROW / 16, chunks = 8 * row;

    for (uint32_t i = gpu_thread(); i < 2 * chunks; i += C::THREADS) {
        const uint32_t code = i % chunks < row ? 0x38383838u : 0;
        const struct gpu_u128 part = {{code, code, code, code}};
        gpu_store_u128(
            stages + (2 + i / chunks) * C::STAGE_BYTES + C::V_ROWS * GPU_E4M3_ROW + i % chunks * 16, part);
    }
    gpu_wgmma_fence();
    mma_copy_barrier<C>();
}

/* Zeroes all stages that are copied to where vectors have fewer columns than the kernel. */
template <class C> GPU_INLINE void mma_zero_padding(const struct gpu_run *run, unsigned char *stages)
{
    if constexpr (C::E4M3) {
        mma_write_ones<C>(stages);
        return;
    }
    if (run->k.dim == C::DK && run->v.dim == C::DV)
        return;
    unsigned char *to = C::CONVERTS ? mma_raw_stage<C>(stages, 0, false) : stages;
    const uint32_t bytes =
        C::CONVERTS ? 2 * C::RAW_STAGES * C::RAW_BYTES : C::STAGES * C::GROUPS * C::STAGE_BYTES;
    GPU_LOOP
    for (uint32_t i = gpu_thread(); i < bytes / 16; i += C::THREADS)
        gpu_store_u128(to + i * 16, mma_zero_u128());
    if constexpr (C::WGMMA)
        gpu_wgmma_fence();
    mma_copy_barrier<C>();
}

#endif
