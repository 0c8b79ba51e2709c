/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * KV tiles of 8-bit codes: copied as they are, and converted to the queries' type once for scores and values
 * of all warps. f16 holds the numbers of every 8-bit type, and so does bf16.
 *
 * A thread converts the chunks that it has copied itself, so that codes need no barriers: as soon as it has
 * converted a tile it copies the next one into its place.
 */
#ifndef ATTN_GPU_MLA_CODES_H
#define ATTN_GPU_MLA_CODES_H

#include "codec8.h"
#include "load.h"
#include "values.h"

/* Of a warp's 8 keys, a lane has a chunk of 16 codes in each, and one of the 32 that remain. */
static constexpr uint32_t mla_lane_chunks = 9;

GPU_INLINE uint32_t mla_lane_row(uint32_t i, uint32_t lane)
{
    return i < 8 ? i : lane / 4;
}

GPU_INLINE uint32_t mla_lane_chunk(uint32_t i, uint32_t lane)
{
    return i < 8 ? lane : 32 + lane % 4;
}

/* Up to 16 codes from an unaligned address; the others are 0. */
GPU_INLINE struct gpu_u128 mla_load_codes_unaligned(uint64_t at, uint32_t count)
{
    struct gpu_u128 out = {{0, 0, 0, 0}};

    GPU_UNROLL
    for (uint32_t e = 0; e < 16; e++)
        out.x[e / 4] |= e < count ? (uint32_t)GPU_U8(at)[e] << (8 * (e % 4)) : 0;
    return out;
}

/* The codes of the tile that was located last, tile `tile`, into this warp's part of a raw stage. */
template <class Config>
GPU_INLINE void mla_load_codes(const struct gpu_run *run, struct mla_shared<Config> *shared,
                               unsigned char *raw, uint32_t tile)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t used = run->problem.head_dim;
    const uint64_t *at = shared->key_address[warp];
    unsigned char *to = raw + warp * 8 * MLA_QK_DIM;

    gpu_warp_barrier();
    mla_note_present<Config>(shared, tile % 4);
    if (shared->aligned) {
        GPU_UNROLL
        for (uint32_t i = 0; i < mla_lane_chunks; i++) {
            const uint32_t row = mla_lane_row(i, lane), d = mla_lane_chunk(i, lane) * 16;
            const uint64_t key = at[row];
            const bool present = key != 0 && d < used;
            gpu_copy_async16(to + row * MLA_QK_DIM + d, (const void *)(present ? key + d : run->k.base),
                             present ? 16 : 0);
        }
    } else {
        GPU_LOOP
        for (uint32_t i = 0; i < mla_lane_chunks; i++) {
            const uint32_t row = mla_lane_row(i, lane), d = mla_lane_chunk(i, lane) * 16;
            const bool inside = at[row] != 0 && d < used;
            gpu_store_u128(to + row * MLA_QK_DIM + d,
                           mla_load_codes_unaligned(at[row] + d, inside ? used - d : 0));
        }
    }
    gpu_warp_barrier(); /* the next tile may be located */
}

/* Half a chunk of this thread: its row, and which 8 columns it has. Threads take the halves of a chunk in an
 * order that differs between them, so that eight of them write to different banks. */
struct mla_lane_half {
    uint32_t row, column8;
};

GPU_INLINE struct mla_lane_half mla_lane_half_of(uint32_t i, uint32_t warp, uint32_t lane)
{
    const uint32_t n = i / 2, half = i % 2 ^ (n < 8 ? (lane / 4 ^ lane / 8) % 2 : 0);

    return {warp * 8 + mla_lane_row(n, lane), mla_lane_chunk(n, lane) * 2 + half};
}

/*
 * This thread's codes of a raw stage into a stage of 16-bit numbers. Several loads come before the first
 * store: a load after a store waits for it, as both are to shared memory, and nothing else would hide what
 * load and conversion take.
 */
template <class Config>
GPU_INLINE void mla_convert_chunks(uint32_t dtype, const unsigned char *raw, unsigned char *to)
{
    /* Nothing of what follows from it stays in registers from one tile to the next. */
    const uint32_t thread = gpu_keep(gpu_thread()), warp = thread / GPU_WARP, lane = thread % GPU_WARP;
    constexpr uint32_t at_once = Config::codes_at_once;
    static_assert(2 * mla_lane_chunks % at_once == 0, "words would be left");

    GPU_UNROLL
    for (uint32_t first = 0; first < 2 * mla_lane_chunks; first += at_once) {
        uint64_t codes[at_once];
        GPU_UNROLL
        for (uint32_t i = 0; i < at_once; i++) {
            const struct mla_lane_half at = mla_lane_half_of(first + i, warp, lane);
            codes[i] = *(const uint64_t *)(const void *)(raw + at.row * MLA_QK_DIM + at.column8 * 8);
        }
        GPU_UNROLL
        for (uint32_t i = 0; i < at_once; i++) {
            const struct mla_lane_half at = mla_lane_half_of(first + i, warp, lane);
            struct gpu_u128 out;
            gpu_quad8_as(dtype, Config::bf16, (uint32_t)codes[i], out.x);
            gpu_quad8_as(dtype, Config::bf16, (uint32_t)(codes[i] >> 32), out.x + 2);
            gpu_store_u128(to + mla_chunk_offset(at.row, at.column8), out);
        }
    }
}

/* The same, by code for each type. */
template <class Config>
GPU_INLINE void mla_convert(uint32_t dtype, const unsigned char *raw, unsigned char *to)
{
    if (dtype == ATTN_E4M3)
        mla_convert_chunks<Config>(ATTN_E4M3, raw, to);
    else if (dtype == ATTN_E5M2)
        mla_convert_chunks<Config>(ATTN_E5M2, raw, to);
    else if (dtype == ATTN_INT8)
        mla_convert_chunks<Config>(ATTN_INT8, raw, to);
    else
        mla_convert_chunks<Config>(dtype, raw, to);
}

/* Where the tiles of a work tile lie in shared memory: 16-bit stages, then raw ones, one or two of each. */
struct mla_stages {
    unsigned char *numbers;
    unsigned char *raw;
    uint32_t number_mask, raw_mask; /* their counts minus one */
};

template <class Config>
GPU_INLINE struct mla_stages mla_stages_of(const struct gpu_run *run, unsigned char *buffer)
{
    return {buffer, buffer + run->stages * MLA_KV_TILE_BYTES, run->stages - 1,
            (run->stages == 1 ? Config::raw_of_one : Config::raw_of_two) - 1};
}

/* Copies tile `tile` if the work tile has it, and locates the next one. */
template <class Config>
GPU_INLINE void mla_fetch_codes(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                const struct mla_stages *stages, uint32_t tile)
{
    const uint32_t stage = (tile - shared->work.first) & stages->raw_mask;

    if (tile < shared->work.end)
        mla_load_codes<Config>(run, shared, stages->raw + stage * MLA_RAW_TILE_BYTES, tile);
    gpu_copy_commit();
    mla_locate<Config>(run, shared, tile + 1);
}

/* Converts tile `tile`, the oldest one that was copied, and copies another in its place. */
template <class Config>
GPU_INLINE void mla_advance_codes(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                  const struct mla_stages *stages, uint32_t tile)
{
    const uint32_t i = tile - shared->work.first;

    if (tile >= shared->work.end)
        return;
    if (stages->raw_mask != 0)
        GPU_COPY_WAIT(1);
    else
        GPU_COPY_WAIT(0);
    mla_convert<Config>(run->k.dtype, stages->raw + (i & stages->raw_mask) * MLA_RAW_TILE_BYTES,
                        stages->numbers + (i & stages->number_mask) * MLA_KV_TILE_BYTES);
    mla_fetch_codes<Config>(run, shared, stages, tile + stages->raw_mask + 1);
}

/* Loads queries, which lie in the last stage until they are in registers, and the first tiles. */
template <class Config>
GPU_INLINE void mla_begin_codes(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                unsigned char *buffer, const struct mla_warp *w, uint32_t q[18][4])
{
    const struct mla_stages stages = mla_stages_of<Config>(run, buffer);
    const uint32_t first = shared->work.first;
    unsigned char *const last = stages.numbers + stages.number_mask * MLA_KV_TILE_BYTES;

    mla_load_queries<Config>(run, &shared->sequence, last, shared->work.row0);
    gpu_copy_commit();
    mla_locate<Config>(run, shared, first);
    for (uint32_t i = 0; i <= stages.raw_mask; i++)
        mla_fetch_codes<Config>(run, shared, &stages, first + i);
    if (stages.raw_mask != 0)
        GPU_COPY_WAIT(2);
    else
        GPU_COPY_WAIT(1);
    mla_load_rows<Config>(run, shared, shared->work.row0);
    gpu_barrier();
    mla_take_queries(last, w, q);
    gpu_barrier(); /* which may be where the first tile is converted */
    mla_advance_codes<Config>(run, shared, &stages, first);
}

/* Products of P with the values of this tile, and the conversion of the next: half of the warps begin with
 * the one and half with the other, so that both units of the device have work. */
template <class Config>
GPU_INLINE void mla_add_values_and_convert(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                           unsigned char *buffer, uint32_t tile, uint32_t keys,
                                           float o[Config::row_blocks][8][4])
{
    const bool alone = run->stages == 1; /* the next tile takes this one's place */
    const uint32_t turn = alone || gpu_thread() / GPU_WARP < Config::warps / 2 ? 1 : 0;

    GPU_LOOP
    for (uint32_t i = 0; i < 2; i++) {
        if (i != turn) {
            mla_add_values<Config>(shared, buffer, keys, o);
        } else {
            if (alone)
                gpu_barrier();
            const struct mla_stages stages = mla_stages_of<Config>(run, buffer);
            mla_advance_codes<Config>(run, shared, &stages, tile + 1);
        }
    }
}

#endif
