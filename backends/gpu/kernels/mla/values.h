/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* P of a KV tile in the MLA kernel, and its product with the tile's values. */
#ifndef ATTN_GPU_MLA_VALUES_H
#define ATTN_GPU_MLA_VALUES_H

#include "config.h"

/* The rescale threshold, in base 2: a factor of 2^8 costs no precision, and O is seldom rescaled. */
static constexpr float mla_rescale_threshold = 8.0f;

/* Byte of 8 keys of a row of P, which takes the place of the last 64 columns of the tile. */
GPU_INLINE uint32_t mla_p_offset(uint32_t row, uint32_t chunk)
{
    return row * mla_row_bytes + 1024u + ((chunk ^ (row & 7u)) * 16u);
}

/*
 * A row that does not see a key must not get NaN from it, although 0 times a non-finite value is NaN. If some
 * row does not see a whole tile, the tile's non-finite values become 0. Rows that see them get NaN from P: as
 * the values are part of the key too, their scores are not finite.
 */
template <class Config> GPU_INLINE void mla_clear_non_finite(unsigned char *keys)
{
    constexpr uint32_t non_finite = Config::bf16 ? 0x7f80 : 0x7c00;

    GPU_LOOP
    for (uint32_t i = gpu_thread(); i < MLA_KV_TILE * (MLA_VO_DIM / 8); i += MLA_THREADS) {
        unsigned char *at = keys + mla_chunk_offset(i / (MLA_VO_DIM / 8), i % (MLA_VO_DIM / 8));
        struct gpu_u128 word = gpu_load_u128(at);
        bool any = false;
        GPU_UNROLL
        for (uint32_t e = 0; e < 8; e++) {
            const uint32_t code = word.x[e / 2] >> (16 * (e % 2));
            if ((code & non_finite) != non_finite)
                continue;
            any = true;
            word.x[e / 2] &= e % 2 != 0 ? 0xffffu : 0xffff0000u;
        }
        if (any)
            gpu_store_u128(at, word);
    }
}

/* Exponentiates the scores into P in shared memory, and brings row maxima and sums up to date. P has the
 * scales of the keys, which are values, if there are `scales`. */
template <class Config>
GPU_INLINE void mla_exponentiate(struct mla_shared<Config> *shared, unsigned char *keys, const float *scales,
                                 const struct mla_warp *w, float s[Config::kept_fragments][4])
{
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
        const float rescale = row_max == before ? 1 : gpu_exp2(before - base);
        if (w->group == 0 && lane % 4 == 0) {
            shared->rescale[row] = rescale;
            shared->next_max[row] = row_max;
        }
        float sum = 0;
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::kept_fragments; n++) {
            float p0 = gpu_exp2(s[n][2 * h] - base), p1 = gpu_exp2(s[n][2 * h + 1] - base);
            const uint32_t key = mla_key<Config>(w, n, 0);
            sum += p0 + p1;
            if (Config::kv8 &&
                scales != 0) { /* unless the row does not see the key, whose scale may be NaN */
                p0 = p0 == 0 ? 0 : p0 * scales[key];
                p1 = p1 == 0 ? 0 : p1 * scales[key + 1];
            }
            *(uint32_t *)(void *)(keys + mla_p_offset(row, key / 8) + key % 8 * 2) =
                Config::bf16 ? gpu_pack_bf16(p0, p1) : gpu_pack_f16(p0, p1);
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

/* Adds P times this warp's 64 columns of the values to O. */
template <class Config>
GPU_INLINE void mla_add_values(const struct mla_shared<Config> *shared, const unsigned char *buffer,
                               uint32_t keys, float o[Config::row_blocks][8][4])
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t matrix = lane / 8, in = lane % 8;
    const uint32_t row = (matrix & 1) * 8 + in;
    const uint32_t p = keys + mla_p_offset(row, matrix >> 1);
    const uint32_t v = keys + mla_chunk_offset(row, warp * 8 + (matrix >> 1));

    mla_rescale<Config>(shared, o);
    GPU_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t a[Config::row_blocks][4];
        GPU_UNROLL
        for (uint32_t m = 0; m < Config::row_blocks; m++)
            gpu_load_matrix4(a[m], buffer + (p ^ (k * 32)) + m * 16 * mla_row_bytes);
        GPU_UNROLL
        for (uint32_t n = 0; n < 4; n++) {
            uint32_t r[4];
            gpu_load_matrix4_trans(r, buffer + (v ^ (n * 32)) + k * 16 * mla_row_bytes);
            GPU_UNROLL
            for (uint32_t m = 0; m < Config::row_blocks; m++) {
                mla_multiply<Config>(o[m][2 * n], a[m], r);
                mla_multiply<Config>(o[m][2 * n + 1], a[m], r + 2);
            }
        }
    }
}

#endif
