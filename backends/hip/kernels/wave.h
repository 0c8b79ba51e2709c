/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A wave and its share of a 16x16 product. Lane l holds column l % 16 of it, acc_size elements from row
 * acc_size * (l / 16) on; lanes 16 apart share a column. Products are transposed: a column is a query row.
 */
#ifndef ATTN_HIP_WAVE_H
#define ATTN_HIP_WAVE_H

#include "intrinsics.h"

template <uint32_t WaveSize> struct tile_wave {
    static constexpr uint32_t wave_size = WaveSize;
    static constexpr uint32_t acc_size = 256 / WaveSize;

    /* A lane's elements of an operand of 16 columns, two in a word. They are those that the lane has of a
     * product, so that a product, once rounded, can be an operand of the next. */
    struct fragment {
        uint32_t x[acc_size / 2];
    };

    /* The thread's index, opaque to the compiler: what is computed from it is computed anew, not kept. */
    GPU_INLINE uint32_t thread(void)
    {
        return tile_opaque(gpu_thread()) % (8 * WaveSize);
    }
    GPU_INLINE uint32_t lane(void)
    {
        return gpu_thread() % WaveSize;
    }
    GPU_INLINE uint32_t wave(void)
    {
        return tile_uniform(gpu_thread() / WaveSize);
    }

    /* The lane's part of 16 elements of its column, at a multiple of 16 bytes of shared memory. */
    GPU_INLINE void load_fragment(fragment *to, const unsigned char *at)
    {
        at += lane() / 16 * (acc_size * 2);
        GPU_UNROLL
        for (uint32_t i = 0; i < acc_size / 4; i++) {
            const struct gpu_u64 two = tile_load_u64(at + i * 8);
            to->x[2 * i] = two.x[0];
            to->x[2 * i + 1] = two.x[1];
        }
    }

    GPU_INLINE float shuffle_xor(float value, uint32_t mask)
    {
        if (mask < 32)
            return gpu_shuffle_xor_f32(value, mask);
        return gpu_f32_of_bits(tile_read_lane<WaveSize>(gpu_f32_bits(value), lane() ^ mask));
    }

    /* The largest, the sum, the bits of all lanes of a column. */
    GPU_INLINE float column_max(float value)
    {
        GPU_UNROLL
        for (uint32_t step = 16; step < WaveSize; step *= 2) {
            const float other = shuffle_xor(value, step);
            value = value > other ? value : other;
        }
        return value;
    }
    GPU_INLINE float column_sum(float value)
    {
        GPU_UNROLL
        for (uint32_t step = 16; step < WaveSize; step *= 2)
            value += shuffle_xor(value, step);
        return value;
    }
    GPU_INLINE uint32_t column_or(uint32_t bits)
    {
        GPU_UNROLL
        for (uint32_t step = 16; step < WaveSize; step *= 2)
            bits |= tile_read_lane<WaveSize>(bits, thread() % WaveSize ^ step);
        return bits;
    }
};

/* Rounds to bf16 a number that is not negative, or NaN; the result is the upper half. */
GPU_INLINE uint32_t tile_round_bf16(float x)
{
    const uint32_t bits = gpu_f32_bits(x), number = bits < 0x7fc00000u ? bits : 0x7fc00000u;

    return number + 0x7fffu + (number >> 16 & 1);
}

/* P, which is not negative, from f32 to elements of an operand. */
template <bool Bf16, class Fragment, uint32_t size>
GPU_INLINE void tile_round_fragment(Fragment *to, const float (&p)[size])
{
    GPU_UNROLL
    for (uint32_t i = 0; i < size / 2; i++)
        if constexpr (Bf16)
            to->x[i] = gpu_permute(tile_round_bf16(p[2 * i]), tile_round_bf16(p[2 * i + 1]), 0x7632);
        else
            to->x[i] = gpu_pack_f16(p[2 * i], p[2 * i + 1]);
}

#endif
