/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix instructions of CDNA (MFMA). The elements k of an operand are in the lanes that have the rows k of a
 * product. */
#ifndef ATTN_HIP_MFMA_H
#define ATTN_HIP_MFMA_H

#include "layout.h"
#include "wave.h"

typedef _Float16 tile_f16x4 __attribute__((ext_vector_type(4)));
typedef short tile_i16x4 __attribute__((ext_vector_type(4)));
typedef short tile_i16x2 __attribute__((ext_vector_type(2)));
typedef float tile_f32x4 __attribute__((ext_vector_type(4)));

/* ShortBf16: instructions take 8 elements k of bf16 instead of 16. */
template <bool Bf16, bool ShortBf16> struct tile_mfma : tile_wave<64> {
    using operand = fragment;
    static constexpr bool loop_products = false;

    GPU_INLINE void make_operand(operand *to, const fragment *from)
    {
        *to = *from;
    }

    GPU_INLINE void multiply(float d[4], struct gpu_u64 a, const operand *b)
    {
        tile_f32x4 sum = {d[0], d[1], d[2], d[3]};

        if constexpr (!Bf16) {
            tile_f16x4 x, y;
            __builtin_memcpy(&x, &a, 8);
            __builtin_memcpy(&y, b, 8);
            sum = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, sum, 0, 0, 0);
        } else if constexpr (ShortBf16) {
            /* Both operands have their elements k in the same order, so it does not matter which it is. */
            GPU_UNROLL
            for (uint32_t i = 0; i < 2; i++) {
                tile_i16x2 x, y;
                __builtin_memcpy(&x, &a.x[i], 4);
                __builtin_memcpy(&y, &b->x[i], 4);
                sum = __builtin_amdgcn_mfma_f32_16x16x8bf16(x, y, sum, 0, 0, 0);
            }
        } else {
            tile_i16x4 x, y;
            __builtin_memcpy(&x, &a, 8);
            __builtin_memcpy(&y, b, 8);
            sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, sum, 0, 0, 0);
        }
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            d[i] = sum[i];
    }

    /* d += A b. Row r of A: 16 elements at rows + r * pitch, in shared memory. */
    GPU_INLINE void multiply_rows(float d[4], const unsigned char *rows, uint32_t pitch, const operand *b)
    {
        multiply(d, tile_load_u64(rows + (lane() % 16 * pitch + lane() / 16 * 8)), b);
    }

    /* d += A b. Row r of A: keys 16 * keys and on of column `column` + r of the values. */
    GPU_INLINE void multiply_columns(float d[4], const unsigned char *values, uint32_t column, uint32_t keys,
                                     const operand *b)
    {
        multiply(d, tile_load_quad(values, column, lane() % 16, keys, lane() / 16), b);
    }
};

#endif
