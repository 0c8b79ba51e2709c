/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Stores keys and values to shared memory, as elements of matrix instructions. */
#ifndef ATTN_HIP_STAGE_H
#define ATTN_HIP_STAGE_H

#include "convert8.h"
#include "prefetch.h"

/* Stores a chunk of a key. */
template <class Config>
GPU_INLINE void tile_store_key(unsigned char *keys, uint32_t row, uint32_t chunk, uint32_t dtype,
                               const uint32_t *from)
{
    struct gpu_u128 out;

    if constexpr (Config::kv8) {
        tile_convert8<Config::bf16>(dtype, from[0], out.x);
        tile_convert8<Config::bf16>(dtype, from[1], out.x + 2);
    } else {
        (void)dtype;
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            out.x[i] = from[i];
    }
    gpu_store_u128(keys + row * Config::key_pitch + chunk * 16, out);
}

/* Stores prefetched keys. 8-bit keys are converted in a loop that is not unrolled, to keep the code small. */
template <class Config>
GPU_INLINE void tile_store_prefetched_keys(const struct gpu_run *run, unsigned char *keys,
                                           struct tile_prefetch<Config> *prefetch)
{
    constexpr uint32_t each = Config::kv8 ? Config::thread_keys % 2 + 1 : Config::thread_keys;
    constexpr uint32_t chunks = Config::dk / 8, step = each * Config::chunk_words;
    const uint32_t thread = Config::thread();

    GPU_LOOP
    for (uint32_t first = 0; first < Config::thread_keys; first += each) {
        GPU_UNROLL
        for (uint32_t j = 0; j < each; j++) {
            const uint32_t u = (first + j) * Config::threads + thread;
            tile_store_key<Config>(keys, tile_row_at(run, u, GPU_TILE, chunks),
                                   tile_chunk_at(run, u, GPU_TILE, chunks), run->k.dtype,
                                   prefetch->x + j * Config::chunk_words);
        }
        GPU_UNROLL
        for (uint32_t i = 0; i + step < Config::thread_keys * Config::chunk_words; i++)
            prefetch->x[i] = prefetch->x[i + step];
    }
}

/* Stores the keys of a tile: prefetched, or gathered if they are unaligned. */
template <class Config>
GPU_INLINE void tile_store_keys(const struct gpu_run *run, const struct tile_shared<Config> *shared,
                                unsigned char *keys, uint32_t tile, struct tile_prefetch<Config> *prefetch)
{
    constexpr uint32_t chunks = Config::dk / 8;

    if (run->kv_aligned != 0) {
        tile_store_prefetched_keys(run, keys, prefetch);
        return;
    }
    GPU_LOOP
    for (uint32_t u = Config::thread(); u < Config::key_chunks; u += Config::threads) {
        uint32_t chunk[Config::chunk_words] = {0};
        tile_gather(run, shared, tile, false, u / chunks, 1, u % chunks, chunk);
        tile_store_key<Config>(keys, u / chunks, u % chunks, run->k.dtype, chunk);
    }
}

/* The top bit of each element of a word that is NaN or infinite. */
template <class Config> GPU_INLINE uint32_t tile_non_finite(uint32_t dtype, uint32_t word)
{
    if constexpr (Config::kv8)
        return gpu_nonfinite8(dtype, word);
    else
        return ((word & 0x7fff7fffu) + (Config::bf16 ? 0x00800080u : 0x04000400u)) & 0x80008000u;
}

/* Transposes a chunk of each of four rows into the four elements of each of eight columns. */
template <class Config> GPU_INLINE void tile_transpose(uint32_t *quad)
{
    uint32_t from[4][Config::chunk_words];

    GPU_UNROLL
    for (uint32_t i = 0; i < Config::quad_words; i++)
        from[i / Config::chunk_words][i % Config::chunk_words] = quad[i];
    GPU_UNROLL
    for (uint32_t w = 0; w < Config::chunk_words; w++) {
        uint32_t *to = quad + w * 4;
        if constexpr (Config::kv8) {
            const uint32_t low[2] = {gpu_permute(from[0][w], from[1][w], 0x5140),
                                     gpu_permute(from[2][w], from[3][w], 0x5140)};
            const uint32_t high[2] = {gpu_permute(from[0][w], from[1][w], 0x7362),
                                      gpu_permute(from[2][w], from[3][w], 0x7362)};
            to[0] = gpu_permute(low[0], low[1], 0x5410);
            to[1] = gpu_permute(low[0], low[1], 0x7632);
            to[2] = gpu_permute(high[0], high[1], 0x5410);
            to[3] = gpu_permute(high[0], high[1], 0x7632);
        } else {
            GPU_UNROLL
            for (uint32_t i = 0; i < 4; i++)
                to[i] = gpu_permute(from[i % 2 * 2][w], from[i % 2 * 2 + 1][w], i < 2 ? 0x5410 : 0x7632);
        }
    }
}

/*
 * Sets NaN and infinite values to zero and marks the tile as having such. Rows that do not exist, by the bits
 * of `there`, become zero too.
 */
template <class Config>
GPU_INLINE void tile_clear_non_finite(const struct gpu_run *run, struct tile_shared<Config> *shared,
                                      uint32_t tile, uint32_t row, uint32_t there, uint32_t *quad)
{
    constexpr uint32_t ones = Config::kv8 ? 0xff : 0xffff, width = Config::kv8 ? 8 : 16;
    uint32_t any = 0, mask[2] = {0, 0};

    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        mask[i * width / 32] |= (there >> i & 1) * (ones << i * width % 32);
    GPU_UNROLL
    for (uint32_t i = 0; i < Config::quad_words; i++) {
        quad[i] &= mask[Config::kv8 ? 0 : i % 2];
        const uint32_t found = tile_non_finite<Config>(run->v.dtype, quad[i]);
        any |= found;
        quad[i] &= ~((found >> (width - 1)) * ones);
    }
    /* A NaN scale makes NaN of a whole value, even where its P is zero. */
    if (tile_scales_by_key<Config>(run->problem.v_scale)) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const float scale = shared->scale[1][tile % 2][row + i];
            any |= scale != scale;
        }
    }
    if (any != 0)
        shared->non_finite_tile = tile + 1;
}

/* Stores four elements of each of eight columns. 8-bit ones are converted in a loop that is not unrolled. */
template <class Config>
GPU_INLINE void tile_store_quad(unsigned char *values, uint32_t row, uint32_t column, uint32_t dtype,
                                uint32_t *quad)
{
    unsigned char *to = values + tile_quad_at(column, row / 4);

    if constexpr (Config::kv8) {
        GPU_LOOP
        for (uint32_t c = 0; c < 8; c += 2) {
            GPU_UNROLL
            for (uint32_t i = 0; i < 2; i++) {
                struct gpu_u64 out;
                tile_convert8<Config::value_bf16>(dtype, quad[i], out.x);
                tile_store_u64(to + (c + i) * HIP_TILE_VALUE_PITCH, out);
            }
            GPU_UNROLL
            for (uint32_t i = 0; i < 6; i++)
                quad[i] = quad[i + 2];
        }
    } else {
        (void)dtype;
        GPU_UNROLL
        for (uint32_t c = 0; c < 8; c++) {
            const struct gpu_u64 out = {{quad[2 * c], quad[2 * c + 1]}};
            tile_store_u64(to + c * HIP_TILE_VALUE_PITCH, out);
        }
    }
}

/* Stores the values of a tile: prefetched, or gathered if they are unaligned. `unmasked`: every row sees
 * every key. */
template <class Config>
GPU_INLINE void tile_store_values(const struct gpu_run *run, struct tile_shared<Config> *shared,
                                  unsigned char *values, uint32_t tile, bool unmasked,
                                  struct tile_prefetch<Config> *prefetch)
{
    constexpr uint32_t chunks = Config::dv / 8, quads = GPU_TILE / 4, step = Config::quad_words;
    const uint64_t present = tile_present(shared, tile);

    GPU_LOOP
    for (uint32_t u = Config::thread(); u < Config::quad_chunks; u += Config::threads) {
        const uint32_t row = tile_row_at(run, u, quads, chunks) * 4;
        const uint32_t chunk = tile_chunk_at(run, u, quads, chunks);
        uint32_t quad[step] = {0};
        if (run->kv_aligned == 0) {
            tile_gather(run, shared, tile, true, row, 4, chunk, quad);
        } else {
            GPU_UNROLL
            for (uint32_t i = 0; i < step; i++)
                quad[i] = prefetch->x[i];
        }
        if (run->kv_aligned != HIP_TILE_PAGED_X)
            tile_transpose<Config>(quad);
        if (!unmasked)
            tile_clear_non_finite(run, shared, tile, row, (uint32_t)(present >> row) & 15, quad);
        tile_store_quad<Config>(values, row, chunk * 8, run->v.dtype, quad);
        GPU_UNROLL
        for (uint32_t i = 0; i + step < Config::thread_quads * step; i++)
            prefetch->x[i] = prefetch->x[i + step];
    }
}

#endif
