/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scores of a KV tile in the MLA kernel, and the rules that change or hide them. */
#ifndef ATTN_GPU_MLA_SCORES_H
#define ATTN_GPU_MLA_SCORES_H

#include "load.h"

/* The warps of a pair have half of a product each: a warp sends the keys that the other one keeps. */
template <class Config>
GPU_INLINE void mla_exchange(struct mla_shared<Config> *shared, const struct mla_warp *w, uint32_t wave,
                             float part[Config::wave_fragments][4], float s[Config::kept_fragments][4])
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;

    if (wave > 0)
        gpu_barrier_part(1 + warp / 2, 2 * GPU_WARP); /* the other warp has read the wave before */
    GPU_UNROLL
    for (uint32_t i = 0; i < Config::kept_of_wave; i++) {
        struct gpu_u128 word;
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            word.x[e] = gpu_f32_bits(w->half != 0 ? part[i][e] : part[Config::kept_of_wave + i][e]);
        gpu_store_u128(&shared->exchange[warp][i][lane], word);
    }
    gpu_barrier_part(1 + warp / 2, 2 * GPU_WARP);
    GPU_UNROLL
    for (uint32_t i = 0; i < Config::kept_of_wave; i++) {
        const struct gpu_u128 word = gpu_load_u128(&shared->exchange[warp ^ 1][i][lane]);
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            s[wave * Config::kept_of_wave + i][e] =
                (w->half != 0 ? part[Config::kept_of_wave + i][e] : part[i][e]) + gpu_f32_of_bits(word.x[e]);
    }
}

/*
 * Products of the warp's rows with the keys that it keeps. Matrix units truncate a sum at every step, so a
 * new sum begins after every six steps of 16 columns, and f32 additions join these sums.
 */
template <class Config>
GPU_INLINE void mla_scores(struct mla_shared<Config> *shared, const unsigned char *buffer, uint32_t keys,
                           const struct mla_warp *w, uint32_t q[18][4], float s[Config::kept_fragments][4])
{
    constexpr uint32_t fragments = Config::wave_fragments, steps = 6;
    const uint32_t lane = gpu_thread() % GPU_WARP, matrix = lane / 8, in = lane % 8;

    /* Of this lane's row in the first 16 keys; 16-byte chunks of 128 bytes differ in these bits alone. */
    const uint32_t at =
        keys + mla_chunk_offset(w->key0 + (matrix >> 1) * 8 + in, mla_warp_chunk(w->half, 0) + (matrix & 1));
    const uint32_t rope = (at - w->half * 512 + 1024) ^ (w->half * 64);

    GPU_UNROLL
    for (uint32_t wave = 0; wave < Config::kept_fragments / Config::kept_of_wave; wave++) {
        float part[fragments][4];
        GPU_UNROLL
        for (uint32_t n = 0; n < fragments; n++)
            part[n][0] = part[n][1] = part[n][2] = part[n][3] = 0;
        GPU_UNROLL
        for (uint32_t first = 0; first < 18; first += steps) {
            float sum[fragments][4];
            GPU_UNROLL
            for (uint32_t n = 0; n < fragments; n++)
                sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
            GPU_UNROLL
            for (uint32_t k = first; k < first + steps; k++) {
                GPU_UNROLL
                for (uint32_t n = 0; n < fragments / 2; n++) {
                    const uint32_t row = (wave * fragments * 8 + n * 16) * mla_row_bytes;
                    uint32_t r[4];
                    if (k < 16)
                        gpu_load_matrix4(r, buffer + (at ^ (k % 4 * 32)) + k / 4 * 128 + row);
                    else
                        gpu_load_matrix4(r, buffer + (rope ^ (k % 4 * 32)) + row);
                    mla_multiply<Config>(sum[2 * n], q[k], r);
                    mla_multiply<Config>(sum[2 * n + 1], q[k], r + 2);
                }
            }
            GPU_UNROLL
            for (uint32_t n = 0; n < fragments; n++) {
                GPU_UNROLL
                for (uint32_t e = 0; e < 4; e++)
                    part[n][e] += sum[n][e];
            }
        }
        mla_exchange<Config>(shared, w, wave, part, s);
    }
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
                               uint32_t tile, float s[Config::kept_fragments][4])
{
    GPU_UNROLL
    for (uint32_t n = 0; n < Config::kept_fragments; n++) {
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            s[n][e] *= shared->key_scale[tile % 4][mla_key<Config>(w, n, e)];
    }
}

/* Scales scores to base 2 and hides keys, in place. True if every row sees every key of the tile. */
template <class Config>
GPU_INLINE bool mla_apply_rules(const struct gpu_run *run, const struct mla_shared<Config> *shared,
                                uint32_t stage, const struct mla_warp *w, uint32_t tile,
                                float s[Config::kept_fragments][4])
{
    const bool has_rules = run->problem.softcap > 0 || run->slopes != 0 || run->mask.base != 0;
    const uint32_t row0 = w->block * 16 + gpu_thread() % GPU_WARP / 4, key0 = tile * MLA_KV_TILE;
    const uint64_t present = shared->present[stage];
    const float scale = shared->score_scale * mla_log2e;

    if (!has_rules && key0 >= shared->unmasked_lo && key0 + MLA_KV_TILE <= shared->unmasked_hi &&
        ~present == 0) {
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::kept_fragments; n++) {
            GPU_UNROLL
            for (uint32_t e = 0; e < 4; e++)
                s[n][e] *= scale;
        }
        return true;
    }
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const struct gpu_row *row = &shared->row[row0 + h * 8];
        const uint32_t lo = row->lo, hi = row->hi;
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::kept_fragments; n++) {
            GPU_UNROLL
            for (uint32_t e = 2 * h; e < 2 * h + 2; e++) {
                const uint32_t key = mla_key<Config>(w, n, e);
                const bool seen = key0 + key >= lo && key0 + key < hi && (present >> key & 1) != 0;
                if (!seen)
                    s[n][e] = -GPU_INFINITY;
                else if (Config::score_rules && has_rules)
                    s[n][e] = mla_rule<Config>(run, shared, row, key0 + key, s[n][e] * shared->score_scale);
                else
                    s[n][e] *= scale;
            }
        }
    }
    return false;
}

/* The row max of this warp's keys, for the other warps that have keys of the row. */
template <class Config>
GPU_INLINE void mla_share_max(struct mla_shared<Config> *shared, const struct mla_warp *w,
                              float s[Config::kept_fragments][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float row_max = -GPU_INFINITY;
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::kept_fragments; n++)
            row_max = fmaxf(row_max, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        row_max = fmaxf(row_max, gpu_shuffle_xor_f32(row_max, 1));
        row_max = fmaxf(row_max, gpu_shuffle_xor_f32(row_max, 2));
        if (lane % 4 == 0)
            shared->warp_max[w->group][w->block * 16 + h * 8 + lane / 4] = row_max;
    }
}

#endif
