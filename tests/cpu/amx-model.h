/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Level amx on machines without it: the operations of simd/amx.h over a model of the tile instructions, as
 * Intel's manual defines them to the bit, and on the vectors of avx512-simde.h.
 */
#ifndef ATTN_TEST_CPU_AMX_MODEL_H
#define ATTN_TEST_CPU_AMX_MODEL_H

#include "avx512-simde.h"

#pragma GCC system_header /* as there */

static _Thread_local float model_tiles[8][16][16];

/* Only tiles of 16 rows of 64 bytes are modelled. */
static inline void model_load_tile(float (*tile)[16], const void *from, size_t stride)
{
    for (size_t row = 0; row < 16; row++)
        memcpy(tile[row], (const char *)from + row * stride, 64);
}

static inline void model_store_tile(float (*tile)[16], void *to, size_t stride)
{
    for (size_t row = 0; row < 16; row++)
        memcpy((char *)to + row * stride, tile[row], 64);
}

/* f32 with subnormals as 0. */
static inline float model_flush(float x)
{
    return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0, x) : x;
}

/* Even or odd numbers of eight pairs of bf16. */
static inline __m256 model_bf16(__m256i pairs, int odd)
{
    const __m256i high = _mm256_set1_epi32((int32_t)0xffff0000);
    return _mm256_castsi256_ps(odd ? _mm256_and_si256(pairs, high) : _mm256_slli_epi32(pairs, 16));
}

/* Eight columns of a row: even and odd factors are added up apart from one another, each with one rounding.
 */
static inline void model_multiply_row(float *c, const float *a, float (*b)[16])
{
    __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int k = 0; k < 16; k++) {
        const __m256i left = _mm256_castps_si256(_mm256_set1_ps(a[k]));
        const __m256i right = _mm256_loadu_si256((const __m256i *)(const void *)b[k]);
        for (int odd = 0; odd < 2; odd++)
            sums[odd] = _mm256_fmadd_ps(model_bf16(left, odd), model_bf16(right, odd), sums[odd]);
    }
    _mm256_storeu_ps(c, _mm256_add_ps(_mm256_loadu_ps(c), _mm256_add_ps(sums[0], sums[1])));
}

/* TDPBF16PS, for which subnormals are 0. */
static inline void model_multiply(float (*c)[16], float (*a)[16], float (*b)[16])
{
    const unsigned int mode = _mm_getcsr(), flush = 0x8040;
    _mm_setcsr(mode | flush);
    for (int m = 0; m < 16; m++) {
        model_multiply_row(c[m], a[m], b);
        model_multiply_row(c[m] + 8, a[m], (float(*)[16])(void *)(b[0] + 8));
    }
    _mm_setcsr(mode);
}

/* TDPBSSD: int8 in all tiles but c, which has 32-bit integers. */
static inline void model_multiply_int8(float (*c)[16], float (*a)[16], float (*b)[16])
{
    int8_t left[16][64], right[16][16][4];
    int32_t sums[16][16];
    memcpy(left, a, sizeof left);
    memcpy(right, b, sizeof right);
    memcpy(sums, c, sizeof sums);
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 16; n++)
                for (int i = 0; i < 4; i++)
                    sums[m][n] += left[m][4 * k + i] * right[k][n][i];
    memcpy(c, sums, sizeof sums);
}

/* f32 to bf16, to nearest even; subnormals to 0. */
static inline uint16_t model_to_bf16(float x)
{
    uint32_t bits;
    x = model_flush(x);
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(x != x ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline simde__m512i model_to_bf16_two(simde__m512 high, simde__m512 low)
{
    simde__m512_private a = simde__m512_to_private(low), b = simde__m512_to_private(high);
    simde__m512i_private x;
    for (int i = 0; i < 16; i++) {
        x.u16[i] = model_to_bf16(a.f32[i]);
        x.u16[16 + i] = model_to_bf16(b.f32[i]);
    }
    return simde__m512i_from_private(x);
}

static inline __m256i model_to_bf16_one(simde__m512 x)
{
    return ints_half(model_to_bf16_two(x, x), 0);
}

/* Words of `a` and, behind them, b, by number. */
static inline simde__m512i model_permute(simde__m512i a, simde__m512i which, simde__m512i b)
{
    simde__m512i_private p = simde__m512i_to_private(a), q = simde__m512i_to_private(b);
    simde__m512i_private numbers = simde__m512i_to_private(which), x;
    for (int i = 0; i < 32; i++)
        x.u16[i] = (numbers.u16[i] & 32 ? q : p).u16[numbers.u16[i] & 31];
    return simde__m512i_from_private(x);
}

static inline uint32_t model_less(simde__m512i a, simde__m512i b)
{
    simde__m512i_private p = simde__m512i_to_private(a), q = simde__m512i_to_private(b);
    uint32_t mask = 0;
    for (int i = 0; i < 32; i++)
        mask |= (uint32_t)(p.u16[i] < q.u16[i]) << i;
    return mask;
}

static inline simde__m512i model_keep(uint32_t mask, simde__m512i a)
{
    simde__m512i_private p = simde__m512i_to_private(a);
    for (int i = 0; i < 32; i++)
        p.u16[i] = (mask >> i & 1) != 0 ? p.u16[i] : 0;
    return simde__m512i_from_private(p);
}

/* A number of each pair, or of `others` where the mask has its bit. */
static inline simde__m512i model_blend(uint32_t mask, simde__m512i a, simde__m512i others)
{
    simde__m512i_private p = simde__m512i_to_private(a), q = simde__m512i_to_private(others);
    for (int i = 0; i < 32; i++)
        p.u16[i] = (mask >> i & 1) != 0 ? q.u16[i] : p.u16[i];
    return simde__m512i_from_private(p);
}

/* VDPBF16PS: odd factors first, each product added with one rounding, subnormals as 0. */
static inline simde__m512 model_add_products(simde__m512 sum, simde__m512i a, simde__m512i b)
{
    simde__m512_private x = simde__m512_to_private(sum);
    simde__m512i_private p = simde__m512i_to_private(a), q = simde__m512i_to_private(b);
    for (int i = 0; i < 16; i++) {
        x.f32[i] = model_flush(x.f32[i]);
        for (int odd = 2; odd-- > 0;) {
            const uint32_t left = (uint32_t)p.u16[2 * i + odd] << 16,
                           right = (uint32_t)q.u16[2 * i + odd] << 16;
            float factors[2];
            memcpy(&factors[0], &left, 4);
            memcpy(&factors[1], &right, 4);
            x.f32[i] =
                model_flush(__builtin_fmaf(model_flush(factors[0]), model_flush(factors[1]), x.f32[i]));
        }
    }
    return simde__m512_from_private(x);
}

/* Decode uses tiles for all groups here. */
#define TILED_GROUP_INT8 1u
#define TILED_GROUP_BF16 1u

#define __mmask32                              uint32_t
#define _tile_loadconfig(config)               ((void)(config))
#define _tile_release()                        ((void)0)
#define _tile_zero(t)                          memset(model_tiles[t], 0, sizeof model_tiles[t])
#define _tile_loadd(t, from, stride)           model_load_tile(model_tiles[t], from, stride)
#define _tile_stored(t, to, stride)            model_store_tile(model_tiles[t], to, stride)
#define _tile_dpbf16ps(c, a, b)                model_multiply(model_tiles[c], model_tiles[a], model_tiles[b])
#define _tile_dpbssd(c, a, b)                  model_multiply_int8(model_tiles[c], model_tiles[a], model_tiles[b])
#define _mm512_cvtne2ps_pbh(high, low)         model_to_bf16_two(high, low)
#define _mm512_cvtneps_pbh(x)                  model_to_bf16_one(x)
#define _mm512_permutexvar_epi16(which, x)     model_permute(x, which, x)
#define _mm512_permutex2var_epi16(a, which, b) model_permute(a, which, b)
#define _mm512_cmplt_epu16_mask(a, b)          model_less(a, b)
#define _mm512_maskz_mov_epi16(mask, x)        model_keep(mask, x)
#define _mm512_mask_blend_epi16(mask, a, b)    model_blend(mask, a, b)
#define _mm512_dpbf16_ps(sum, a, b)            model_add_products(sum, a, b)
#define __m512bh                               simde__m512i

#include "simd/amx.h"
#include "simd/madd.h" /* in place of VNNI */

#endif
