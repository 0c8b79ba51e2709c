/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix instructions of RDNA (WMMA): gfx11, and gfx12, whose operands have half the registers. */
#ifndef ATTN_HIP_WMMA_H
#define ATTN_HIP_WMMA_H

#include "layout.h"
#include "wave.h"

typedef _Float16 tile_f16x8 __attribute__((ext_vector_type(8)));
typedef _Float16 tile_f16x16 __attribute__((ext_vector_type(16)));
typedef short tile_i16x8 __attribute__((ext_vector_type(8)));
typedef short tile_i16x16 __attribute__((ext_vector_type(16)));
typedef float tile_f32x8 __attribute__((ext_vector_type(8)));

/* The instruction for operands of a type; i16 stands for bf16. */
GPU_INLINE tile_f32x8 tile_wmma(tile_f16x16 x, tile_f16x16 y, tile_f32x8 sum)
{
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, y, sum);
}
GPU_INLINE tile_f32x8 tile_wmma(tile_i16x16 x, tile_i16x16 y, tile_f32x8 sum)
{
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(x, y, sum);
}
GPU_INLINE tile_f32x8 tile_wmma(tile_f16x8 x, tile_f16x8 y, tile_f32x8 sum)
{
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(x, y, sum);
}
GPU_INLINE tile_f32x8 tile_wmma(tile_i16x8 x, tile_i16x8 y, tile_f32x8 sum)
{
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(x, y, sum);
}

/* d += a b, both of them a Vector as words. */
template <class Vector> GPU_INLINE void tile_wmma_multiply(float d[8], const void *a, const void *b)
{
    tile_f32x8 sum;
    Vector x, y;

    GPU_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        sum[i] = d[i];
    __builtin_memcpy(&x, a, sizeof x);
    __builtin_memcpy(&y, b, sizeof y);
    sum = tile_wmma(x, y, sum);
    GPU_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        d[i] = sum[i];
}

template <bool Bf16> struct tile_wmma_vectors {
    using of_8 = tile_f16x8;
    using of_16 = tile_f16x16;
};
template <> struct tile_wmma_vectors<true> {
    using of_8 = tile_i16x8;
    using of_16 = tile_i16x16;
};

/*
 * gfx11. Both halves of a wave hold all of an operand. Element i of a lane is row 2 * i + lane / 16 of the
 * product, so that rows of A are given in that order.
 */
template <bool Bf16> struct tile_wmma11 : tile_wave<32> {
    using vector = typename tile_wmma_vectors<Bf16>::of_16;
    static constexpr bool loop_products = false;

    struct operand {
        uint32_t x[8];
    };

    GPU_INLINE void make_operand(operand *to, const fragment *from)
    {
        const bool upper = lane() >= 16;

        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t other = gpu_shuffle_xor_u32(from->x[i], 16);
            to->x[i] = upper ? other : from->x[i];
            to->x[4 + i] = upper ? from->x[i] : other;
        }
    }

    /* The row of A that a lane gives. */
    GPU_INLINE uint32_t row(void)
    {
        return lane() % 2 * 8 + lane() % 16 / 2;
    }

    /* d += A b. Row r of A: 16 elements at rows + r * pitch, in shared memory. */
    GPU_INLINE void multiply_rows(float d[8], const unsigned char *rows, uint32_t pitch, const operand *b)
    {
        const unsigned char *at = rows + row() * pitch;
        uint32_t a[8];

        tile_sched_barrier(); /* operands are large */
        GPU_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const struct gpu_u128 four = gpu_load_u128(at + 16 * i);
            GPU_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                a[4 * i + j] = four.x[j];
        }
        tile_wmma_multiply<vector>(d, a, b);
    }

    /* d += A b. Row r of A: keys 16 * keys and on of column `column` + r of the values. */
    GPU_INLINE void multiply_columns(float d[8], const unsigned char *values, uint32_t column, uint32_t keys,
                                     const operand *b)
    {
        uint32_t a[8];

        if (column % 64 == 0) /* operands are large */
            tile_sched_barrier();
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const struct gpu_u64 two = tile_load_quad(values, column, row(), keys, i);
            a[2 * i] = two.x[0];
            a[2 * i + 1] = two.x[1];
        }
        tile_wmma_multiply<vector>(d, a, b);
    }
};

/* gfx12. The elements k of an operand are in the lanes that have the rows k of a product. */
template <bool Bf16> struct tile_wmma12 : tile_wave<32> {
    using vector = typename tile_wmma_vectors<Bf16>::of_8;
    using operand = fragment;
    static constexpr bool loop_products = false;

    GPU_INLINE void make_operand(operand *to, const fragment *from)
    {
        *to = *from;
    }

    /* d += A b. Row r of A: 16 elements at rows + r * pitch, in shared memory. */
    GPU_INLINE void multiply_rows(float d[8], const unsigned char *rows, uint32_t pitch, const operand *b)
    {
        const struct gpu_u128 a = gpu_load_u128(rows + (lane() % 16 * pitch + lane() / 16 * 16));

        tile_wmma_multiply<vector>(d, &a, b);
    }

    /* d += A b. Row r of A: keys 16 * keys and on of column `column` + r of the values. */
    GPU_INLINE void multiply_columns(float d[8], const unsigned char *values, uint32_t column, uint32_t keys,
                                     const operand *b)
    {
        const uint32_t own = lane() % 16, inner = lane() / 16 * 2;
        const struct gpu_u64 a[2] = {tile_load_quad(values, column, own, keys, inner),
                                     tile_load_quad(values, column, own, keys, inner + 1)};

        tile_wmma_multiply<vector>(d, a, b);
    }
};

#endif
