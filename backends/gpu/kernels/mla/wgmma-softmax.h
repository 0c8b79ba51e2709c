/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* P of a tile's scores where warp groups multiply, and how one of them passes it to the other. */
#ifndef ATTN_GPU_MLA_WGMMA_SOFTMAX_H
#define ATTN_GPU_MLA_WGMMA_SOFTMAX_H

#include "scores.h"
#include "values.h"
#include "wgmma-load.h"

/* Named barriers, two of each kind: P of a warp group's tile is there; the other group has read the tile. */
enum { MLA_BARRIER_P = 3, MLA_BARRIER_READ = 5 };

/* What a thread keeps from tile to tile. */
struct mla_group_state {
    float o[1][MLA_VO_DIM / 2 / 8][4];
    float max[2], sum[2]; /* of its two rows */
    float factor;         /* of scores that become base 2 */
    uint32_t unmasked_lo, unmasked_hi;
    uint32_t parity;        /* of the phase in which the group's tile arrives */
    struct mla_located key; /* that the lane has of the group's next tile */
    uint32_t last_q[4][4];  /* queries of the last block, whose place P of group 1 takes */
};

/* What a warp group reads and writes in shared memory. */
struct mla_group_places {
    uint32_t group;
    unsigned char *own, *other; /* stages */
    const unsigned char *queries;
    unsigned char *own_p;
    const unsigned char *other_p;
    uint32_t half; /* byte of its columns in a stage */
};

/* Makes O and the row sums relative to new row maxima, where they have grown. */
template <class Config> GPU_INLINE void mla_raise_max(const float max[2], struct mla_group_state *state)
{
    if (gpu_ballot(max[0] != state->max[0] || max[1] != state->max[1]) == 0)
        return;
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const float base = max[h] == -GPU_INFINITY ? 0 : max[h];
        const float factor = max[h] == state->max[h] ? 1 : gpu_exp2_fast(state->max[h] - base);
        state->max[h] = max[h];
        state->sum[h] *= factor;
        GPU_UNROLL
        for (uint32_t n = 0; n < Config::out_fragments; n++) {
            state->o[0][n][2 * h] *= factor;
            state->o[0][n][2 * h + 1] *= factor;
        }
    }
}

/* The row maxima with those of a tile's scores times `factor`, if they have grown beyond the rescale
 * threshold. */
GPU_INLINE void mla_tile_max(const float s[8][4], float factor, const float before[2], float max[2])
{
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float row_max = -GPU_INFINITY;
        GPU_UNROLL
        for (uint32_t n = 0; n < 8; n++)
            row_max = fmaxf(row_max, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        row_max = fmaxf(row_max, gpu_shuffle_xor_f32(row_max, 1));
        row_max = fmaxf(row_max, gpu_shuffle_xor_f32(row_max, 2));
        row_max *= factor;
        max[h] = row_max > before[h] + mla_rescale_threshold ? row_max : before[h];
    }
}

/* P of scores times `factor`, and row sums with it. */
template <class Config>
GPU_INLINE void mla_group_exponents(const float s[8][4], float factor, struct mla_group_state *state,
                                    uint32_t p[4][4])
{
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const float base = state->max[h] == -GPU_INFINITY ? 0 : state->max[h]; /* NaN scores stay NaN */
        GPU_UNROLL
        for (uint32_t n = 0; n < 8; n++) {
            const float p0 = gpu_exp2_fast(gpu_fma(s[n][2 * h], factor, -base));
            const float p1 = gpu_exp2_fast(gpu_fma(s[n][2 * h + 1], factor, -base));
            state->sum[h] += p0 + p1;
            p[n / 2][n % 2 * 2 + h] = Config::keys_bf16 ? gpu_pack_bf16(p0, p1) : gpu_pack_f16(p0, p1);
        }
    }
}

/* Leaves P, and the row maxima that it is relative to, for the other warp group. */
template <class Config>
GPU_INLINE void mla_pass_p(struct mla_shared<Config> *shared, const struct mla_group_places *places,
                           const struct mla_group_state *state, const uint32_t p[4][4])
{
    const uint32_t row = mla_out_row<Config>(0, 0), lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t n = 0; n < 8; n++) {
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++)
            *(uint32_t *)(void *)(places->own_p + mla_p_offset(row + h * 8, n) + lane % 4 * 4) =
                p[n / 2][n % 2 * 2 + h];
    }
    if (lane % 4 == 0) {
        shared->base[places->group][row] = state->max[0];
        shared->base[places->group][row + 8] = state->max[1];
    }
    gpu_wgmma_fence();
    gpu_barrier_arrive(MLA_BARRIER_P + places->group, MLA_THREADS);
}

/* Hides keys of a tile that not all rows see whole. Scores are in base 2 then. */
template <class Config>
GPU_INLINE void mla_hide_keys(const struct gpu_run *run, struct mla_shared<Config> *shared,
                              const struct mla_group_places *places, const struct mla_warp *w, uint32_t tile,
                              float s[8][4])
{
    if (mla_apply_rules<Config>(run, shared, places->group, w, tile, s))
        return;
    mla_group_barrier(places->group); /* all warps have multiplied the keys */
    mla_clear_non_finite<Config>(0, places->own);
    gpu_wgmma_fence();
    mla_group_barrier(places->group);
}

/* P of the scores of the warp group's tile. */
template <class Config>
GPU_INLINE void mla_group_softmax(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                  const struct mla_group_places *places, const struct mla_warp *w,
                                  uint32_t tile, float s[8][4], struct mla_group_state *state,
                                  uint32_t p[4][4])
{
    const uint32_t key0 = tile * MLA_KV_TILE;
    float factor = state->factor, max[2];

    if (!(factor > 0) || ~shared->present[places->group] != 0 || key0 < state->unmasked_lo ||
        key0 + MLA_KV_TILE > state->unmasked_hi) {
        mla_hide_keys<Config>(run, shared, places, w, tile, s);
        factor = 1;
    }
    mla_tile_max(s, factor, state->max, max);
    mla_raise_max<Config>(max, state);
    mla_group_exponents<Config>(s, factor, state, p);
    mla_pass_p<Config>(shared, places, state, p);
}

#endif
