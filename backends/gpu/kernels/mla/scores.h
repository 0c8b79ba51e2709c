/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scores of a KV tile in the MLA kernel, and the rules that change or hide them. */
#ifndef ATTN_GPU_MLA_SCORES_H
#define ATTN_GPU_MLA_SCORES_H

#include "codec8.h"
#include "load.h"

/* The warps of a warp group have a part of every product each: a warp sends the others those that they keep.
 */
template <class Config>
GPU_INLINE void mla_exchange(struct mla_shared<Config> *shared, const struct mla_warp *w, uint32_t wave,
                             const float product[Config::parts][4], float s[4])
{
    constexpr uint32_t parts = Config::parts;
    const uint32_t warp = gpu_thread() / GPU_WARP, first = warp - w->part, lane = gpu_thread() % GPU_WARP;

    if (wave > 0)
        gpu_barrier_part(1 + warp / parts, parts * GPU_WARP); /* the others have read the wave before */
    GPU_UNROLL
    for (uint32_t i = 0; i < parts; i++) {
        struct gpu_u128 word;
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++) {
            word.x[e] = gpu_f32_bits(product[i][e]);
            s[e] = i == w->part ? product[i][e] : i == 0 ? 0 : s[e];
        }
        if (i != w->part)
            gpu_store_u128(&shared->exchange[first + i][w->part - (w->part > i)][lane], word);
    }
    gpu_barrier_part(1 + warp / parts, parts * GPU_WARP);
    GPU_UNROLL
    for (uint32_t i = 0; i < parts - 1; i++) {
        const struct gpu_u128 word = gpu_load_u128(&shared->exchange[warp][i][lane]);
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            s[e] += gpu_f32_of_bits(word.x[e]);
    }
}

/* Where a lane reads the keys of its warp group: bytes of shared memory, of its first columns and of the
 * last. */
struct mla_key_at {
    uint32_t main, rest;
};

template <class Config> GPU_INLINE struct mla_key_at mla_key_at_of(const struct mla_warp *w, uint32_t keys)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, matrix = lane / 8, in = lane % 8;
    constexpr uint32_t chunk_columns = Config::kv8 ? 16 : 8;
    /* The four matrices of a load: two groups of 8 keys by two chunks, or of codes four groups. */
    constexpr bool by_keys = Config::kv8 && Config::wave_fragments == 4;
    const uint32_t key = w->key0 + (by_keys ? matrix : matrix >> 1) * 8 + in,
                   chunk = by_keys ? 0 : matrix & 1;
    const uint32_t row = keys + key * Config::key_bytes,
                   swizzle = mla_key_offset<Config>(key, 0) - key * Config::key_bytes;

    return {
        row + mla_column<Config>(w->part, 0) / chunk_columns * 16 + (chunk * 16 ^ swizzle),
        row + ((mla_column<Config>(w->part, Config::main_steps) / chunk_columns + (Config::kv8 ? 0 : chunk)) *
                   16 ^
               swizzle)};
}

/*
 * The fragments of a wave's keys for step `k`: those of the low columns, then those of the high ones.
 * `codes`: what was read for this step and the next one.
 */
template <class Config>
GPU_INLINE void mla_load_fragments(uint32_t dtype, const unsigned char *buffer, const struct mla_key_at *at,
                                   uint32_t wave, uint32_t k, uint32_t codes[4],
                                   uint32_t r[2 * Config::wave_fragments])
{
    constexpr uint32_t fragments = Config::wave_fragments, main_steps = Config::main_steps;
    /* Chunks of a row that differ in these bits alone lie in as many neighbouring bytes. */
    constexpr uint32_t step = Config::kv8 ? 16 : 32, cycle = 4;
    const uint32_t row = wave * fragments * 8 * Config::key_bytes;
    const uint32_t from = k < main_steps ? (at->main ^ (k % cycle * step)) + k / cycle * cycle * step
                                         : at->rest ^ ((k - main_steps) * step);

    if constexpr (!Config::kv8) {
        GPU_UNROLL
        for (uint32_t n = 0; n < fragments; n += 2)
            gpu_load_matrix4(r + 2 * n, buffer + from + row + n * 8 * Config::key_bytes);
    } else {
        if (fragments == 4 || k % 2 == 0)
            gpu_load_matrix4(codes, buffer + from + row);
        GPU_UNROLL
        for (uint32_t n = 0; n < fragments; n++)
            gpu_quad8(dtype, codes[fragments == 4 ? n : n * 2 + k % 2], r + 2 * n);
    }
}

/*
 * Products of the warp group's rows with the keys of a wave, over this warp's columns. Matrix units truncate
 * a sum at every step, so there are several sums of few steps of 16 columns, which f32 additions join; and no
 * step waits for the one before.
 */
template <class Config>
GPU_INLINE void mla_multiply_keys(uint32_t dtype, const unsigned char *buffer, const struct mla_key_at *at,
                                  uint32_t wave, uint32_t q[Config::group_blocks][Config::steps][4],
                                  float product[Config::parts][4])
{
    constexpr uint32_t fragments = Config::wave_fragments, sums = Config::sums;
    float sum[sums][Config::parts][4];
    uint32_t codes[4];

    GPU_UNROLL
    for (uint32_t i = 0; i < sums * Config::parts; i++) {
        float *x = sum[i / Config::parts][i % Config::parts];
        x[0] = x[1] = x[2] = x[3] = 0;
    }
    GPU_UNROLL
    for (uint32_t k = 0; k < Config::steps; k++) {
        uint32_t r[2 * fragments];
        mla_load_fragments<Config>(dtype, buffer, at, wave, k, codes, r);
        GPU_UNROLL
        for (uint32_t n = 0; n < fragments; n++) {
            GPU_UNROLL
            for (uint32_t m = 0; m < Config::group_blocks; m++)
                mla_multiply<Config::keys_bf16>(sum[k % sums][m * fragments + n], q[m][k], r + 2 * n);
        }
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < Config::parts * 4; i++) {
        float total = sum[0][i / 4][i % 4];
        GPU_UNROLL
        for (uint32_t j = 1; j < sums; j++)
            total += sum[j][i / 4][i % 4];
        product[i / 4][i % 4] = total;
    }
}

/* Scores of what the warp keeps, not scaled yet. */
template <class Config>
GPU_INLINE void mla_scores_of(uint32_t dtype, struct mla_shared<Config> *shared, const unsigned char *buffer,
                              uint32_t keys, const struct mla_warp *w,
                              uint32_t q[Config::group_blocks][Config::steps][4], float s[Config::waves][4])
{
    const struct mla_key_at at = mla_key_at_of<Config>(w, keys);

    GPU_UNROLL
    for (uint32_t wave = 0; wave < Config::waves; wave++) {
        float product[Config::parts][4];
        mla_multiply_keys<Config>(dtype, buffer, &at, wave, q, product);
        mla_exchange<Config>(shared, w, wave, product, s[wave]);
    }
}

/* The same, by code for each type of keys. */
template <class Config>
GPU_INLINE void mla_scores(uint32_t dtype, struct mla_shared<Config> *shared, const unsigned char *buffer,
                           uint32_t keys, const struct mla_warp *w,
                           uint32_t q[Config::group_blocks][Config::steps][4], float s[Config::waves][4])
{
    if constexpr (!Config::kv8)
        mla_scores_of<Config>(0, shared, buffer, keys, w, q, s);
    else if (dtype == ATTN_E4M3)
        mla_scores_of<Config>(ATTN_E4M3, shared, buffer, keys, w, q, s);
    else if (dtype == ATTN_E5M2)
        mla_scores_of<Config>(ATTN_E5M2, shared, buffer, keys, w, q, s);
    else if (dtype == ATTN_INT8)
        mla_scores_of<Config>(ATTN_INT8, shared, buffer, keys, w, q, s);
    else
        mla_scores_of<Config>(dtype, shared, buffer, keys, w, q, s);
}

/* A score in base 2, minus infinity for a key that the row does not see. */
template <class Config>
GPU_INLINE float mla_rule(const struct gpu_run *run, const struct mla_shared<Config> *shared,
                          const struct gpu_row *r, uint32_t key, float score)
{
    const float cap = run->problem.softcap;
    double bias;

    if (cap > 0)
        score = cap * gpu_tanh(score / cap);
    if (run->mask.base == 0 && run->slopes == 0)
        return score * mla_log2e;
    if (!gpu_sees(run, &shared->sequence, r, key, &bias))
        return -GPU_INFINITY;
    return (float)(((double)score + bias) * (double)mla_log2e);
}

/* Scores times the scale of each key. */
template <class Config>
GPU_INLINE void mla_scale_keys(const struct mla_shared<Config> *shared, const struct mla_warp *w,
                               uint32_t stage, float s[Config::waves][4])
{
    GPU_UNROLL
    for (uint32_t n = 0; n < Config::waves; n++) {
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            s[n][e] *= shared->key_scale[stage][mla_key<Config>(w, n, e)];
    }
}

/* What turns products of a row's queries and keys into scores. */
template <class Config> GPU_INLINE float mla_row_scale(const struct mla_shared<Config> *shared, uint32_t row)
{
    if constexpr (Config::scales_queries)
        return shared->score_scale * shared->query_scale[row];
    return shared->score_scale;
}

/* Scales scores to base 2 and hides keys, in place. True if every row sees every key of the tile. */
template <class Config>
GPU_INLINE bool mla_apply_rules(const struct gpu_run *run, const struct mla_shared<Config> *shared,
                                uint32_t stage, const struct mla_warp *w, uint32_t tile,
                                float s[Config::waves][4])
{
    const bool has_rules = run->problem.softcap > 0 || run->slopes != 0 || run->mask.base != 0;
    const uint32_t row0 = w->block * 16 + gpu_thread() % GPU_WARP / 4, key0 = tile * MLA_KV_TILE;
    const uint64_t present = shared->present[stage];
    const float scale[2] = {mla_row_scale<Config>(shared, row0), mla_row_scale<Config>(shared, row0 + 8)};

    if (!has_rules && key0 >= shared->unmasked_lo && key0 + MLA_KV_TILE <= shared->unmasked_hi &&
        ~present == 0) {
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::waves; n++) {
            GPU_UNROLL
            for (uint32_t e = 0; e < 4; e++)
                s[n][e] *= scale[e / 2] * mla_log2e;
        }
        return true;
    }
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const auto *row = &shared->row[row0 + h * 8];
        const uint32_t lo = row->lo, hi = row->hi;
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::waves; n++) {
            GPU_UNROLL
            for (uint32_t e = 2 * h; e < 2 * h + 2; e++) {
                const uint32_t key = mla_key<Config>(w, n, e);
                const bool seen = key0 + key >= lo && key0 + key < hi && (present >> key & 1) != 0;
                float x = s[n][e] * (scale[h] * mla_log2e);
                if constexpr (Config::score_rules) {
                    if (seen && has_rules)
                        x = mla_rule<Config>(run, shared, row, key0 + key, s[n][e] * scale[h]);
                }
                s[n][e] = seen ? x : -GPU_INFINITY;
            }
        }
    }
    return false;
}

/* The row max of this warp's keys, for the other warps that have keys of the row. */
template <class Config>
GPU_INLINE void mla_share_max(struct mla_shared<Config> *shared, const struct mla_warp *w,
                              float s[Config::waves][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float row_max = -GPU_INFINITY;
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::waves; n++)
            row_max = fmaxf(row_max, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        row_max = fmaxf(row_max, gpu_shuffle_xor_f32(row_max, 1));
        row_max = fmaxf(row_max, gpu_shuffle_xor_f32(row_max, 2));
        if (lane % 4 == 0)
            shared->warp_max[w->group][w->block * 16 + h * 8 + lane / 4] = row_max;
    }
}

#endif
