/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the headers of all levels include: inlining, unrolling, and the element types of a cache. */
#ifndef ATTN_CPU_SIMD_BASE_H
#define ATTN_CPU_SIMD_BASE_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "attn/types.h"

#define INLINE static inline __attribute__((always_inline))

/*
 * For loops with constant bounds, over arrays that have to stay in registers. Not under sanitizers: with
 * their checks of every access, the unrolled kernels take a compiler twenty times as long.
 */
#if defined(__clang__)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UNROLL
#else
#define UNROLL _Pragma("clang loop unroll(full)")
#endif
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

/*
 * From flush_begin to flush_end the thread gets 0 for results below 2^-126: processors of x86 take over a
 * hundred cycles for each that is subnormal, as weights of keys far below the largest score are. flush_end
 * takes what flush_begin returned.
 */
#if defined(__SSE__)
INLINE uint32_t flush_begin(void)
{
    const uint32_t before = _mm_getcsr();
    _mm_setcsr(before | _MM_FLUSH_ZERO_ON);
    return before;
}

INLINE void flush_end(uint32_t before)
{
    _mm_setcsr(before);
}
#else
INLINE uint32_t flush_begin(void)
{
    return 0;
}

INLINE void flush_end(uint32_t before)
{
    (void)before;
}
#endif

/* Bytes that one prefetch loads. */
#define CACHE_LINE 64u

/* Element types as small constants, so that a kernel can be instantiated for each. */
enum vec_type {
    VEC_F32 = 0,
    VEC_F16 = 1,
    VEC_BF16 = 2,
    VEC_INT8 = 3,
    VEC_E4M3 = 4,
    VEC_E5M2 = 5,
    VEC_E4M3FNUZ = 6,
    VEC_E5M2FNUZ = 7,
    VEC_Q8_0 = 8, /* from here on types that have blocks: blocks.h */
    VEC_Q4_0 = 9,
    VEC_Q4_1 = 10,
    VEC_Q5_0 = 11,
    VEC_Q5_1 = 12,
    VEC_IQ4_NL = 13,
    VEC_TYPES = 14,
    VEC_E4M3_FINITE = 14 /* e4m3 without a NaN: no type of a cache, but that of a part of it */
};

INLINE enum vec_type vec_type_of(uint32_t dtype)
{
    switch (dtype) {
    case ATTN_F32:
        return VEC_F32;
    case ATTN_F16:
        return VEC_F16;
    case ATTN_BF16:
        return VEC_BF16;
    case ATTN_INT8:
        return VEC_INT8;
    case ATTN_E4M3:
        return VEC_E4M3;
    case ATTN_E5M2:
        return VEC_E5M2;
    case ATTN_E4M3FNUZ:
        return VEC_E4M3FNUZ;
    case ATTN_Q8_0:
        return VEC_Q8_0;
    case ATTN_Q4_0:
        return VEC_Q4_0;
    case ATTN_Q4_1:
        return VEC_Q4_1;
    case ATTN_Q5_0:
        return VEC_Q5_0;
    case ATTN_Q5_1:
        return VEC_Q5_1;
    case ATTN_IQ4_NL:
        return VEC_IQ4_NL;
    default:
        return VEC_E5M2FNUZ;
    }
}

INLINE uint32_t vec_size(enum vec_type type)
{
    return type == VEC_F32 ? 4 : type <= VEC_BF16 ? 2 : 1;
}

/* Codes of e4m3 are loaded as the f16 with the same exponent bits: what their numbers are times as large. */
INLINE float vec_gain(enum vec_type type)
{
    return type == VEC_E4M3 || type == VEC_E4M3_FINITE ? 256 : type == VEC_E4M3FNUZ ? 128 : 1;
}

#endif
