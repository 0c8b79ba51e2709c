/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Level amx: level avx512 and the tile instructions of AMX for bf16, with the conversions of AVX-512 BF16
 * that they need.
 *
 * There are eight tiles of 16 rows of 64 bytes, numbered by literals: 16 f32 a row of sums, 32 bf16 a row of
 * factors. tile_product(c, a, b) adds the product of a, 16 x 32, and b, 32 x 16, to c; b has pairs of its
 * rows side by side: b[row / 2][column][row % 2]. Subnormal numbers count as 0 there.
 */
#ifndef ATTN_CPU_SIMD_AMX_H
#define ATTN_CPU_SIMD_AMX_H

#include "avx512.h"

/* The level has tiles. */
#define VEC_TILES 8u

/* Intel's layout of the 64 bytes that say what the tiles look like. */
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static const struct tile_shapes tile_shapes = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

/* Tiles of this thread are there to be used, with zeros in them, from tiles_begin to tiles_end. */
INLINE void tiles_begin(void)
{
    _tile_loadconfig(&tile_shapes);
}

INLINE void tiles_end(void)
{
    _tile_release();
}

/* Compilers do not know that a tile is loaded from memory: what was stored before is there from here on. */
INLINE void tile_fence(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Rows lie `stride` bytes apart. Arguments `tile` are literals, which the intrinsics make part of a name. */
#define tile_load(tile, from, stride) _tile_loadd(tile, from, stride)
#define tile_store(tile, to, stride)  _tile_stored(tile, to, stride)
#define tile_clear(tile)              _tile_zero(tile)
#define tile_product(c, a, b)         _tile_dpbf16ps(c, a, b)

/* Sixteen pairs of bf16: each lane of `even` and `odd`, rounded to nearest even. */
INLINE vec_int bf16_pairs(vec even, vec odd)
{
    static const uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}

/* A number with the upper half of its bits: what a bf16 keeps of it without rounding. */
INLINE vec bf16_cut(vec x)
{
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int32_t)0xffff0000)));
}

/* The pairs of bf16_pairs, cut and not rounded. */
INLINE vec_int bf16_cut_pairs(vec even, vec odd)
{
    const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even), 16);
    return _mm512_or_si512(low, _mm512_castps_si512(bf16_cut(odd)));
}

INLINE vec bf16_even(vec_int pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

INLINE vec bf16_odd(vec_int pairs)
{
    return bf16_cut(_mm512_castsi512_ps(pairs));
}

INLINE void bf16_store_pairs(uint16_t *to, vec_int pairs)
{
    _mm512_storeu_si512(to, pairs);
}

/* Stores VEC_LANES numbers rounded to bf16; returns them as they are there. */
INLINE vec bf16_store(uint16_t *to, vec x)
{
    const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(x);
    _mm256_storeu_si256((__m256i *)(void *)to, rounded);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16));
}

/* Copies 32 bf16, zeros for numbers of 2^127 and more and what is not finite. Returns whether there are any.
 */
INLINE int bf16_copy(uint16_t *to, const void *from)
{
    const __m512i x = _mm512_loadu_si512(from);
    const __m512i size = _mm512_and_si512(x, _mm512_set1_epi16(0x7fff));
    const __mmask32 fits = _mm512_cmplt_epu16_mask(size, _mm512_set1_epi16(0x7f00));
    _mm512_storeu_si512(to, _mm512_maskz_mov_epi16(fits, x));
    return fits != UINT32_MAX;
}

/* 32 rows of 32 bf16, `stride` numbers apart, to columns. */
INLINE void bf16_transpose(const uint16_t *from, size_t stride, uint16_t *to, size_t to_stride)
{
    static const uint16_t low[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                     32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
    vec a[16], b[16];
    UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        a[i] = _mm512_castsi512_ps(_mm512_loadu_si512(from + i * stride));
        b[i] = _mm512_castsi512_ps(_mm512_loadu_si512(from + (i + 16) * stride));
    }
    vec_transpose(a);
    vec_transpose(b);
    const __m512i evens = _mm512_loadu_si512(low);
    const __m512i odds = _mm512_add_epi16(evens, _mm512_set1_epi16(1));
    UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        const __m512i x = _mm512_castps_si512(a[i]), y = _mm512_castps_si512(b[i]);
        _mm512_storeu_si512(to + 2 * i * to_stride, _mm512_permutex2var_epi16(x, evens, y));
        _mm512_storeu_si512(to + (2 * i + 1) * to_stride, _mm512_permutex2var_epi16(x, odds, y));
    }
}

#endif
