/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What vec-avx2.h, vec-neon.h and vec-math.h share before there is a vector. */
#ifndef ATTN_CPU_VEC_TYPES_H
#define ATTN_CPU_VEC_TYPES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "attn/types.h"

#define INLINE static inline __attribute__((always_inline))

/* Before a loop with constant bounds over an array that is to live in registers. */
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

/*
 * A row of n >= 8 elements as vectors: vector i begins at element vec_offset(i, n). If n is no multiple of 8
 * the last one overlaps the one before it instead of reaching beyond the row.
 */
INLINE uint32_t vec_count(uint32_t n)
{
    return (n + 7) / 8;
}

INLINE uint32_t vec_offset(uint32_t i, uint32_t n)
{
    return 8 * i + 8 <= n ? 8 * i : n - 8;
}

#endif
