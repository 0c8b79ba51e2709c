/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Loads keys and values from global memory into registers, ahead of the KV iteration that stores them to
 * shared memory. A thread takes chunks of 8 columns, of one key or of the values of four keys.
 */
#ifndef ATTN_HIP_PREFETCH_H
#define ATTN_HIP_PREFETCH_H

#include "shared.h"

template <class Config> struct tile_prefetch {
    uint32_t x[Config::prefetch_words];
};

/* 4, 2 or 1 words of global memory, aligned to their size. */
template <uint32_t words> GPU_INLINE void tile_load_words(uint64_t at, uint32_t *to)
{
    __builtin_memcpy(to, __builtin_assume_aligned(GPU_GLOBAL(const unsigned char, at), 4 * words), 4 * words);
}

/* Which row, or quad of rows, and which of its chunks thread index u takes: neighbours in memory go to
 * neighbours among the threads. */
GPU_INLINE uint32_t tile_row_at(const struct gpu_run *run, uint32_t u, uint32_t rows, uint32_t chunks)
{
    return run->kv_aligned == HIP_TILE_PAGED_X ? u % rows : u / chunks;
}
GPU_INLINE uint32_t tile_chunk_at(const struct gpu_run *run, uint32_t u, uint32_t rows, uint32_t chunks)
{
    return run->kv_aligned == HIP_TILE_PAGED_X ? u / rows : u % chunks;
}

template <class Config>
GPU_INLINE void tile_prefetch_keys(const struct gpu_run *run, const struct tile_shared<Config> *shared,
                                   uint32_t tile, struct tile_prefetch<Config> *prefetch)
{
    constexpr uint32_t chunks = Config::dk / 8;
    const uint64_t present = tile_present(shared, tile);
    const uint32_t used = run->k.dim / 8, thread = Config::thread();
    const uint32_t step = run->kv_aligned == HIP_TILE_PAGED_X ? (uint32_t)run->k.x_stride : 16;

    GPU_UNROLL
    for (uint32_t j = 0; j < Config::thread_keys; j++) {
        const uint32_t u = j * Config::threads + thread, row = tile_row_at(run, u, GPU_TILE, chunks);
        const uint32_t chunk = tile_chunk_at(run, u, GPU_TILE, chunks), byte = chunk * Config::chunk_bytes;
        uint32_t *to = prefetch->x + j * Config::chunk_words;
        if (j % 2 == 0)
            tile_sched_barrier();
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::chunk_words; i++)
            to[i] = 0;
        if (chunk < used && (present >> row & 1) != 0)
            tile_load_words<Config::chunk_words>(
                shared->at[0][tile % 2][row] + (byte / 16 * step + byte % 16), to);
    }
}

/* The values of a quad of rows that are `there`, a bit for each: four chunks, or in layout paged-x the four
 * elements of each of eight columns, `step` bytes apart. */
template <class Config>
GPU_INLINE void tile_prefetch_quad(const uint64_t *at, uint32_t there, uint32_t chunk, bool paged_x,
                                   uint32_t step, uint32_t *to)
{
    if (paged_x) {
        if (there != 0) { /* all four have room in the page */
            GPU_UNROLL
            for (uint32_t c = 0; c < 8; c++)
                tile_load_words<Config::chunk_words / 2>(at[0] + (chunk * 8 + c) * step,
                                                         to + c * (Config::chunk_words / 2));
        }
        return;
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        if ((there >> i & 1) != 0)
            tile_load_words<Config::chunk_words>(at[i] + chunk * Config::chunk_bytes,
                                                 to + i * Config::chunk_words);
}

template <class Config>
GPU_INLINE void tile_prefetch_values(const struct gpu_run *run, const struct tile_shared<Config> *shared,
                                     uint32_t tile, struct tile_prefetch<Config> *prefetch)
{
    constexpr uint32_t chunks = Config::dv / 8, quads = GPU_TILE / 4;
    const uint64_t present = tile_present(shared, tile), *at = shared->at[1][tile % 2];
    const bool paged_x = run->kv_aligned == HIP_TILE_PAGED_X;
    const uint32_t used = run->v.dim / 8, thread = Config::thread();
    const uint32_t step = paged_x ? (uint32_t)run->v.x_stride : 0;

    GPU_UNROLL
    for (uint32_t j = 0; j < Config::thread_quads; j++) {
        const uint32_t u = j * Config::threads + thread, row = tile_row_at(run, u, quads, chunks) * 4;
        const uint32_t chunk = tile_chunk_at(run, u, quads, chunks);
        const uint32_t there =
            chunk < used && row < GPU_TILE ? (uint32_t)(present >> row % GPU_TILE) & 15 : 0;
        uint32_t *to = prefetch->x + j * Config::quad_words;
        tile_sched_barrier();
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::quad_words; i++)
            to[i] = 0;
        tile_prefetch_quad<Config>(at + row, there, chunk, paged_x, step, to);
    }
}

/*
 * Gathers a chunk of `count` unaligned keys or values of a tile, from row `row` on, byte by byte. The words
 * are shifted into the array, so that the code exists only once.
 */
template <class Config>
GPU_INLINE void tile_gather(const struct gpu_run *run, const struct tile_shared<Config> *shared,
                            uint32_t tile, bool values, uint32_t row, uint32_t count, uint32_t chunk,
                            uint32_t *to)
{
    const uint64_t present = tile_present(shared, tile);
    const uint32_t bytes = (values ? run->v.dim : run->k.dim) * Config::element_bytes;
    const uint32_t x_bytes = values ? run->v.x_bytes : run->k.x_bytes;
    const int64_t stride = values ? run->v.x_stride : run->k.x_stride;

    GPU_LOOP
    for (uint32_t i = 0; i < count * Config::chunk_words; i++) {
        const uint32_t own = row + i / Config::chunk_words;
        const uint32_t first = (chunk * Config::chunk_words + i % Config::chunk_words) * 4;
        const bool cached = tile * GPU_TILE + own < shared->sequence.new_begin;
        uint32_t word = 0;
        GPU_LOOP
        for (uint32_t b = first; b < first + 4 && b < bytes && (present >> own & 1) != 0; b++) {
            int64_t at = b;
            if (cached && stride != 0)
                at = (int64_t)(b / x_bytes) * stride + b % x_bytes;
            word |= (uint32_t)*GPU_U8(shared->at[values][tile % 2][own] + (uint64_t)at) << (b - first) * 8;
        }
        GPU_UNROLL
        for (uint32_t j = 0; j + 1 < count * Config::chunk_words; j++)
            to[j] = to[j + 1];
        to[count * Config::chunk_words - 1] = word;
    }
}

#endif
