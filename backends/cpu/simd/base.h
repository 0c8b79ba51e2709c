/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the headers of all levels include: inlining, unrolling, and the element types of a cache. */
#ifndef ATTN_CPU_SIMD_BASE_H
#define ATTN_CPU_SIMD_BASE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "attn/types.h"

#define INLINE static inline __attribute__((always_inline))

/* For loops with constant bounds, over arrays that have to stay in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Element types as small constants, so that a kernel can be instantiated for each. */
enum vec_type { VEC_F32 = 0, VEC_F16 = 1, VEC_BF16 = 2, VEC_TYPES = 3 };

INLINE enum vec_type vec_type_of(uint32_t dtype)
{
    return dtype == ATTN_F32 ? VEC_F32 : dtype == ATTN_F16 ? VEC_F16 : VEC_BF16;
}

INLINE uint32_t vec_size(enum vec_type type)
{
    return type == VEC_F32 ? 4 : 2;
}

#endif
