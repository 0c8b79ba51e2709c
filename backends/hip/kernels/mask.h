/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What changes scores or hides keys: scales, soft cap, ALiBi, explicit masks, and the reach of each row. */
#ifndef ATTN_HIP_MASK_H
#define ATTN_HIP_MASK_H

#include "shared.h"

/* P of the row max is 2^tile_p_exponent at first: f16 has no numbers below 2^-14 on some GPUs. It grows by
 * tile_rescale_threshold at most before the accumulators are rescaled. */
constexpr float tile_p_exponent = 10, tile_rescale_threshold = 5;

/*
 * What the scores of a work tile have in common. `scale` is applied to products before the rules, `factor`
 * after them, which leaves scores in base 2. Without by_score `factor` does both; as it is positive, the row
 * max is found before it is applied.
 */
struct tile_rules {
    float scale;
    float factor;
    float threshold; /* tile_rescale_threshold, divided by the factor */
    bool by_score;   /* each score goes through tile_apply_rule */
    uint32_t lo, hi; /* every row sees these keys; none with an explicit mask */
};

/* The keys that all rows of the work tile reach. */
template <class Config>
GPU_INLINE void tile_find_reach(const struct gpu_run *run, const struct tile_shared<Config> *shared,
                                struct tile_rules *rules)
{
    const uint32_t there = shared->sequence.q_len * run->group - shared->work.row0;

    rules->lo = 0;
    rules->hi = 0xffffffffu;
    for (uint32_t row = Config::thread() % GPU_WARP; row < Config::rows && row < there; row += GPU_WARP) {
        rules->lo = shared->row[row].lo > rules->lo ? shared->row[row].lo : rules->lo;
        rules->hi = shared->row[row].hi < rules->hi ? shared->row[row].hi : rules->hi;
    }
    GPU_UNROLL
    for (uint32_t step = 1; step < GPU_WARP; step *= 2) {
        const uint32_t lo = gpu_shuffle_xor_u32(rules->lo, step), hi = gpu_shuffle_xor_u32(rules->hi, step);
        rules->lo = lo > rules->lo ? lo : rules->lo;
        rules->hi = hi < rules->hi ? hi : rules->hi;
    }
    rules->lo = tile_uniform(rules->lo);
    rules->hi = run->mask.base != 0 ? 0 : tile_uniform(rules->hi);
}

template <class Config>
GPU_INLINE struct tile_rules tile_find_rules(const struct gpu_run *run,
                                             const struct tile_shared<Config> *shared)
{
    struct tile_rules rules;

    tile_find_reach(run, shared, &rules);
    rules.scale = run->softmax_scale;
    if (Config::kv8 && !tile_scales_by_key<Config>(run->problem.k_scale))
        rules.scale *= gpu_scale_at(&run->k.scale, 0, 0, shared->work.kv_head);
    rules.scale = tile_uniform_f32(rules.scale);
    rules.by_score = run->problem.softcap > 0 || run->slopes != 0 || run->mask.base != 0 ||
                     !(rules.scale > 0 && rules.scale < GPU_INFINITY);
    rules.factor = tile_uniform_f32(rules.by_score ? 1 : rules.scale * tile_log2e);
    rules.threshold = tile_uniform_f32(__builtin_fminf(tile_rescale_threshold / rules.factor, 1e38f));
    return rules;
}

/* A score in base 2 by all rules, minus infinity for a key that the row does not see. */
GPU_INLINE float tile_apply_rule(const struct gpu_run *run, const struct gpu_sequence *s,
                                 const struct gpu_row *row, uint32_t key, float score)
{
    const float cap = run->problem.softcap;
    double bias;

    if (cap > 0)
        score = cap * gpu_tanh(score / cap);
    if (run->mask.base == 0 && run->slopes == 0)
        return score * tile_log2e;
    if (!gpu_sees(run, s, row, key, &bias))
        return -GPU_INFINITY;
    return (float)(((double)score + bias) * (double)tile_log2e);
}

/* The key of a tile to which element i of a lane's block n belongs. */
template <class Config> GPU_INLINE uint32_t tile_key(uint32_t key0, uint32_t n, uint32_t i)
{
    return key0 + n * 16 + Config::lane() / 16 * Config::acc_size + i;
}

/* The first `count` of 64 bits; all of them from 64 on. */
GPU_INLINE uint64_t tile_first_bits(uint32_t count)
{
    return count >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << count) - 1;
}

/* Keys of a tile that exist and that the lane's row reaches, a bit for each from the lane's first on. */
template <class Config>
GPU_INLINE uint64_t tile_reached(const struct gpu_row *row, uint32_t tile, uint32_t key0, uint64_t present)
{
    const uint32_t from = tile * GPU_TILE, lo = row->lo, hi = row->hi;

    present &= tile_first_bits(hi > from ? hi - from : 0) & ~tile_first_bits(lo > from ? lo - from : 0);
    return present >> (key0 + Config::lane() / 16 * Config::acc_size);
}

/* Applies tile_apply_rule to each score in a loop, so that its code exists only once. */
template <class Config>
GPU_INLINE void tile_apply_by_score(const struct gpu_run *run, const struct tile_shared<Config> *shared,
                                    const struct tile_rules *rules, uint32_t own, uint32_t tile,
                                    uint32_t key0, uint64_t reached, float (*s)[Config::acc_size])
{
    constexpr uint32_t size = Config::acc_size, scores = Config::key_blocks * size;

    GPU_LOOP
    for (uint32_t i = 0; i < scores; i++) {
        const uint32_t key = i / size * 16 + i % size;
        float x = -GPU_INFINITY;
        run = tile_reload(run);
        if ((reached >> key & 1) != 0)
            x = tile_apply_rule(run, &shared->sequence, &shared->row[own],
                                tile * GPU_TILE + tile_key<Config>(key0, 0, key), s[0][0] * rules->scale);
        GPU_UNROLL
        for (uint32_t j = 0; j + 1 < scores; j++)
            s[j / size][j % size] = s[(j + 1) / size][(j + 1) % size];
        s[Config::key_blocks - 1][size - 1] = x;
    }
}

/* Scores of a tile with all but the factor. `own`: the lane's row; `unmasked`: every row sees every key. */
template <class Config>
GPU_INLINE void tile_mask(const struct gpu_run *run, const struct tile_shared<Config> *shared,
                          const struct tile_rules *rules, uint32_t own, uint32_t tile, uint32_t key0,
                          uint64_t present, bool unmasked, float (*s)[Config::acc_size])
{
    if (tile_scales_by_key<Config>(run->problem.k_scale)) {
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::key_blocks; n++) {
            tile_sched_barrier();
            GPU_UNROLL
            for (uint32_t i = 0; i < Config::acc_size; i++)
                s[n][i] *= shared->scale[0][tile % 2][tile_key<Config>(key0, n, i)];
        }
    }
    if (rules->by_score) {
        const uint64_t reached = tile_reached<Config>(&shared->row[own], tile, key0, present);
        tile_apply_by_score(run, shared, rules, own, tile, key0, reached, s);
    } else if (!unmasked) {
        const uint64_t reached = tile_reached<Config>(&shared->row[own], tile, key0, present);
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::key_blocks; n++) {
            GPU_UNROLL
            for (uint32_t i = 0; i < Config::acc_size; i++)
                if (((uint32_t)(reached >> n / 2 * 32) >> (n % 2 * 16 + i) & 1) == 0)
                    s[n][i] = -GPU_INFINITY;
        }
    }
}

#endif
