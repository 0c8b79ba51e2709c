/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Level amx: level avx512 and the tile instructions of AMX for bf16 and int8, with the conversions of AVX-512
 * BF16 that they need.
 *
 * There are eight tiles of 16 rows of 64 bytes, numbered by literals: 16 f32 a row of sums, 32 bf16 a row of
 * factors. tile_product(c, a, b) adds the product of a, 16 x 32, and b, 32 x 16, to c; b has pairs of its
 * rows side by side: b[row / 2][column][row % 2]. Subnormal numbers count as 0 there.
 */
#ifndef ATTN_CPU_SIMD_AMX_H
#define ATTN_CPU_SIMD_AMX_H

#include "avx512.h"
#include "bf16.h"

/* The level has tiles, of so many rows. */
#define VEC_TILES 8u
#define TILE_ROWS 16u

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
/* That, or the product of int8, 16 x 64 and 64 x 16, whose sums are 32-bit integers; b has four rows side by
 * side. */
#define tile_product_of(ints, c, a, b)                                                                       \
    do {                                                                                                     \
        if (ints)                                                                                            \
            _tile_dpbssd(c, a, b);                                                                           \
        else                                                                                                 \
            _tile_dpbf16ps(c, a, b);                                                                         \
    } while (0)

/* Stores VEC_LANES numbers rounded to bf16; returns them as they are there. */
INLINE vec bf16_store(uint16_t *to, vec x)
{
    const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(x);
    _mm256_storeu_si256((__m256i *)(void *)to, rounded);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16));
}

/* Kinds of numbers: of 2^127 and more or not finite; of 2^55 and more or not finite. */
#define BF16_ODD   1u
#define BF16_LARGE 2u

/* 32 bf16, zeros for those of kind BF16_ODD. Adds to *kinds which kinds there are. */
INLINE vec_int bf16_load(const void *from, uint32_t *kinds)
{
    const __m512i x = _mm512_loadu_si512(from);
    const __m512i size = _mm512_and_si512(x, _mm512_set1_epi16(0x7fff));
    const __mmask32 fits = _mm512_cmplt_epu16_mask(size, _mm512_set1_epi16(0x7f00));
    const __mmask32 small = _mm512_cmplt_epu16_mask(size, _mm512_set1_epi16(0x5b00));
    *kinds |= (fits != UINT32_MAX ? BF16_ODD : 0) | (small != UINT32_MAX ? BF16_LARGE : 0);
    return _mm512_maskz_mov_epi16(fits, x);
}

/* Copies such 32. Returns which kinds there are. */
INLINE uint32_t bf16_copy(uint16_t *to, const void *from)
{
    uint32_t kinds = 0;
    _mm512_storeu_si512(to, bf16_load(from, &kinds));
    return kinds;
}

/* 32 numbers of 16 rows as pairs: [number / 2][row][number % 2]. */
INLINE void bf16_store_panel(uint16_t *to, const vec_int *rows)
{
    vec a[16];
    UNROLL
    for (uint32_t i = 0; i < 16; i++)
        a[i] = _mm512_castsi512_ps(rows[i]);
    vec_transpose(a);
    UNROLL
    for (uint32_t i = 0; i < 16; i++)
        _mm512_storeu_ps((float *)(void *)(to + (size_t)i * 32), a[i]);
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

/* Lanes that are 32-bit integers as f32. */
INLINE vec vec_of_ints(vec x)
{
    return _mm512_cvtepi32_ps(_mm512_castps_si512(x));
}

/* Four times four f32, `stride` floats apart. */
INLINE vec vec_load_fours(const float *p, size_t stride)
{
    __m512 x = _mm512_castps128_ps512(_mm_loadu_ps(p));
    x = _mm512_insertf32x4(x, _mm_loadu_ps(p + stride), 1);
    x = _mm512_insertf32x4(x, _mm_loadu_ps(p + 2 * stride), 2);
    return _mm512_insertf32x4(x, _mm_loadu_ps(p + 3 * stride), 3);
}

/*
 * Balanced digits to base 256, from -128 to 127, of integers below 2^23: in each quarter of the vector, the
 * lowest digits of its four lanes, then the digits above.
 */
INLINE vec_int int8_digits(vec x)
{
    static const uint8_t order[64] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
                                      0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
                                      0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
                                      0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const __m512i middle = _mm512_set1_epi32(0x808080);
    const __m512i y = _mm512_xor_si512(_mm512_add_epi32(_mm512_cvtps_epi32(x), middle), middle);
    return _mm512_shuffle_epi8(y, _mm512_loadu_si512(order));
}

/* Digits of 64 numbers times `scale`, as words[digit] for four numbers each. */
INLINE void int8_terms(const float *x, float scale, uint32_t words[3][16])
{
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t four[16];
        _mm512_storeu_si512(four, int8_digits(_mm512_mul_ps(vec_load_f32(x + 16 * i), vec_set(scale))));
        for (uint32_t j = 0; j < 4; j++)
            for (uint32_t digit = 0; digit < 3; digit++)
                words[digit][4 * i + j] = four[4 * j + digit];
    }
}

/* Digits of 64 weights times `scale`, rows `stride` bytes apart: keys 16 i + 4 j to 3 more behind one another
 * at 16 j + 4 i. */
INLINE void int8_weights(const float *x, float scale, char *to, size_t stride)
{
    vec a[4], b[4];
    UNROLL
    for (uint32_t i = 0; i < 4; i++)
        a[i] = _mm512_castsi512_ps(int8_digits(_mm512_mul_ps(vec_load_f32(x + 16 * i), vec_set(scale))));
    vec_transpose4(a, b);
    UNROLL
    for (uint32_t i = 0; i < 3; i++)
        _mm512_storeu_ps((float *)(void *)(to + i * stride), b[i]);
}

/* Terms of 32 numbers, as words[term] for two numbers each. */
INLINE void bf16_terms(const float *x, uint32_t terms, uint32_t words[3][16])
{
    vec low = vec_load_f32(x), high = vec_load_f32(x + 16);
    for (uint32_t i = 0; i < terms; i++) {
        uint16_t *to = (uint16_t *)(void *)words[i];
        low = vec_sub(low, bf16_store(to, low));
        high = vec_sub(high, bf16_store(to + 16, high));
    }
}

/* Terms of 64 weights, rows `stride` bytes apart, the second half in the next tile. */
INLINE void bf16_weights(const float *x, uint32_t terms, char *to, size_t stride, size_t tile)
{
    for (uint32_t i = 0; i < 4; i++) {
        char *at = to + i / 2 * tile + i % 2 * 32;
        vec y = vec_load_f32(x + 16 * i);
        for (uint32_t term = 0; term < terms; term++)
            y = vec_sub(y, bf16_store((uint16_t *)(void *)(at + term * stride), y));
    }
}

/* Row of four tiles, `tile` bytes apart, from 64 bytes of four rows: byte 16 L + 4 j + i of each to column 4
 * L + i of tile j. */
INLINE void bytes_interleave(const char *base, const int64_t *rows, char *to, size_t tile)
{
    const __m512i a = _mm512_loadu_si512(base + rows[0]), b = _mm512_loadu_si512(base + rows[1]);
    const __m512i c = _mm512_loadu_si512(base + rows[2]), d = _mm512_loadu_si512(base + rows[3]);
    const __m512i ab = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b);
    const __m512i cd = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi16(ab, cd));
    _mm512_storeu_si512(to + tile, _mm512_unpackhi_epi16(ab, cd));
    _mm512_storeu_si512(to + 2 * tile, _mm512_unpacklo_epi16(ab_high, cd_high));
    _mm512_storeu_si512(to + 3 * tile, _mm512_unpackhi_epi16(ab_high, cd_high));
}

/* Four tiles' columns in the order of the dimensions. */
INLINE void bytes_order(const vec *a, vec *x)
{
    vec_transpose_quarters(a[0], a[1], a[2], a[3], x, 1);
}

/* The same for 32 bf16 of two rows: number 8 L + 4 j + i to column 4 L + i of tile j of two. */
INLINE void words_interleave(const char *base, const int64_t *rows, char *to, size_t tile)
{
    const __m512i a = _mm512_loadu_si512(base + rows[0]), b = _mm512_loadu_si512(base + rows[1]);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi16(a, b));
    _mm512_storeu_si512(to + tile, _mm512_unpackhi_epi16(a, b));
}

INLINE void words_order(const vec *a, vec *x)
{
    UNROLL
    for (uint32_t i = 0; i < 4; i += 2) {
        const __m512 low = _mm512_shuffle_f32x4(a[i], a[i + 1], 0x44);
        const __m512 high = _mm512_shuffle_f32x4(a[i], a[i + 1], 0xee);
        x[i] = _mm512_shuffle_f32x4(low, low, 0xd8);
        x[i + 1] = _mm512_shuffle_f32x4(high, high, 0xd8);
    }
}

#endif
