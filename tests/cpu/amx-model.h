/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Level amx on machines without it: the operations of simd/amx.h over a model of the tile instructions, as
 * Intel's manual defines them to the bit, and on the vectors of avx512-simde.h.
 */
#ifndef ATTN_TEST_CPU_AMX_MODEL_H
#define ATTN_TEST_CPU_AMX_MODEL_H

#include "bf16-model.h"

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

/* Decode uses tiles for all groups here. */
#define TILED_GROUP_INT8 1u
#define TILED_GROUP_BF16 1u

#define _tile_loadconfig(config)     ((void)(config))
#define _tile_release()              ((void)0)
#define _tile_zero(t)                memset(model_tiles[t], 0, sizeof model_tiles[t])
#define _tile_loadd(t, from, stride) model_load_tile(model_tiles[t], from, stride)
#define _tile_stored(t, to, stride)  model_store_tile(model_tiles[t], to, stride)
#define _tile_dpbf16ps(c, a, b)      model_multiply(model_tiles[c], model_tiles[a], model_tiles[b])
#define _tile_dpbssd(c, a, b)        model_multiply_int8(model_tiles[c], model_tiles[a], model_tiles[b])

#include "simd/amx.h"
#include "simd/madd.h" /* in place of VNNI */

#endif
