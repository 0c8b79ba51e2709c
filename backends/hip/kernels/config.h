/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The configuration of one matrix kernel, and everything that follows from it at compile time. */
#ifndef ATTN_HIP_CONFIG_H
#define ATTN_HIP_CONFIG_H

#include "../tile-tuning.h"
#include "arch.h"
#include "splits.h"

/*
 * Dk, Dv    head dims of keys and of values, padded
 * Kv8       keys and values have 8 bits
 * Rows      query rows of a work-group; a row is a query token and a head of the group. 16: all waves have
 *           the same rows and each has 16 keys of a tile. 64: each wave has 16 rows of its own and all keys
 * Bf16      queries are bf16, else f16; so are 16-bit keys and values
 */
template <class Arch, uint32_t Dk, uint32_t Dv, bool Kv8, uint32_t Rows, bool Bf16>
struct tile_config : tile_wave<Arch::wave_size> {
    using wave_type = tile_wave<Arch::wave_size>;
    using typename wave_type::fragment;
    using wave_type::acc_size, wave_type::wave_size;

    static constexpr uint32_t dk = Dk, dv = Dv, rows = Rows;
    static constexpr bool kv8 = Kv8, bf16 = Bf16;

    /* Scores are products of elements as queries have them. P and the values it is multiplied with are bf16
     * beside 8-bit KV, which holds P times any scale. */
    static constexpr bool value_bf16 = Bf16 || Kv8;
    using score_mma = typename Arch::template mma<Bf16>;
    using value_mma = typename Arch::template mma<value_bf16>;
    static constexpr bool loop_products = score_mma::loop_products;

    static constexpr uint32_t column_waves = hip_tile_column_waves(Dv, wave_size);
    static constexpr uint32_t threads = hip_tile_threads(Dv, wave_size);
    static constexpr uint32_t warps = threads / GPU_WARP;
    static constexpr uint32_t occupancy = hip_tile_occupancy(Dv, wave_size, Arch::large_registers);
    static constexpr bool prefetches = hip_tile_prefetches(Rows, wave_size);

    /* Blocks of 16: keys of a tile and output columns that a wave has. */
    static constexpr uint32_t key_blocks = Rows == 16 ? 1 : 4;
    static constexpr uint32_t out_blocks = Dv / column_waves / 16;

    static constexpr uint32_t key_pitch = hip_tile_key_pitch(Dk);

    /* A chunk is 8 columns of one key or value; a quad chunk is those of four values. */
    static constexpr uint32_t element_bytes = Kv8 ? 1 : 2;
    static constexpr uint32_t chunk_words = element_bytes * 2;
    static constexpr uint32_t chunk_bytes = chunk_words * 4;
    static constexpr uint32_t quad_words = 4 * chunk_words;
    static constexpr uint32_t key_chunks = GPU_TILE * (Dk / 8);
    static constexpr uint32_t quad_chunks = GPU_TILE / 4 * (Dv / 8);
    /* Chunks and quad chunks of a thread. */
    static constexpr uint32_t thread_keys = key_chunks / threads;
    static constexpr uint32_t thread_quads = (quad_chunks + threads - 1) / threads;
    static constexpr uint32_t prefetch_words =
        hip_tile_max(thread_keys * chunk_words, 4 * chunk_words * thread_quads);
    static_assert(key_chunks % threads == 0, "every thread has as many chunks of keys");
};

#endif
