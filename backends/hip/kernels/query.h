/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queries of a work tile, and which keys their rows see. */
#ifndef ATTN_HIP_QUERY_H
#define ATTN_HIP_QUERY_H

#include "shared.h"

/* Eight columns of a query from column d on, zero behind its last. */
GPU_INLINE struct gpu_u128 tile_query_chunk(uint64_t query, uint32_t d, uint32_t dim, bool aligned)
{
    struct gpu_u128 chunk = {{0, 0, 0, 0}};

    if (aligned && d + 8 <= dim)
        return gpu_load_global_u128(query + d * 2);
    GPU_UNROLL
    for (uint32_t j = 0; j < 8; j++)
        if (d + j < dim)
            chunk.x[j / 2] |= (uint32_t)GPU_GLOBAL(const uint16_t, query)[d + j] << j % 2 * 16;
    return chunk;
}

/* Loads queries into shared memory; rows that do not exist are zero. */
template <class Config>
GPU_INLINE void tile_load_queries(const struct gpu_run *run, const struct tile_shared<Config> *shared,
                                  unsigned char *to)
{
    const struct gpu_work_tile *work = &shared->work;
    const bool aligned =
        ((run->q.base | (uint64_t)run->q.token_stride | (uint64_t)run->q.head_stride) & 15) == 0;
    const uint32_t chunks = Config::dk / 8;

    GPU_LOOP
    for (uint32_t i = Config::thread(); i < Config::rows * chunks; i += Config::threads) {
        const uint32_t row = i / chunks, d = i % chunks * 8;
        struct gpu_u128 chunk = {{0, 0, 0, 0}};
        uint32_t token, head;
        if (tile_row_of(run, &shared->sequence, work->row0 + row, work->kv_head, &token, &head)) {
            const uint64_t query =
                run->q.base + (uint64_t)((int64_t)(shared->sequence.row + token) * run->q.token_stride +
                                         (int64_t)head * run->q.head_stride);
            chunk = tile_query_chunk(query, d, run->problem.head_dim, aligned);
        }
        gpu_store_u128(to + row * Config::key_pitch + d * 2, chunk);
    }
}

template <class Config>
GPU_INLINE void tile_load_rows(const struct gpu_run *run, struct tile_shared<Config> *shared)
{
    const struct gpu_work_tile *work = &shared->work;
    const uint32_t row = Config::thread();
    uint32_t token, head;

    if (row >= Config::rows)
        return;
    if (tile_row_of(run, &shared->sequence, work->row0 + row, work->kv_head, &token, &head))
        shared->row[row] = gpu_row(run, &shared->sequence, token, head);
    else
        shared->row[row].lo = shared->row[row].hi = 0;
}

#endif
