/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Part of tile-port.h: matrix instructions of gfx11. Both halves of a wave want all of an operand. Element i
 * of a lane is row 2 * i + lane / 16 of the product, so rows of A are given in that order.
 */
#ifndef ATTN_HIP_TILE_WMMA11_H
#define ATTN_HIP_TILE_WMMA11_H

#define TILE_ROLLED 0

typedef _Float16 tile_f16x16 __attribute__((ext_vector_type(16)));
typedef short tile_i16x16 __attribute__((ext_vector_type(16)));
typedef float tile_f32x8 __attribute__((ext_vector_type(8)));

struct tile_full {
    uint32_t x[8];
};

GPU_INLINE void tile_full_of(struct tile_full *full, const struct tile_b *b)
{
    const bool upper = tile_lane() >= 16;

    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t other = gpu_shuffle_xor_u32(b->x[i], 16);
        full->x[i] = upper ? other : b->x[i];
        full->x[4 + i] = upper ? b->x[i] : other;
    }
}

/* The row of A that a lane gives. */
GPU_INLINE uint32_t tile__row(void)
{
    const uint32_t lane = tile_lane();

    return lane % 2 * 8 + lane % 16 / 2;
}

GPU_INLINE void tile__wmma(float d[8], const uint32_t a[8], const struct tile_full *b, bool wide)
{
    tile_f32x8 sum;

    GPU_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        sum[i] = d[i];
    if (!wide) {
        tile_f16x16 x, y;
        __builtin_memcpy(&x, a, 32);
        __builtin_memcpy(&y, b, 32);
        sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, y, sum);
    } else {
        tile_i16x16 x, y;
        __builtin_memcpy(&x, a, 32);
        __builtin_memcpy(&y, b, 32);
        sum = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(x, y, sum);
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        d[i] = sum[i];
}

GPU_INLINE void tile_multiply_rows(float d[TILE_ACC], const unsigned char *rows, uint32_t pitch,
                                   const struct tile_full *b, bool wide)
{
    const unsigned char *at = rows + tile__row() * pitch;
    uint32_t a[8];

    TILE_TURN(); /* operands are large */
    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const struct gpu_u128 four = gpu_load_u128(at + 16 * i);
        GPU_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            a[4 * i + j] = four.x[j];
    }
    tile__wmma(d, a, b, wide);
}

GPU_INLINE void tile_multiply_columns(float d[TILE_ACC], const unsigned char *values, uint32_t column,
                                      uint32_t keys, const struct tile_full *b, bool wide)
{
    uint32_t a[8];

    if (column % 64 == 0) /* operands are large */
        TILE_TURN();
    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const struct gpu_u64 two = tile_quad(values, column, tile__row(), keys, i);
        a[2 * i] = two.x[0];
        a[2 * i + 1] = two.x[1];
    }
    tile__wmma(d, a, b, wide);
}

#endif
