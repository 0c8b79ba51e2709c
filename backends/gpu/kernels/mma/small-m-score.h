/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Small M: scores and softmax. Keys, and columns of values in small-m-value.h, are the rows of matrix
 * products and query rows their columns. Of each 16 keys a lane has number lane / 4 and the one 8 behind it,
 * for query row lane % 4 * 2 and the next one.
 */
#ifndef ATTN_GPU_MMA_SMALL_M_SCORE_H
#define ATTN_GPU_MMA_SMALL_M_SCORE_H

#include "nonfinite.h"
#include "small-m-load.h"
#include "small-m-mask.h"

template <class C> using small_m_out_fragments = float[C::DV / 16][4];
template <class C> using small_m_query_fragments = uint32_t[C::DK / 16][2];

/* How far above its row maximum a score may be before the maximum follows, in base 2. */
constexpr float SMALL_M_RESCALE_THRESHOLD = 8.0f;

/* Softmax of a lane's two rows, in base 2. */
struct small_m_softmax {
    float max[2]; /* what exponents count from; minus infinity before the first key */
    float sum[2];
    float factor[2]; /* turns what small_m_apply_rules leaves into scores in base 2 */
};

/* All queries into registers. */
template <class C>
GPU_INLINE void small_m_hold_queries(const unsigned char *queries, small_m_query_fragments<C> q)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t kk = 0; kk < C::DK / 16; kk += 2) {
        uint32_t r[4];
        gpu_load_matrix4(r, queries + mma_swizzled<C>(lane % 8, kk * 2 + lane / 8, C::DK * 2));
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            q[kk + i / 2][i % 2] = r[i];
    }
}

/*
 * Products of the group's keys with the rows; `dtype`: of 8-bit keys. Matrix units truncate sums: more than
 * 128 columns are summed in two halves, or 128 at a time.
 */
template <class C>
GPU_INLINE void small_m_score_tile(uint32_t dtype, const unsigned char *keys, small_m_query_fragments<C> q,
                                   small_m_score_fragments<C> s)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const uint32_t lane_offset = mma_swizzled<C>(lane % 16, lane / 16, C::K_BYTES);
    constexpr uint32_t parts = C::DK > 256 ? C::DK / 128 : C::DK > 128 ? 2 : 1;
    constexpr uint32_t steps = C::DK / 16 / parts;

    GPU_UNROLL
    for (uint32_t n = 0; n < C::GROUP_KEYS / 16; n++) {
        float sum[parts][4];
        uint32_t r[4];
        GPU_UNROLL
        for (uint32_t i = 0; i < parts * 4; i++)
            sum[i / 4][i % 4] = 0;
        GPU_UNROLL
        for (uint32_t kk = 0; kk < C::DK / 16; kk++) {
            uint32_t a[4];
            if constexpr (!C::KV8)
                gpu_load_matrix4(a, keys + mma_fragment_at<C>(lane_offset, n * 16, kk * 2, C::K_BYTES));
            else if (kk % 2 == 0)
                gpu_load_matrix4(r, keys + mma_fragment_at<C>(lane_offset, n * 16, kk, C::K_BYTES));
            GPU_UNROLL
            for (uint32_t h = 0; C::KV8 && h < 2; h++) {
                uint32_t number[2];
                gpu_quad8(dtype, r[kk % 2 * 2 + h], number);
                a[h] = number[0];
                a[2 + h] = number[1];
            }
            mma_multiply(sum[kk / steps], a, q[kk], C::BF16_MMA);
        }
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++) {
            s[n][e] = sum[0][e];
            GPU_UNROLL
            for (uint32_t i = 1; i < parts; i++)
                s[n][e] += sum[i][e];
        }
    }
}

/* Products of an iteration, by code for each type of keys. */
template <class C>
GPU_INLINE void small_m_scores(const struct gpu_run *run, const unsigned char *keys,
                               small_m_query_fragments<C> q, small_m_score_fragments<C> s)
{
    const uint32_t dtype = mma_kv_dtype<C>(run);

    if (!C::KV8 || dtype == ATTN_E4M3)
        small_m_score_tile<C>(ATTN_E4M3, keys, q, s);
    else if (dtype == ATTN_E5M2)
        small_m_score_tile<C>(ATTN_E5M2, keys, q, s);
    else if (gpu_is_fnuz(dtype))
        small_m_score_tile<C>(dtype, keys, q, s);
    else
        small_m_score_tile<C>(ATTN_INT8, keys, q, s);
}

/* Scores without their factors. True if the iteration is unmasked: every row sees all keys. */
template <class C>
GPU_INLINE bool small_m_apply_rules(const struct gpu_run *run, const mma_shared<C> *shared,
                                    const struct mma_rules *rules, uint32_t slot, uint32_t tile, bool fast,
                                    small_m_score_fragments<C> s)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, from = tile * C::UNIT_KEYS;
    constexpr uint32_t all_present = (uint32_t)C::ALL_PRESENT;
    uint32_t present = all_present;

    if (!fast && (run->batch.addressing != ATTN_DENSE || from + C::GROUP_KEYS > small_m_key_end<C>(shared)))
        present = gpu_ballot(shared->k_at[slot][lane % C::GROUP_KEYS] != MMA_NO_ADDRESS) & all_present;
    const bool unmasked = from >= rules->lo && from + C::GROUP_KEYS <= rules->hi && present == all_present;
    if (mma_scale_per_key<C>(run->problem.k_scale)) {
        GPU_UNROLL
        for (uint32_t i = 0; i < C::GROUP_KEYS / 8; i++) {
            const float scale = shared->k_scale[slot][i * 8 + lane / 4];
            s[i / 2][i % 2 * 2] *= scale;
            s[i / 2][i % 2 * 2 + 1] *= scale;
        }
    }
    if ((C::RULES || C::KV8) && rules->elementwise)
        return small_m_mask_elementwise<C>(run, shared, present, slot, tile, rules->scale, s);
    if (!unmasked)
        small_m_mask_scores<C>(shared, present, from, s);
    return unmasked;
}

template <class C>
GPU_INLINE struct small_m_softmax small_m_softmax_of(const mma_shared<C> *shared,
                                                     const struct mma_rules *rules)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    struct small_m_softmax softmax;

    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        softmax.factor[e] = mma_row_factor<C>(shared, rules, lane % 4 * 2 + e);
        softmax.max[e] = -GPU_INFINITY;
        softmax.sum[e] = 0;
    }
    return softmax;
}

/* Raises row maxima, and rescales the sums and results so far to them. */
template <class C>
GPU_INLINE void small_m_rescale(const float tile_max[2], struct small_m_softmax *softmax,
                                small_m_out_fragments<C> o)
{
    float correction[2];

    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        float new_max = tile_max[e];
        GPU_UNROLL
        for (uint32_t step = 4; step < GPU_WARP; step *= 2)
            new_max = fmaxf(new_max, gpu_shuffle_xor_f32(new_max, step));
        new_max = fmaxf(softmax->max[e], new_max);
        correction[e] = softmax->max[e] == -GPU_INFINITY ? 0 : gpu_exp2_fast(softmax->max[e] - new_max);
        softmax->max[e] = new_max;
        softmax->sum[e] *= correction[e];
    }
    GPU_UNROLL
    for (uint32_t n = 0; n < C::DV / 16; n++) {
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            o[n][e] *= correction[e % 2];
    }
}

/* P in place of the scores. Row maxima follow only where P would grow too large: rows need not agree. */
template <class C>
GPU_INLINE void small_m_exponentiate(small_m_score_fragments<C> s, struct small_m_softmax *softmax,
                                     small_m_out_fragments<C> o)
{
    float tile_max[2];
    bool grown = false;

    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        tile_max[e] = fmaxf(s[0][e], s[0][2 + e]);
        GPU_UNROLL
        for (uint32_t n = 1; n < C::GROUP_KEYS / 16; n++)
            tile_max[e] = fmaxf(tile_max[e], fmaxf(s[n][e], s[n][2 + e]));
        tile_max[e] *= softmax->factor[e];
        grown = grown || tile_max[e] > softmax->max[e] + SMALL_M_RESCALE_THRESHOLD;
    }
    if (gpu_ballot(grown) != 0)
        small_m_rescale<C>(tile_max, softmax, o);
    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        const float base = softmax->max[e] == -GPU_INFINITY ? 0 : softmax->max[e]; /* NaN scores stay NaN */
        GPU_UNROLL
        for (uint32_t i = 0; i < C::GROUP_KEYS / 8; i++) {
            float *p = &s[i / 2][i % 2 * 2 + e];
            *p = gpu_exp2_fast(gpu_fma(*p, softmax->factor[e], -base));
            softmax->sum[e] += *p;
        }
    }
}

#endif
