/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of tile-port.h: matrix instructions of CDNA. Elements k of an operand lie as rows of a product do. */
#ifndef ATTN_HIP_TILE_MFMA_H
#define ATTN_HIP_TILE_MFMA_H

#define TILE_ROLLED 0

typedef _Float16 tile_f16x4 __attribute__((ext_vector_type(4)));
typedef short tile_i16x4 __attribute__((ext_vector_type(4)));
typedef short tile_i16x2 __attribute__((ext_vector_type(2)));
typedef float tile_f32x4 __attribute__((ext_vector_type(4)));

struct tile_full {
    struct tile_b b;
};

GPU_INLINE void tile_full_of(struct tile_full *full, const struct tile_b *b)
{
    full->b = *b;
}

GPU_INLINE void tile__mfma(float d[4], struct gpu_u64 a, const struct tile_full *b, bool wide)
{
    tile_f32x4 sum = {d[0], d[1], d[2], d[3]};

    if (!wide) {
        tile_f16x4 x, y;
        __builtin_memcpy(&x, &a, 8);
        __builtin_memcpy(&y, b, 8);
        sum = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, sum, 0, 0, 0);
    } else {
#if defined(__gfx908__)
        /* Two of eight k. Which k is which is the same on both sides, and no matter. */
        GPU_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            tile_i16x2 x, y;
            __builtin_memcpy(&x, &a.x[i], 4);
            __builtin_memcpy(&y, &b->b.x[i], 4);
            sum = __builtin_amdgcn_mfma_f32_16x16x8bf16(x, y, sum, 0, 0, 0);
        }
#else
        tile_i16x4 x, y;
        __builtin_memcpy(&x, &a, 8);
        __builtin_memcpy(&y, b, 8);
        sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, sum, 0, 0, 0);
#endif
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        d[i] = sum[i];
}

GPU_INLINE void tile_multiply_rows(float d[TILE_ACC], const unsigned char *rows, uint32_t pitch,
                                   const struct tile_full *b, bool wide)
{
    const uint32_t lane = tile_lane();

    tile__mfma(d, tile_load_u64(rows + (lane % 16 * pitch + lane / 16 * 8)), b, wide);
}

GPU_INLINE void tile_multiply_columns(float d[TILE_ACC], const unsigned char *values, uint32_t column,
                                      uint32_t keys, const struct tile_full *b, bool wide)
{
    const uint32_t lane = tile_lane();

    tile__mfma(d, tile_quad(values, column, lane % 16, keys, lane / 16), b, wide);
}

#endif
