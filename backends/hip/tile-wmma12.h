/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of tile-port.h: matrix instructions of gfx12. Elements k of an operand lie as rows of a product do. */
#ifndef ATTN_HIP_TILE_WMMA12_H
#define ATTN_HIP_TILE_WMMA12_H

#define TILE_ROLLED 0

typedef _Float16 tile_f16x8 __attribute__((ext_vector_type(8)));
typedef short tile_i16x8 __attribute__((ext_vector_type(8)));
typedef float tile_f32x8 __attribute__((ext_vector_type(8)));

struct tile_full {
    struct tile_b b;
};

GPU_INLINE void tile_full_of(struct tile_full *full, const struct tile_b *b)
{
    full->b = *b;
}

GPU_INLINE void tile__wmma(float d[8], const struct gpu_u64 a[2], const struct tile_full *b, bool wide)
{
    tile_f32x8 sum;

    GPU_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        sum[i] = d[i];
    if (!wide) {
        tile_f16x8 x, y;
        __builtin_memcpy(&x, a, 16);
        __builtin_memcpy(&y, b, 16);
        sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(x, y, sum);
    } else {
        tile_i16x8 x, y;
        __builtin_memcpy(&x, a, 16);
        __builtin_memcpy(&y, b, 16);
        sum = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(x, y, sum);
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        d[i] = sum[i];
}

GPU_INLINE void tile_multiply_rows(float d[TILE_ACC], const unsigned char *rows, uint32_t pitch,
                                   const struct tile_full *b, bool wide)
{
    const uint32_t lane = tile_lane();
    const unsigned char *at = rows + (lane % 16 * pitch + lane / 16 * 16);
    const struct gpu_u128 all = gpu_load_u128(at);
    const struct gpu_u64 a[2] = {{{all.x[0], all.x[1]}}, {{all.x[2], all.x[3]}}};

    tile__wmma(d, a, b, wide);
}

GPU_INLINE void tile_multiply_columns(float d[TILE_ACC], const unsigned char *values, uint32_t column,
                                      uint32_t keys, const struct tile_full *b, bool wide)
{
    const uint32_t row = tile_lane() % 16, inner = tile_lane() / 16 * 2;
    const struct gpu_u64 a[2] = {tile_quad(values, column, row, keys, inner),
                                 tile_quad(values, column, row, keys, inner + 1)};

    tile__wmma(d, a, b, wide);
}

#endif
