/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Online softmax: row max, P in place of the scores, and their product with the values. */
#ifndef ATTN_HIP_SOFTMAX_H
#define ATTN_HIP_SOFTMAX_H

#include "mask.h"

/* What a lane has accumulated of its row. */
template <class Config> struct tile_accumulator {
    float o[Config::out_blocks][Config::acc_size];
    float max; /* of the row, at the last rescaling */
    /* The sum of P before it is rounded, in two floats: the rounding errors of one would add up over millions
     * of tiles. */
    float sum_high, sum_low;
};

template <class Config> GPU_INLINE void tile_clear(struct tile_accumulator<Config> *acc)
{
    acc->max = -GPU_INFINITY;
    acc->sum_high = acc->sum_low = 0;
    GPU_UNROLL
    for (uint32_t n = 0; n < Config::out_blocks; n++) {
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::acc_size; i++)
            acc->o[n][i] = 0;
    }
}

/*
 * Rescales the accumulators to a new row max. An old row max serves as long as no score is more than the
 * threshold above it; each row decides by itself. Row maxima seldom grow after the first tiles.
 */
template <class Config>
GPU_INLINE void tile_rescale(const struct tile_rules *rules, const float (*s)[Config::acc_size],
                             struct tile_accumulator<Config> *acc)
{
    float row_max = s[0][0];

    GPU_UNROLL
    for (uint32_t n = 0; n < Config::key_blocks; n++) {
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::acc_size; i++)
            row_max = __builtin_fmaxf(row_max, s[n][i]);
    }
    row_max = Config::column_max(row_max);
    if (!(row_max > acc->max + rules->threshold))
        return;
    const float down = gpu_exp2_fast(acc->max * rules->factor - row_max * rules->factor);
    acc->max = row_max;
    acc->sum_high *= down;
    acc->sum_low *= down;
    GPU_UNROLL
    for (uint32_t n = 0; n < Config::out_blocks; n++) {
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::acc_size; i++)
            acc->o[n][i] *= down;
    }
}

/* What is subtracted from scores in base 2: P of the row max is 2^tile_p_exponent. */
GPU_INLINE float tile_base(float row_max, float factor)
{
    return row_max == -GPU_INFINITY ? 0 : row_max * factor - tile_p_exponent; /* NaN scores stay NaN */
}

/* P in place of the scores, and its sum. */
template <class Config>
GPU_INLINE void tile_exponentiate(const struct tile_rules *rules, float (*s)[Config::acc_size],
                                  struct tile_accumulator<Config> *acc)
{
    const float base = tile_base(acc->max, rules->factor);
    float own = 0;

    GPU_UNROLL
    for (uint32_t n = 0; n < Config::key_blocks; n++) {
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::acc_size; i++) {
            s[n][i] = gpu_exp2_fast(gpu_fma(s[n][i], rules->factor, -base));
            own += s[n][i];
        }
    }
    const float high = acc->sum_high + own;
    acc->sum_low += own - (high - acc->sum_high);
    acc->sum_high = high;
}

/* P times the scales of the values. P of a key that a row does not see stays 0 whatever the scale is. */
template <class Config>
GPU_INLINE void tile_scale_p(const struct tile_shared<Config> *shared, uint32_t tile, uint32_t key0,
                             bool unmasked, float (*p)[Config::acc_size])
{
    GPU_UNROLL
    for (uint32_t n = 0; n < Config::key_blocks; n++) {
        tile_sched_barrier();
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::acc_size; i++)
            if (unmasked || p[n][i] != 0)
                p[n][i] *= shared->scale[1][tile % 2][tile_key<Config>(key0, n, i)];
    }
}

/* o + products with the values of 16 keys, two blocks of columns at a time in a loop that is not unrolled. */
template <class Config, class Operand>
GPU_INLINE void tile_multiply_values_looped(const unsigned char *values, uint32_t block,
                                            const Operand *operand, float (*o)[Config::acc_size])
{
    constexpr uint32_t blocks = Config::out_blocks;

    GPU_LOOP
    for (uint32_t first = 0; first < blocks; first += 2) {
        float own[2][Config::acc_size];
        GPU_UNROLL
        for (uint32_t n = 0; n < 2; n++) {
            GPU_UNROLL
            for (uint32_t i = 0; i < Config::acc_size; i++)
                own[n][i] = o[n][i];
            Config::value_mma::multiply_columns(own[n], values, (first + n) * 16, block, operand);
        }
        GPU_UNROLL
        for (uint32_t n = 0; n < blocks; n++) {
            GPU_UNROLL
            for (uint32_t i = 0; i < Config::acc_size; i++)
                o[n][i] = n + 2 < blocks ? o[(n + 2) % blocks][i] : own[n + 2 - blocks][i];
        }
    }
}

/* P of 16 keys times V: block n of o has columns 16 n and on. P is shifted by a block. */
template <class Config>
GPU_INLINE void tile_multiply_block(const unsigned char *values, uint32_t block, float (*p)[Config::acc_size],
                                    float (*o)[Config::acc_size])
{
    using mma = typename Config::value_mma;
    typename mma::fragment fragment;
    typename mma::operand operand;

    tile_sched_barrier();
    tile_round_fragment<Config::value_bf16>(&fragment, p[0]);
    mma::make_operand(&operand, &fragment);
    GPU_UNROLL
    for (uint32_t n = 0; n + 1 < Config::key_blocks; n++) {
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::acc_size; i++)
            p[n][i] = p[n + 1][i];
    }
    if constexpr (Config::loop_products) {
        tile_multiply_values_looped<Config>(values, block, &operand, o);
    } else {
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::out_blocks; n++)
            mma::multiply_columns(o[n], values, n * 16, block, &operand);
    }
}

/* o + P of all of the wave's keys times V. */
template <class Config>
GPU_INLINE void tile_multiply_values(const unsigned char *values, uint32_t block0,
                                     float (*p)[Config::acc_size], float (*o)[Config::acc_size])
{
    if constexpr (Config::loop_products) {
        GPU_LOOP
        for (uint32_t k = 0; k < Config::key_blocks; k++)
            tile_multiply_block<Config>(values, block0 + k, p, o);
    } else {
        GPU_UNROLL
        for (uint32_t k = 0; k < Config::key_blocks; k++)
            tile_multiply_block<Config>(values, block0 + k, p, o);
    }
}

#endif
