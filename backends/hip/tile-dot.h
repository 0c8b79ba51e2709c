/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of tile-port.h: lanes compute their elements of a product, for GPUs without matrix units and the host.
 */
#ifndef ATTN_HIP_TILE_DOT_H
#define ATTN_HIP_TILE_DOT_H

/* Products are long code: loops over them stay loops. */
#define TILE_ROLLED 1

struct tile_full {
    uint32_t x[8];
};

GPU_INLINE void tile_full_of(struct tile_full *full, const struct tile_b *b)
{
    GPU_UNROLL
    for (uint32_t group = 0; group < TILE_WAVE / 16; group++)
        GPU_UNROLL
    for (uint32_t i = 0; i < TILE_ACC / 2; i++)
        full->x[group * (TILE_ACC / 2) + i] = tile_from(b->x[i], group * 16 + tile_lane() % 16);
}

/* sum + the products of two elements */
GPU_INLINE float tile__dot(uint32_t a, uint32_t b, float sum, bool wide)
{
    if (wide) {
        sum = gpu_fma(gpu_f32_of_bits(a << 16), gpu_f32_of_bits(b << 16), sum);
        return gpu_fma(gpu_f32_of_bits(a & 0xffff0000u), gpu_f32_of_bits(b & 0xffff0000u), sum);
    }
#if defined(__AMDGCN__)
    typedef _Float16 tile_f16x2 __attribute__((ext_vector_type(2)));
    tile_f16x2 x, y;
    __builtin_memcpy(&x, &a, 4);
    __builtin_memcpy(&y, &b, 4);
    return __builtin_amdgcn_fdot2(x, y, sum, false);
#else
    sum = gpu_fma(gpu_f16_to_f32((uint16_t)a), gpu_f16_to_f32((uint16_t)b), sum);
    return gpu_fma(gpu_f16_to_f32((uint16_t)(a >> 16)), gpu_f16_to_f32((uint16_t)(b >> 16)), sum);
#endif
}

GPU_INLINE void tile_multiply_rows(float d[TILE_ACC], const unsigned char *rows, uint32_t pitch,
                                   const struct tile_full *b, bool wide)
{
    rows += tile_thread() % TILE_WAVE / 16 * TILE_ACC * pitch;
    GPU_UNROLL
    for (uint32_t r = 0; r < TILE_ACC; r++) {
        TILE_TURN();
        GPU_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const struct gpu_u128 four = gpu_load_u128(rows + (r * pitch + 16 * i));
            GPU_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                d[r] = tile__dot(four.x[j], b->x[4 * i + j], d[r], wide);
        }
    }
}

GPU_INLINE void tile_multiply_columns(float d[TILE_ACC], const unsigned char *values, uint32_t column,
                                      uint32_t keys, const struct tile_full *b, bool wide)
{
    const uint32_t first = tile_thread() % TILE_WAVE / 16 * TILE_ACC;

    GPU_UNROLL
    for (uint32_t r = 0; r < TILE_ACC; r++) {
        TILE_TURN();
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const struct gpu_u64 two = tile_quad(values, column, first + r, keys, i);
            d[r] = tile__dot(two.x[0], b->x[2 * i], d[r], wide);
            d[r] = tile__dot(two.x[1], b->x[2 * i + 1], d[r], wide);
        }
    }
}

#endif
