/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Products of the query with keys, and weighted sums of values, in the reference kernel. */
#ifndef ATTN_GPU_REFERENCE_VECTORS_H
#define ATTN_GPU_REFERENCE_VECTORS_H

#include "config.h"

/* An element of keys or values, whose type is `dtype` where the configuration leaves it open. Of types with
 * blocks `at` is the lane's block. */
template <class Config> GPU_INLINE float reference_load(uint32_t dtype, uint64_t at, uint32_t lane)
{
    if (Config::type == REFERENCE_ANY && gpu_has_blocks(dtype))
        return gpu_block_load(dtype, GPU_U8(at), lane);
    if constexpr (Config::type == REFERENCE_ANY_8BIT)
        return gpu_decode8(dtype, *GPU_U8(at));
    return gpu_load(Config::has_dtype ? Config::type : dtype, GPU_U8(at));
}

/*
 * Sums over the lanes of 4 values at once: lanes 8 * i to 8 * i + 7 have that of value i. In double: sums of
 * large products of either sign lose more than a score may.
 */
GPU_INLINE double reference_reduce(const float value[reference_key_group], uint32_t lane)
{
    const bool high = lane & 16, odd = lane & 8;
    const double a =
        (double)(high ? value[2] : value[0]) + (double)gpu_shuffle_xor_f32(high ? value[0] : value[2], 16);
    const double b =
        (double)(high ? value[3] : value[1]) + (double)gpu_shuffle_xor_f32(high ? value[1] : value[3], 16);
    double sum = (odd ? b : a) + gpu_shuffle_xor_f64(odd ? a : b, 8);

    sum += gpu_shuffle_xor_f64(sum, 4);
    sum += gpu_shuffle_xor_f64(sum, 2);
    return sum + gpu_shuffle_xor_f64(sum, 1);
}

/* Products of the query with the stored keys: each lane gets that of its own key. */
template <class Config>
GPU_INLINE float reference_products(const struct gpu_run *run, const struct reference_warp<Config> *w,
                                    const struct reference_keys *keys)
{
    constexpr uint32_t group = reference_key_group;
    const uint32_t dim = run->problem.head_dim, dtype = run->problem.k_dtype;
    const uint32_t size = GPU_SIZE(Config::has_dtype ? Config::type : dtype);
    float product = 0;

    GPU_LOOP
    for (uint32_t first = 0; first < GPU_WARP; first += group) {
        float sum[group];
        if ((keys->seen >> first & ((1u << group) - 1)) == 0)
            continue;
        GPU_UNROLL
        for (uint32_t key = 0; key < group; key++) {
            const bool is_new = keys->is_new >> (first + key) & 1;
            uint64_t at = gpu_shuffle_u64(keys->k, first + key) +
                          (is_new ? (uint64_t)w->lane * size : (uint64_t)w->k.first);
            const uint64_t step = is_new ? GPU_WARP * size : (uint64_t)w->k.step;
            sum[key] = 0;
            GPU_UNROLL
            for (uint32_t i = 0; i < Config::lane_columns; i++, at += step)
                if (i * GPU_WARP + gpu_own_u32(w->lane) < dim)
                    sum[key] = gpu_fma(w->q[i], reference_load<Config>(dtype, at, w->lane), sum[key]);
        }
        const float all = (float)reference_reduce(sum, w->lane);
        const float own = gpu_shuffle_f32(all, w->lane % group * 8);
        if (w->lane / group == first / group)
            product = own;
    }
    return product;
}

/* Adds values with their weights to the tile. */
template <class Config>
GPU_INLINE void reference_add_values(const struct gpu_run *run, struct reference_warp<Config> *w,
                                     const struct reference_keys *keys, float weight)
{
    constexpr uint32_t group = reference_key_group;
    const uint32_t dim = run->problem.head_dim_vo, dtype = run->problem.v_dtype;
    const uint32_t size = GPU_SIZE(Config::has_dtype ? Config::type : dtype);

    GPU_LOOP
    for (uint32_t first = 0; first < GPU_WARP; first += group) {
        if ((keys->seen >> first & ((1u << group) - 1)) == 0)
            continue;
        GPU_UNROLL
        for (uint32_t key = 0; key < group; key++) {
            const bool is_new = keys->is_new >> (first + key) & 1;
            uint64_t at = gpu_shuffle_u64(keys->v, first + key) +
                          (is_new ? (uint64_t)w->lane * size : (uint64_t)w->v.first);
            const uint64_t step = is_new ? GPU_WARP * size : (uint64_t)w->v.step;
            const float share = gpu_shuffle_f32(weight, first + key);
            GPU_UNROLL
            for (uint32_t i = 0; i < Config::lane_columns; i++, at += step)
                if (i * GPU_WARP + gpu_own_u32(w->lane) < dim)
                    w->tile[i] = gpu_fma(share, reference_load<Config>(dtype, at, w->lane), w->tile[i]);
        }
    }
}

#endif
