/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * How an mma kernel divides its shared memory, as functions of its shape: device code evaluates them at
 * compile time, the host before a launch.
 */
#ifndef ATTN_GPU_MMA_SIZES_H
#define ATTN_GPU_MMA_SIZES_H

#include <stdint.h>

#include "constexpr.h"

/* What one kernel is compiled for. */
struct gpu_mma_shape {
    uint32_t rows;    /* of a CTA's tile: query tokens times heads of a KV head */
    uint32_t dk, dv;  /* columns of keys and of values */
    uint32_t kv_size; /* bytes of an element of keys and values */
    uint32_t wgmma;   /* 1: warp groups multiply 64 rows each, and another one copies for them (Hopper) */
    uint32_t scaled;  /* 1: keys of 16 bits have scales */
    uint32_t e4m3;    /* 1: queries, keys and values, and P, are multiplied in e4m3 */
};

/*
 * Warps that have the same rows, where one has no registers for the results of all columns of values: each
 * computes the scores of a part of the keys, which they exchange, and the results of a part of the columns.
 */
GPU_CONSTEXPR uint32_t gpu_mma_column_warps(struct gpu_mma_shape s)
{
    if (s.rows == 16 && s.dv > 256)
        return 4;
    return s.rows == 64 && s.dv > 256 ? 2 : 1;
}

/* Warp groups. */
GPU_CONSTEXPR uint32_t gpu_mma_groups(struct gpu_mma_shape s)
{
    return s.rows > 16 || gpu_mma_column_warps(s) > 1 ? 1 : 4;
}

/* Threads of a CTA. */
GPU_CONSTEXPR uint32_t gpu_mma_threads(struct gpu_mma_shape s)
{
    if (s.wgmma)
        return 128 + 2 * s.rows;
    return s.rows > 16 ? 128 * gpu_mma_column_warps(s) : 128;
}

/* Keys of a KV iteration: one tile of keys, or two. */
GPU_CONSTEXPR uint32_t gpu_mma_keys(struct gpu_mma_shape s)
{
    if (s.wgmma)
        return s.dk <= 128 ? 128 : 64;
    return s.rows == 8 && s.kv_size == 1 && s.dk <= 192 ? 128 : 64;
}

/*
 * Whether a CTA converts 8-bit keys and values to 16 bits once for all of its warps: they are copied into raw
 * stages, and multiplied from two stages of 16-bit numbers, one of keys and one of values. Tiles of few rows
 * have no warps that share keys, and wide heads no room for both kinds of stages.
 */
GPU_CONSTEXPR uint32_t gpu_mma_converts(struct gpu_mma_shape s)
{
    return s.kv_size == 1 && s.rows > 16 && s.dk <= 128 && !s.e4m3;
}

/* Bytes of the codes of a raw stage. */
GPU_CONSTEXPR uint32_t gpu_mma_raw_bytes(struct gpu_mma_shape s)
{
    return gpu_mma_keys(s) * (s.dk > s.dv ? s.dk : s.dv);
}

/*
 * Raw stages of keys, and as many of values. Prefill computes on one while the next is copied; tiles of 64
 * rows also serve decode, which needs more under way.
 */
GPU_CONSTEXPR uint32_t gpu_mma_raw_stages(struct gpu_mma_shape s)
{
    if (!gpu_mma_converts(s))
        return 0;
    return s.rows > 64 ? 1 : s.dk > 64 ? 2 : 3;
}

/* Bytes of the keys, or the values, of an iteration, as they are multiplied. Behind values of e4m3 are eight
 * rows of the columns that sum P up. */
GPU_CONSTEXPR uint32_t gpu_mma_stage_bytes(struct gpu_mma_shape s)
{
    if (s.e4m3)
        return gpu_mma_raw_bytes(s) + 8 * 128;
    return gpu_mma_raw_bytes(s) * (gpu_mma_converts(s) ? 2 : s.kv_size);
}

/*
 * Stages of the circular buffer in shared memory. Keys and values of an iteration each fill one, so that all
 * CTAs of a multiprocessor together have about 96 KB under way.
 */
GPU_CONSTEXPR uint32_t gpu_mma_stages(struct gpu_mma_shape s)
{
    const uint32_t bytes = gpu_mma_stage_bytes(s);

    if (s.wgmma)
        return 4;
    if (gpu_mma_converts(s))
        return 2;
    if (s.dk > 256 || (s.rows == 64 && s.dk > 192 && s.kv_size == 2) || (s.rows > 16 && s.kv_size == 4))
        return 2;
    if (bytes > 12288)
        return s.kv_size == 4 && bytes <= 16384 ? 4 : 3;
    if (bytes > 8192 || gpu_mma_keys(s) > 64)
        return 4;
    return bytes > 4096 ? 5 : 8;
}

/* Query rows that are copied together, where warp groups multiply: a part of a tile, in whole blocks. */
GPU_CONSTEXPR uint32_t gpu_mma_query_box(struct gpu_mma_shape s)
{
    return s.rows % gpu_mma_keys(s) == 0 ? gpu_mma_keys(s) : 64;
}

/* Most buffers of queries: while a work tile is multiplied, those of the next are copied where there is room.
 */
GPU_CONSTEXPR uint32_t gpu_mma_query_stages(struct gpu_mma_shape s)
{
    return s.wgmma && s.dk <= 128 && !gpu_mma_converts(s) ? 2 : 1;
}

/* Iterations whose addresses are known: those of all stages, and the next one; of warp groups that copy for
 * others, also those that these have not finished. */
GPU_CONSTEXPR uint32_t gpu_mma_address_stages(struct gpu_mma_shape s)
{
    if (s.wgmma)
        return 4;
    return gpu_mma_converts(s) ? gpu_mma_raw_stages(s) + 3 : gpu_mma_stages(s) / 2 + 2;
}

/*
 * Bytes between rows of queries, keys and values, so that neighbours begin in different banks. Tiles of 16
 * rows and fewer, and of f32, swizzle the chunks of a row instead.
 */
GPU_CONSTEXPR uint32_t gpu_mma_row_padding(struct gpu_mma_shape s)
{
    return gpu_mma_groups(s) > 1 || s.kv_size == 4 || s.wgmma ? 0 : 16;
}

/* Whether results of rows may go straight from registers to the output: warps share none of them. */
GPU_CONSTEXPR uint32_t gpu_mma_stores_rows(struct gpu_mma_shape s)
{
    return gpu_mma_groups(s) == 1 && s.kv_size != 4;
}

/* Bytes in front of queries and stages (struct mma_shared), a multiple of 128, or of 1 KB where matrices
 * follow. Small M has it four times. */
GPU_CONSTEXPR uint32_t gpu_mma_fixed_bytes(struct gpu_mma_shape s)
{
    const uint32_t times = s.rows == 8 ? 4 : 1;
    const uint32_t keys = gpu_mma_keys(s) / times, scales = s.e4m3           ? 0
                                                            : s.kv_size == 1 ? 8
                                                            : s.scaled       ? 4
                                                                             : 0;
    const uint32_t addresses = (16 + scales) * keys * gpu_mma_address_stages(s);
    const uint32_t nonfinite = keys * s.dv / (s.kv_size == 4 ? 4 : 8);

    const uint32_t outputs = gpu_mma_stores_rows(s) ? 8 * s.rows : 8;

    const uint32_t bytes =
        (s.wgmma ? 1600 + 33 * s.rows : 928) + 16 * scales + nonfinite + 80 * s.rows + outputs + addresses;
    const uint32_t unit = s.wgmma ? 1024 : 128;

    return (bytes + unit - 1) / unit * unit * times;
}

/* f32 scores of a tile, which warps with the same rows exchange. */
GPU_CONSTEXPR uint32_t gpu_mma_exchange_bytes(struct gpu_mma_shape s)
{
    return gpu_mma_column_warps(s) > 1 ? s.rows * gpu_mma_keys(s) * 4 : 0;
}

/* Results in f32 that warp groups set aside, of e4m3. */
GPU_CONSTEXPR uint32_t gpu_mma_aside_bytes(struct gpu_mma_shape s)
{
    return s.e4m3 ? s.rows * (s.dv + 8) * 4 : 0;
}

/* Whether there is no room for them in shared memory. */
GPU_CONSTEXPR uint32_t gpu_mma_sets_aside_in_scratch(struct gpu_mma_shape s)
{
    return s.e4m3 && s.dv > 128;
}

/* A buffer of queries. */
GPU_CONSTEXPR uint32_t gpu_mma_query_bytes(struct gpu_mma_shape s)
{
    return s.rows * (s.dk * (s.kv_size == 4 ? 4 : 2) + gpu_mma_row_padding(s));
}

/* A buffer of queries, all stages, and exchanged scores, or results that are set aside. */
GPU_CONSTEXPR uint32_t gpu_mma_input_bytes(struct gpu_mma_shape s)
{
    return gpu_mma_query_bytes(s) +
           gpu_mma_stages(s) * (gpu_mma_stage_bytes(s) + 64 * gpu_mma_row_padding(s)) +
           2 * gpu_mma_raw_stages(s) * gpu_mma_raw_bytes(s) + gpu_mma_exchange_bytes(s) +
           (gpu_mma_sets_aside_in_scratch(s) ? 0 : gpu_mma_aside_bytes(s));
}

/* Floats between rows of f32 results. A warp of small M puts them in the place of its stages. */
GPU_CONSTEXPR uint32_t gpu_mma_result_pitch(struct gpu_mma_shape s)
{
    return s.rows == 8 && s.kv_size == 1 && s.dk > 256 ? s.dv : s.dv + 8;
}

/* Results of all warp groups, which overwrite the first queries and all stages. */
GPU_CONSTEXPR uint32_t gpu_mma_result_bytes(struct gpu_mma_shape s)
{
    return gpu_mma_groups(s) * s.rows * gpu_mma_result_pitch(s) * 4;
}

/* Bytes in front of a second buffer of queries. */
GPU_CONSTEXPR uint32_t gpu_mma_first_bytes(struct gpu_mma_shape s)
{
    const uint32_t inputs = gpu_mma_input_bytes(s), results = gpu_mma_result_bytes(s);

    return gpu_mma_fixed_bytes(s) + (inputs > results ? inputs : results);
}

/* Most dynamic shared memory of a CTA. */
GPU_CONSTEXPR uint32_t gpu_mma_shared_bytes(struct gpu_mma_shape s)
{
    return gpu_mma_first_bytes(s) + (gpu_mma_query_stages(s) - 1) * gpu_mma_query_bytes(s);
}

/* CTAs that a multiprocessor has registers for, and shared memory where a CTA can have 227 KB. */
GPU_CONSTEXPR uint32_t gpu_mma_ctas(struct gpu_mma_shape s)
{
    if (s.kv_size == 4)
        return s.dk > 128 ? 1 : 2;
    if (gpu_mma_threads(s) > 128)
        return 1;
    if (s.rows > 16)
        return 2;
    if (s.dk > 192)
        return s.kv_size == 1 ? 2 : 1;
    return s.dk > 128 ? 2 : s.dk > 64 ? 3 : 4;
}

/* Those of them that fit where a CTA can have `limit` bytes: all of a multiprocessor but 1 KB, which each CTA
 * costs. A persistent CTA that has to wait for another would make a launch take twice as long. */
GPU_CONSTEXPR uint32_t gpu_mma_resident_ctas(struct gpu_mma_shape s, uint32_t limit)
{
    const uint32_t fit = (limit + 1024) / (gpu_mma_shared_bytes(s) + 1024), most = gpu_mma_ctas(s);

    return fit < 1 ? 1 : fit < most ? fit : most;
}

#endif
