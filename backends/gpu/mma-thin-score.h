/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Part of mma-thin.h: scores of a turn, and the rules that change or hide them. Of each 16 keys, a lane has
 * those of its number / 4, and 8 more, by two rows, those of its number % 4 * 2.
 */

/* All of the queries. */
GPU_INLINE void mma_thin_hold(const unsigned char *queries, uint32_t q[MMA_DK / 16][2])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t kk = 0; kk < MMA_DK / 16; kk += 2) {
        uint32_t r[4];
        gpu_load_matrix4(r, queries + MMA_AT(lane % 8, kk * 2 + lane / 8, MMA_DK * 2));
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            q[kk + i / 2][i % 2] = r[i];
    }
}

/* Products of the team's keys with the rows; `dtype`: of 8-bit keys. */
GPU_INLINE void mma_thin_score_tile(uint32_t dtype, const unsigned char *keys, uint32_t q[MMA_DK / 16][2],
                                    float s[MMA_KEYS / 16][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, own = MMA_LANE(lane % 16, lane / 16, MMA_KB);
    /* Matrix units cut sums off, not round them: long ones are taken in two. */
    const uint32_t parts = MMA_DK > 128 ? 2 : 1, turn = MMA_DK / 16 / parts;

    GPU_UNROLL
    for (uint32_t n = 0; n < MMA_KEYS / 16; n++) {
        float sum[2][4];
        uint32_t r[4];
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            sum[0][e] = sum[1][e] = 0;
        GPU_UNROLL
        for (uint32_t kk = 0; kk < MMA_DK / 16; kk++) {
            uint32_t a[4];
            if (!MMA_EIGHT)
                gpu_load_matrix4(a, keys + MMA_BLOCK(own, n * 16, kk * 2, MMA_KB));
            else if (kk % 2 == 0)
                gpu_load_matrix4(r, keys + MMA_BLOCK(own, n * 16, kk, MMA_KB));
            GPU_UNROLL
            for (uint32_t h = 0; MMA_EIGHT && h < 2; h++) {
                uint32_t number[2];
                gpu_quad8(dtype, r[kk % 2 * 2 + h], number);
                a[h] = number[0];
                a[2 + h] = number[1];
            }
            mma_multiply(sum[kk / turn], a, q[kk], MMA_WIDE);
        }
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            s[n][e] = parts == 2 ? sum[0][e] + sum[1][e] : sum[0][e];
    }
}

/* Each type has code of its own. */
GPU_INLINE void mma_thin_scores(const struct gpu_run *run, const unsigned char *keys,
                                uint32_t q[MMA_DK / 16][2], float s[MMA_KEYS / 16][4])
{
    if (!MMA_EIGHT || run->k.dtype == ATTN_E4M3)
        mma_thin_score_tile(ATTN_E4M3, keys, q, s);
    else if (run->k.dtype == ATTN_E5M2)
        mma_thin_score_tile(ATTN_E5M2, keys, q, s);
    else
        mma_thin_score_tile(ATTN_INT8, keys, q, s);
}

/* All scores of the warp by their rules; `scale` makes scores of products. Four in turn, so that the rules
 * are here only four times. */
GPU_INLINE void mma_thin_special(const struct gpu_run *run, const struct mma_shared *shared, uint32_t slot,
                                 uint32_t tile, uint32_t key0, float scale, const float back[2],
                                 float s[MMA_KEYS / 16][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, blocks = MMA_KEYS / 16;

    GPU_LOOP
    for (uint32_t i = 0; i < blocks; i++) {
        float x[4];
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            x[e] = mma_rule(run, shared, slot, lane % 4 * 2 + e % 2, tile,
                            key0 + i * 16 + lane / 4 + e / 2 * 8, s[0][e] * back[e % 2] * scale);
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++) {
            GPU_UNROLL
            for (uint32_t j = 0; j + 1 < blocks; j++)
                s[j][e] = s[j + 1][e];
            s[blocks - 1][e] = x[e];
        }
    }
}

/* Minus infinity for keys that a row does not see or that are not there. */
GPU_INLINE void mma_thin_hide(const struct mma_shared *shared, uint32_t present, uint32_t from,
                              float s[MMA_KEYS / 16][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    present >>= lane / 4;
    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        const struct gpu_row *r = &shared->row[lane % 4 * 2 + e];
        const uint32_t lo = r->lo, count = r->hi > lo ? r->hi - lo : 0, at = from + lane / 4 - lo;
        GPU_UNROLL
        for (uint32_t i = 0; i < MMA_KEYS / 8; i++)
            if (at + i * 8 >= count || (present >> i * 8 & 1) == 0)
                s[i / 2][i % 2 * 2 + e] = -GPU_INFINITY;
    }
}

/* Rows' scores of a turn, but for their factors. True if every row sees every key. */
GPU_INLINE bool mma_thin_rules(const struct gpu_run *run, const struct mma_shared *shared,
                               const struct mma_reach *reach, const struct mma_rules *rules,
                               const float back[2], uint32_t slot, uint32_t tile, uint32_t key0, bool simple,
                               float s[MMA_KEYS / 16][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, from = tile * GPU_TILE + key0;
    const uint32_t everyone = MMA_KEYS == 16 ? 0xffffu : 0xffffffffu;
    uint32_t present = everyone;

    if (!simple && (run->batch.addressing != ATTN_DENSE || from + MMA_KEYS > reach->keys))
        present = gpu_ballot(shared->k_at[slot][key0 + lane % MMA_KEYS] != MMA_NOWHERE) & everyone;
    const bool plain = from >= rules->lo && from + MMA_KEYS <= rules->hi && present == everyone;
    if (mma_by_key(run->problem.k_scale))
        GPU_UNROLL
    for (uint32_t i = 0; i < MMA_KEYS / 8; i++) {
        const float scale = shared->k_scale[slot][key0 + i * 8 + lane / 4];
        s[i / 2][i % 2 * 2] *= scale;
        s[i / 2][i % 2 * 2 + 1] *= scale;
    }
    if (rules->special)
        mma_thin_special(run, shared, slot, tile, key0, rules->scale, back, s);
    else if (!plain)
        mma_thin_hide(shared, present, from, s);
    return plain;
}
