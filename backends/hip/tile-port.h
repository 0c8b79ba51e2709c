/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The words that matrix kernels have beside those of port.h: products of 16x16 blocks by a wave, whatever the
 * GPU has for them. Four forms: MFMA (CDNA), WMMA of gfx11 and of gfx12, and dot products of lanes for GPUs
 * without matrix units and for the host.
 *
 *   TILE_WAVE   lanes of a wave
 *   TILE_ACC    what a lane has of a 16x16 product, 256 / TILE_WAVE: elements of column lane % 16, from row
 *               TILE_ACC * (lane / 16) on
 *   struct tile_b      what it has of an operand of 16 columns: as many elements of its column, alike, two in
 *                      a word. A product is such an operand of the next one as soon as it is rounded.
 *   struct tile_full   the same as the instructions want it
 *
 *   tile_full_of(struct tile_full *, const struct tile_b *)
 *
 *   tile_multiply_rows(float d[TILE_ACC], rows, pitch, const struct tile_full *b, bool wide)
 *       d += A b. Row r of A: 16 elements at rows + r * pitch, in shared memory
 *
 *   tile_multiply_columns(float d[TILE_ACC], values, column, keys, const struct tile_full *b, bool wide)
 *       d += A b. Row r of A: elements 16 * keys and on of column `column` + r of values (tile_quad_at)
 *
 *   float tile_most(float)   float tile_total(float)   uint32_t tile_any(uint32_t)
 *       the largest, the sum, the bits of the lanes of a column
 *
 *   TILE_ROLLED   1: loops over products stay loops
 *
 * `wide`: elements are bf16, else f16; sums are f32.
 */
#ifndef ATTN_HIP_TILE_PORT_H
#define ATTN_HIP_TILE_PORT_H

#include "port.h"

#include "address.h"

#include "tile.h"

#if defined(TILE_LANES) /* the host's choice */
#define TILE_WAVE (TILE_LANES + 0u)
#else
#define TILE_WAVE GPU_WAVE
#endif
#define TILE_ACC (256u / TILE_WAVE)
#if defined(__gfx906__) || defined(__gfx908__)
#define TILE_LATE 0
#else
#define TILE_LATE 1
#endif

struct tile_b {
    uint32_t x[TILE_ACC / 2];
};

/* What is behind it stays there: operands are not loaded long before their turn. */
#if defined(__AMDGCN__)
#define TILE_TURN() __builtin_amdgcn_sched_barrier(0)
#else
#define TILE_TURN() ((void)0)
#endif

/* The thread's number, of which nothing is known that was computed before: places are found anew, not kept.
 */
GPU_INLINE uint32_t tile_thread(void)
{
    uint32_t thread = gpu_thread();

#if defined(__AMDGCN__)
    __asm__ volatile("" : "+v"(thread));
#endif
    return thread % (8 * TILE_WAVE);
}

GPU_INLINE uint32_t tile_lane(void)
{
    return gpu_thread() % TILE_WAVE;
}

/* What all lanes of the wave have in common, as the compiler cannot know: a scalar. */
GPU_INLINE uint32_t tile_same(uint32_t x)
{
#if defined(__AMDGCN__)
    return (uint32_t)__builtin_amdgcn_readfirstlane((int)x);
#else
    return x;
#endif
}
GPU_INLINE uint64_t tile_same_u64(uint64_t x)
{
    return (uint64_t)tile_same((uint32_t)(x >> 32)) << 32 | tile_same((uint32_t)x);
}
GPU_INLINE float tile_same_f32(float x)
{
    return gpu_f32_of_bits(tile_same(gpu_f32_bits(x)));
}

/* The wave's number. */
GPU_INLINE uint32_t tile_wave(void)
{
    return tile_same(gpu_thread() / TILE_WAVE);
}

/* Words of shared memory at a multiple of 8 or 16 bytes. */
GPU_INLINE struct gpu_u64 tile_load_u64(const unsigned char *at)
{
    struct gpu_u64 to;

    __builtin_memcpy(&to, __builtin_assume_aligned(at, 8), 8);
    return to;
}
GPU_INLINE void tile_store_u64(unsigned char *at, struct gpu_u64 from)
{
    __builtin_memcpy(__builtin_assume_aligned(at, 8), &from, 8);
}

/*
 * Four keys of a column of values lie together. Where in the column depends on it, so that neither those who
 * write eight columns each nor those who read 16 meet in few banks.
 */
GPU_INLINE uint32_t tile_quad_at(uint32_t column, uint32_t quad)
{
    return column * HIP_TILE_COLUMN + (quad ^ (column / 8 % 16)) * 8;
}

/* Quads 4 * keys + inner of columns `column` + row, of which the first is a multiple of 16 and a constant. */
GPU_INLINE struct gpu_u64 tile_quad(const unsigned char *values, uint32_t column, uint32_t row, uint32_t keys,
                                    uint32_t inner)
{
    const uint32_t same = (4 * keys ^ (column / 8 % 16)), low = inner ^ row / 8 ^ (same & 3);

    return tile_load_u64(values + row * HIP_TILE_COLUMN + low * 8 +
                         (column * HIP_TILE_COLUMN + (same & 12) * 8));
}

/* The lane's part of 16 elements of its column, at a multiple of 16 bytes of shared memory. */
GPU_INLINE void tile_load_b(struct tile_b *b, const unsigned char *at)
{
    at += tile_lane() / 16 * (TILE_ACC * 2);
    GPU_UNROLL
    for (uint32_t i = 0; i < TILE_ACC / 4; i++) {
        const struct gpu_u64 two = tile_load_u64(at + i * 8);
        b->x[2 * i] = two.x[0];
        b->x[2 * i + 1] = two.x[1];
    }
}

/* The upper half of the result is the bf16 of a number that is not negative, or of NaN. */
GPU_INLINE uint32_t tile__bf16(float x)
{
    const uint32_t bits = gpu_f32_bits(x), number = bits < 0x7fc00000u ? bits : 0x7fc00000u;

    return number + 0x7fffu + (number >> 16 & 1);
}

/* Of elements that were products: P, which is not negative. */
GPU_INLINE void tile_round_b(struct tile_b *b, const float p[TILE_ACC], bool wide)
{
    GPU_UNROLL
    for (uint32_t i = 0; i < TILE_ACC / 2; i++)
        b->x[i] = wide ? gpu_permute(tile__bf16(p[2 * i]), tile__bf16(p[2 * i + 1]), 0x7632)
                       : gpu_pack_f16(p[2 * i], p[2 * i + 1]);
}

/* Of another lane; the words of port.h know halves of waves of 64. */
#if defined(__AMDGCN__)
GPU_INLINE uint32_t tile_from(uint32_t value, uint32_t lane)
{
    return (uint32_t)__builtin_amdgcn_ds_bpermute((int)(lane * 4), (int)value);
}
#else
GPU_INLINE uint32_t tile_from(uint32_t value, uint32_t lane)
{
    static uint32_t shown[8][TILE_WAVE];
    const uint32_t wave = gpu_thread() / TILE_WAVE;

    shown[wave][gpu_thread() % TILE_WAVE] = value;
    gpu_barrier_part(1 + wave, TILE_WAVE);
    value = shown[wave][lane];
    gpu_barrier_part(1 + wave, TILE_WAVE);
    return value;
}
#endif

GPU_INLINE float tile_across(float value, uint32_t mask)
{
    if (mask < 32)
        return gpu_shuffle_xor_f32(value, mask);
    return gpu_f32_of_bits(tile_from(gpu_f32_bits(value), tile_lane() ^ mask));
}

GPU_INLINE float tile_most(float value)
{
    GPU_UNROLL
    for (uint32_t step = 16; step < TILE_WAVE; step *= 2) {
        const float other = tile_across(value, step);
        value = value > other ? value : other;
    }
    return value;
}
GPU_INLINE float tile_total(float value)
{
    GPU_UNROLL
    for (uint32_t step = 16; step < TILE_WAVE; step *= 2)
        value += tile_across(value, step);
    return value;
}
GPU_INLINE uint32_t tile_any(uint32_t bits)
{
    GPU_UNROLL
    for (uint32_t step = 16; step < TILE_WAVE; step *= 2)
        bits |= tile_from(bits, tile_thread() % TILE_WAVE ^ step);
    return bits;
}

#if defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
#include "tile-mfma.h"
#elif defined(__GFX11__)
#include "tile-wmma11.h"
#elif defined(__GFX12__)
#include "tile-wmma12.h"
#else
#include "tile-dot.h"
#endif

#endif
