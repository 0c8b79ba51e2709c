/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* P of a KV tile in the MLA kernel, and its product with the tile's values. */
#ifndef ATTN_GPU_MLA_VALUES_H
#define ATTN_GPU_MLA_VALUES_H

#include "codec8.h"
#include "config.h"

/* The rescale threshold, in base 2: a factor of 2^8 costs no precision, and O is seldom rescaled. */
static constexpr float mla_rescale_threshold = 8.0f;

/* Byte of 8 keys of a row of P. */
GPU_INLINE uint32_t mla_p_offset(uint32_t row, uint32_t chunk)
{
    return row * (MLA_KV_TILE * 2) + ((chunk ^ (row & 7u)) * 16u);
}

/* A word of keys with its non-finite numbers made 0. */
template <class Config> GPU_INLINE uint32_t mla_finite(uint32_t dtype, uint32_t word)
{
    if constexpr (Config::kv8)
        return word & ~((gpu_nonfinite8(dtype, word) >> 7) * 0xffu);
    constexpr uint32_t non_finite = Config::keys_bf16 ? 0x7f80 : 0x7c00;
    const uint32_t low = (word & non_finite) == non_finite ? 0 : 0xffffu;
    return word & ((word >> 16 & non_finite) == non_finite ? low : low | 0xffff0000u);
}

/*
 * A row that does not see a key must not get NaN from it, although 0 times a non-finite value is NaN. If some
 * row does not see a whole tile, the tile's non-finite values become 0. Rows that see them get NaN from P: as
 * the values are part of the key too, their scores are not finite.
 */
template <class Config> GPU_INLINE void mla_clear_non_finite(uint32_t dtype, unsigned char *keys)
{
    constexpr uint32_t chunks = MLA_VO_DIM / (Config::kv8 ? 16 : 8);
    constexpr uint32_t threads = Config::groups ? MLA_THREADS / 2 : MLA_THREADS;

    GPU_LOOP
    for (uint32_t i = gpu_thread() % threads; i < MLA_KV_TILE * chunks; i += threads) {
        unsigned char *at = keys + mla_key_offset<Config>(i / chunks, i % chunks);
        struct gpu_u128 word = gpu_load_u128(at);
        bool any = false;
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++) {
            const uint32_t finite = mla_finite<Config>(dtype, word.x[e]);
            any = any || finite != word.x[e];
            word.x[e] = finite;
        }
        if (any)
            gpu_store_u128(at, word);
    }
}

/* Exponentiates the scores into P in shared memory, and brings row maxima and sums up to date. P has the
 * scales of the keys, which are values, if there are `scales`: of them f16 does not hold every product. */
template <class Config>
GPU_INLINE void mla_exponentiate(struct mla_shared<Config> *shared, const float *scales,
                                 const struct mla_warp *w, float s[Config::waves][4])
{
    const bool p_bf16 = Config::keys_bf16 || (Config::bf16 && scales != 0);
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t row = w->block * 16 + h * 8 + lane / 4;
        const float before = shared->row_max[row];
        float row_max = -GPU_INFINITY;
        GPU_UNROLL
        for (uint32_t i = 0; i < Config::block_warps; i++)
            row_max = fmaxf(row_max, shared->warp_max[i][row]);
        row_max = row_max > before + mla_rescale_threshold ? row_max : before;
        const float base = row_max == -GPU_INFINITY ? 0 : row_max; /* NaN scores stay NaN */
        const float rescale = row_max == before ? 1 : gpu_exp2_fast(before - base);
        if (w->group == 0 && lane % 4 == 0) {
            shared->rescale[row] = rescale;
            shared->next_max[row] = row_max;
        }
        float sum = 0;
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::waves; n++) {
            float p0 = gpu_exp2_fast(s[n][2 * h] - base), p1 = gpu_exp2_fast(s[n][2 * h + 1] - base);
            const uint32_t key = mla_key<Config>(w, n, 0);
            sum += p0 + p1;
            if (Config::kv8 &&
                scales != 0) { /* unless the row does not see the key, whose scale may be NaN */
                p0 = p0 == 0 ? 0 : p0 * scales[key];
                p1 = p1 == 0 ? 0 : p1 * scales[key + 1];
            }
            *(uint32_t *)(void *)(shared->p + mla_p_offset(row, key / 8) + key % 8 * 2) =
                p_bf16 ? gpu_pack_bf16(p0, p1) : gpu_pack_f16(p0, p1);
        }
        shared->thread_sum[h][gpu_thread()] = shared->thread_sum[h][gpu_thread()] * rescale + sum;
    }
}

/* Scales O down where a row max rose. */
template <class Config>
GPU_INLINE void mla_rescale(const struct mla_shared<Config> *shared, float o[Config::row_blocks][8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    float least = 1;

    GPU_UNROLL
    for (uint32_t i = 0; i < Config::rows; i += GPU_WARP)
        least = fminf(least, shared->rescale[i + (Config::rows < GPU_WARP ? lane % 16 : lane)]);
    if (gpu_ballot(least < 1) == 0)
        return;
    GPU_UNROLL
    for (uint32_t m = 0; m < Config::row_blocks; m++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const float rescale = shared->rescale[m * 16 + h * 8 + lane / 4];
            GPU_UNROLL
            for (uint32_t n = 0; n < 8; n++) {
                o[m][n][2 * h] *= rescale;
                o[m][n][2 * h + 1] *= rescale;
            }
        }
    }
}

/*
 * The fragments of 16 keys for eight groups of this warp's 64 columns. A matrix of codes, which is transposed
 * as if pairs of them were numbers, becomes fragments of the even and of the odd columns.
 */
template <class Config, bool Bf16>
GPU_INLINE void mla_load_values(uint32_t dtype, const unsigned char *buffer, uint32_t at, uint32_t n,
                                uint32_t r[8])
{
    uint32_t codes[4];

    if constexpr (!Config::kv8) {
        gpu_load_matrix4_trans(r, buffer + (at ^ (n * 32)));
        gpu_load_matrix4_trans(r + 4, buffer + (at ^ ((n + 1) * 32)));
    } else {
        gpu_load_matrix4_trans(codes, buffer + (at ^ (n * 16)));
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t across[2];
            if constexpr (Bf16)
                gpu_quad8_wide(dtype, codes[i], across);
            else
                gpu_quad8_across(dtype, codes[i], across);
            r[i / 2 * 4 + i % 2] = across[0];
            r[i / 2 * 4 + 2 + i % 2] = across[1];
        }
    }
}

/* Row of element `e` of block `m` of O. */
template <class Config> GPU_INLINE uint32_t mla_out_row(uint32_t m, uint32_t e)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;

    return (Config::groups ? warp % 4 : m) * 16 + e / 2 * 8 + lane / 4;
}

/* Column of element `e` of fragment `n` of O. */
template <class Config> GPU_INLINE uint32_t mla_out_column(uint32_t n, uint32_t e)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;

    if constexpr (Config::groups)
        return warp / 4 * 256 + n * 8 + lane % 4 * 2 + e % 2;
    else if constexpr (Config::kv8)
        return warp * 64 + n / 2 * 16 + lane % 4 * 4 + e % 2 * 2 + n % 2;
    else
        return warp * 64 + n * 8 + lane % 4 * 2 + e % 2;
}

/* Adds P times this warp's 64 columns of the values to O. */
template <class Config, bool Bf16>
GPU_INLINE void mla_add_values_of(uint32_t dtype, const struct mla_shared<Config> *shared,
                                  const unsigned char *buffer, uint32_t keys,
                                  float o[Config::row_blocks][8][4])
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t matrix = lane / 8, row = (matrix & 1) * 8 + lane % 8;
    const uint32_t p = mla_p_offset(row, matrix >> 1);
    const uint32_t v = keys + mla_key_offset<Config>(row, warp * (Config::kv8 ? 4 : 8) + (matrix >> 1));

    GPU_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t a[Config::row_blocks][4];
        GPU_UNROLL
        for (uint32_t m = 0; m < Config::row_blocks; m++)
            gpu_load_matrix4(a[m], shared->p + (p ^ (k * 32)) + m * 16 * MLA_KV_TILE * 2);
        GPU_UNROLL
        for (uint32_t n = 0; n < 4; n += 2) {
            uint32_t r[8];
            mla_load_values<Config, Bf16>(dtype, buffer, v + k * 16 * Config::key_bytes, n, r);
            GPU_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                GPU_UNROLL
                for (uint32_t m = 0; m < Config::row_blocks; m++)
                    mla_multiply<Bf16>(o[m][2 * n + i], a[m], r + 2 * i);
            }
        }
    }
}

/* The same, by code for each type of keys. `Bf16`: P and values are bf16, else f16. */
template <class Config, bool Bf16>
GPU_INLINE void mla_add_values_by_type(uint32_t dtype, const struct mla_shared<Config> *shared,
                                       const unsigned char *buffer, uint32_t keys,
                                       float o[Config::row_blocks][8][4])
{
    if constexpr (!Config::kv8)
        mla_add_values_of<Config, Bf16>(0, shared, buffer, keys, o);
    else if (dtype == ATTN_E4M3)
        mla_add_values_of<Config, Bf16>(ATTN_E4M3, shared, buffer, keys, o);
    else if (dtype == ATTN_E5M2)
        mla_add_values_of<Config, Bf16>(ATTN_E5M2, shared, buffer, keys, o);
    else if (dtype == ATTN_INT8)
        mla_add_values_of<Config, Bf16>(ATTN_INT8, shared, buffer, keys, o);
    else
        mla_add_values_of<Config, Bf16>(dtype, shared, buffer, keys, o);
}

/* The same; `scaled`: P has the scales of the keys. */
template <class Config>
GPU_INLINE void mla_add_values(uint32_t dtype, bool scaled, const struct mla_shared<Config> *shared,
                               const unsigned char *buffer, uint32_t keys, float o[Config::row_blocks][8][4])
{
    mla_rescale<Config>(shared, o);
    if (Config::scales_queries && scaled)
        mla_add_values_by_type<Config, true>(dtype, shared, buffer, keys, o);
    else
        mla_add_values_by_type<Config, Config::keys_bf16>(dtype, shared, buffer, keys, o);
}

#endif
