/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Values that are NaN or infinite. In shared memory they are zero, so that rows that do not see them do not
 * get NaN out of 0 * infinity; here the rows that see one become NaN in its column. Such tiles are rare.
 */
#ifndef ATTN_HIP_NON_FINITE_H
#define ATTN_HIP_NON_FINITE_H

#include "stage.h"

/* Keys of the tile that the lane's row sees, a bit for each, from scores that are masked and not yet P. */
template <class Config> GPU_INLINE uint64_t tile_seen(uint32_t key0, const float (*s)[Config::acc_size])
{
    uint64_t seen = 0;

    GPU_UNROLL
    for (uint32_t n = 0; n < Config::key_blocks; n++) {
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::acc_size; i++)
            seen |= (uint64_t)(s[n][i] != -GPU_INFINITY) << (n * 16 + i);
    }
    seen <<= key0 + Config::thread() % Config::wave_size / 16 * Config::acc_size;
    return (uint64_t)Config::column_or((uint32_t)(seen >> 32)) << 32 | Config::column_or((uint32_t)seen);
}

/* Notes for each column which of the tile's values are non-finite, read again from global memory. */
template <class Config>
GPU_INLINE void tile_find_non_finite(const struct gpu_run *run, struct tile_shared<Config> *shared,
                                     uint32_t tile)
{
    constexpr uint32_t chunks = Config::dv / 8, size = Config::element_bytes;

    GPU_LOOP
    for (uint32_t u = Config::thread(); u < Config::quad_chunks; u += Config::threads) {
        const uint32_t row = u / chunks;
        uint32_t quad[Config::quad_words] = {0}, bits[8] = {0};
        tile_gather(run, shared, tile, true, row * 4, 4, u % chunks, quad);
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            float scale = 1;
            if (tile_scales_by_key<Config>(run->problem.v_scale))
                scale = shared->scale[1][tile % 2][row * 4 + i];
            GPU_UNROLL
            for (uint32_t c = 0; c < 8; c++) {
                const uint32_t word = c * size / 4, bit = (c * size % 4 + size) * 8 - 1;
                const uint32_t found =
                    tile_non_finite<Config>(run->v.dtype, quad[i * Config::chunk_words + word]) >> bit & 1;
                bits[c] |= (scale != scale ? 1 : found) << i;
            }
        }
        GPU_UNROLL
        for (uint32_t c = 0; c < 8; c++)
            shared->non_finite[u % chunks * 8 + c][row] = (unsigned char)bits[c];
    }
}

/* Makes NaN of the columns in which the lane's row sees such a value. All threads of the work-group. */
template <class Config>
GPU_INLINE void tile_mark_non_finite(const struct gpu_run *run, struct tile_shared<Config> *shared,
                                     uint32_t tile, uint64_t seen, uint32_t column0,
                                     float (*o)[Config::acc_size])
{
    uint32_t mine[4] = {0, 0, 0, 0}; /* four keys a byte, as they are noted */

    tile_find_non_finite(run, shared, tile);
    GPU_UNROLL
    for (uint32_t quad = 0; quad < GPU_TILE / 4; quad++)
        mine[quad / 4] |= (uint32_t)(seen >> quad * 4 & 15) << quad % 4 * 8;
    gpu_barrier();
    GPU_LOOP
    for (uint32_t n = 0; n < Config::out_blocks; n++) {
        float x[Config::acc_size];
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::acc_size; i++) {
            const struct gpu_u128 bits = gpu_load_u128(
                shared->non_finite[column0 + n * 16 + Config::lane() / 16 * Config::acc_size + i]);
            const uint32_t any =
                (bits.x[0] & mine[0]) | (bits.x[1] & mine[1]) | (bits.x[2] & mine[2]) | (bits.x[3] & mine[3]);
            x[i] = any != 0 ? GPU_NAN : o[0][i];
        }
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::acc_size; i++) {
            GPU_UNROLL
            for (uint32_t j = 0; j + 1 < Config::out_blocks; j++)
                o[j][i] = o[j + 1][i];
            o[Config::out_blocks - 1][i] = x[i];
        }
    }
    gpu_barrier();
}

#endif
