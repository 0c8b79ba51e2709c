/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Products by dot products of lanes, for GPUs without matrix instructions and for the host. */
#ifndef ATTN_HIP_DOT_H
#define ATTN_HIP_DOT_H

#include "layout.h"
#include "wave.h"

template <bool Bf16, uint32_t WaveSize> struct tile_dot : tile_wave<WaveSize> {
    using base = tile_wave<WaveSize>;
    using typename base::fragment;
    static constexpr uint32_t acc_size = base::acc_size;
    static constexpr bool loop_products = true; /* a product is long code */

    /* All 16 elements of the lane's column. */
    struct operand {
        uint32_t x[8];
    };

    GPU_INLINE void make_operand(operand *to, const fragment *from)
    {
        GPU_UNROLL
        for (uint32_t group = 0; group < WaveSize / 16; group++) {
            GPU_UNROLL
            for (uint32_t i = 0; i < acc_size / 2; i++)
                to->x[group * (acc_size / 2) + i] =
                    tile_read_lane<WaveSize>(from->x[i], group * 16 + base::lane() % 16);
        }
    }

    /* sum + the products of two elements */
    GPU_INLINE float dot(uint32_t a, uint32_t b, float sum)
    {
        if constexpr (Bf16) {
            sum = gpu_fma(gpu_f32_of_bits(a << 16), gpu_f32_of_bits(b << 16), sum);
            return gpu_fma(gpu_f32_of_bits(a & 0xffff0000u), gpu_f32_of_bits(b & 0xffff0000u), sum);
        } else {
            return tile_dot_f16(a, b, sum);
        }
    }

    /* d += A b. Row r of A: 16 elements at rows + r * pitch, in shared memory. */
    GPU_INLINE void multiply_rows(float d[acc_size], const unsigned char *rows, uint32_t pitch,
                                  const operand *b)
    {
        rows += base::thread() % WaveSize / 16 * acc_size * pitch;
        GPU_UNROLL
        for (uint32_t r = 0; r < acc_size; r++) {
            tile_sched_barrier();
            GPU_UNROLL
            for (uint32_t i = 0; i < 2; i++) {
                const struct gpu_u128 four = gpu_load_u128(rows + (r * pitch + 16 * i));
                GPU_UNROLL
                for (uint32_t j = 0; j < 4; j++)
                    d[r] = dot(four.x[j], b->x[4 * i + j], d[r]);
            }
        }
    }

    /* d += A b. Row r of A: keys 16 * keys and on of column `column` + r of the values. */
    GPU_INLINE void multiply_columns(float d[acc_size], const unsigned char *values, uint32_t column,
                                     uint32_t keys, const operand *b)
    {
        const uint32_t first = base::thread() % WaveSize / 16 * acc_size;

        GPU_UNROLL
        for (uint32_t r = 0; r < acc_size; r++) {
            tile_sched_barrier();
            GPU_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                const struct gpu_u64 two = tile_load_quad(values, column, first + r, keys, i);
                d[r] = dot(two.x[0], b->x[2 * i], d[r]);
                d[r] = dot(two.x[1], b->x[2 * i + 1], d[r]);
            }
        }
    }
};

#endif
