/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Instructions of AVX-512 BF16, and others that SIMDe has not, as Intel's manual defines them to the bit. */
#ifndef ATTN_TEST_CPU_BF16_MODEL_H
#define ATTN_TEST_CPU_BF16_MODEL_H

#include "avx512-simde.h"

#pragma GCC system_header /* as there */

/* f32 with subnormals as 0. */
static inline float model_flush(float x)
{
    return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0, x) : x;
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

#define __mmask32                              uint32_t
#define _mm512_cvtne2ps_pbh(high, low)         model_to_bf16_two(high, low)
#define _mm512_cvtneps_pbh(x)                  model_to_bf16_one(x)
#define _mm512_permutexvar_epi16(which, x)     model_permute(x, which, x)
#define _mm512_permutex2var_epi16(a, which, b) model_permute(a, which, b)
#define _mm512_cmplt_epu16_mask(a, b)          model_less(a, b)
#define _mm512_maskz_mov_epi16(mask, x)        model_keep(mask, x)
#define _mm512_mask_blend_epi16(mask, a, b)    model_blend(mask, a, b)
#define _mm512_dpbf16_ps(sum, a, b)            model_add_products(sum, a, b)
#define __m512bh                               simde__m512i

#endif
