/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-body.h: scores of a tile, and the rules that change or hide them. */

GPU_INLINE void mma_multiply(float d[4], const uint32_t a[4], const uint32_t b[2], bool wide)
{
    if (wide)
        gpu_mma_bf16(d, a, b);
    else
        gpu_mma_f16(d, a, b);
}

/* Two numbers of P. */
GPU_INLINE uint32_t mma_pack(float low, float high, bool wide)
{
    return wide ? gpu_pack_bf16(low, high) : gpu_pack_f16(low, high);
}

/* 16 rows of the queries at columns kk * 16 ... */
GPU_INLINE void mma_query(const unsigned char *queries, uint32_t first_row, uint32_t kk, uint32_t a[4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const uint32_t own = MMA_LANE(lane % 16, lane / 16, MMA_DK * 2);

    gpu_load_matrix4(a, queries + MMA_BLOCK(own, first_row, kk * 2, MMA_DK * 2));
}

/* All of the queries, which every warp has. */
GPU_INLINE void mma_hold(const unsigned char *queries, uint32_t q[MMA_DK / 16][MMA_MI][4])
{
    GPU_UNROLL
    for (uint32_t kk = 0; kk < MMA_DK / 16; kk++)
        mma_query(queries, 0, kk, q[kk][0]);
}

GPU_INLINE void mma_no_scores(float s[MMA_MI][MMA_KEYS / 8][4])
{
    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
        s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
}

/* Products of the warp's rows with its keys; `dtype`: of 8-bit keys. */
GPU_INLINE void mma_score_tile(uint32_t dtype, const unsigned char *queries, const unsigned char *keys,
                               uint32_t row_group, uint32_t q[MMA_DK / 16][MMA_MI][4],
                               float s[MMA_MI][MMA_KEYS / 8][4], struct mma_fetching *fetch)
{
    /* Of the half that is fetched meanwhile. */
    const uint32_t bytes = MMA_HALVES % 2 == 0 ? MMA_VB : MMA_KB;
    const uint32_t lane = gpu_thread() % GPU_WARP;
    /* Two halves: the values that are waited for next. */
    const uint32_t each = MMA_HALVES == 2 ? 2 : MMA_EVERY(MMA_DK / 16, bytes);
    /* A load has 16 columns of 16 keys; of 8-bit codes, 32 columns. */
    const uint32_t own = MMA_EIGHT ? MMA_LANE(lane % 16, lane / 16, MMA_KB)
                                   : MMA_LANE(lane / 16 * 8 + lane % 8, lane / 8 % 2, MMA_KB);
    const uint32_t turn = MMA_DK > 128 ? MMA_DK / 32 : MMA_DK / 16;
    float half[MMA_MI][MMA_KEYS / 8][4];

    mma_no_scores(s);
    mma_no_scores(half);
    GPU_UNROLL
    for (uint32_t kk = 0; kk < MMA_DK / 16; kk++) {
        uint32_t a[MMA_MI][4], r[MMA_KEYS / 16][4];
        if (MMA_RB == 4 && kk % each == each / 2 - 1 && kk / each < MMA_STEPS(bytes))
            mma_ask(fetch, kk / each);
        /* Matrix units cut sums off, not round them: long ones are taken in two. */
        if (kk == turn) {
            GPU_UNROLL
            for (uint32_t m = 0; m < MMA_MI; m++)
                GPU_UNROLL
            for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
                GPU_UNROLL
            for (uint32_t e = 0; e < 4; e++)
                half[m][n][e] = s[m][n][e];
            mma_no_scores(s);
        }
        GPU_UNROLL
        for (uint32_t m = 0; m < MMA_MI; m++) {
            if (!MMA_HOLD)
                mma_query(queries, (row_group * MMA_MI + m) * 16, kk, a[m]);
            GPU_UNROLL
            for (uint32_t i = 0; MMA_HOLD && i < 4; i++)
                a[m][i] = q[kk][m][i];
        }
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_KEYS / 16; n++) {
            uint32_t b[2];
            if (!MMA_EIGHT)
                gpu_load_matrix4(r[n], keys + MMA_BLOCK(own, n * 16, kk * 2, MMA_KB));
            else if (kk % 2 == 0)
                gpu_load_matrix4(r[n], keys + MMA_BLOCK(own, n * 16, kk, MMA_KB));
            GPU_UNROLL
            for (uint32_t h = 0; h < 2; h++) {
                if (MMA_EIGHT) {
                    gpu_quad8(dtype, r[n][kk % 2 * 2 + h], b);
                } else {
                    b[0] = r[n][2 * h];
                    b[1] = r[n][2 * h + 1];
                }
                GPU_UNROLL
                for (uint32_t m = 0; m < MMA_MI; m++)
                    mma_multiply(s[m][2 * n + h], a[m], b, MMA_WIDE);
            }
        }
        if (MMA_RB == 4 && kk % each == each / 2 && kk / each < MMA_STEPS(bytes))
            mma_send(fetch, bytes, kk / each);
    }
    if (turn == MMA_DK / 16)
        return;
    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
        GPU_UNROLL
    for (uint32_t e = 0; e < 4; e++)
        s[m][n][e] += half[m][n][e];
}

/* The same of 16-bit keys, where the next matrices are loaded before the last are multiplied. */
GPU_INLINE void mma_score_stream(const unsigned char *queries, const unsigned char *keys, uint32_t row_group,
                                 float s[MMA_MI][MMA_KEYS / 8][4], struct mma_fetching *fetch)
{
    const uint32_t bytes = MMA_HALVES % 2 == 0 ? MMA_VB : MMA_KB;
    const uint32_t lane = gpu_thread() % GPU_WARP, blocks = MMA_KEYS / 16, steps = MMA_DK / 16 * blocks;
    const uint32_t each = MMA_HALVES == 2 ? 2 : MMA_EVERY(MMA_DK / 16, bytes);
    const uint32_t own = MMA_LANE(lane / 16 * 8 + lane % 8, lane / 8 % 2, MMA_KB);
    uint32_t a[2][MMA_MI][4], r[2][4];

    mma_no_scores(s);
    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        mma_query(queries, (row_group * MMA_MI + m) * 16, 0, a[0][m]);
    gpu_load_matrix4(r[0], keys + MMA_BLOCK(own, 0, 0, MMA_KB));
    GPU_UNROLL
    for (uint32_t i = 0; i < steps; i++) {
        const uint32_t kk = i / blocks, n = i % blocks, next = i + 1;
        if (n == 0 && kk % each == each / 2 - 1 && kk / each < MMA_STEPS(bytes))
            mma_ask(fetch, kk / each);
        if (next < steps)
            gpu_load_matrix4(r[next % 2],
                             keys + MMA_BLOCK(own, next % blocks * 16, next / blocks * 2, MMA_KB));
        if (n >= blocks - MMA_MI && kk + 1 < MMA_DK / 16)
            mma_query(queries, (row_group * MMA_MI + n - (blocks - MMA_MI)) * 16, kk + 1,
                      a[(kk + 1) % 2][n - (blocks - MMA_MI)]);
        GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++)
            GPU_UNROLL
        for (uint32_t m = 0; m < MMA_MI; m++)
            mma_multiply(s[m][2 * n + h], a[kk % 2][m], r[i % 2] + 2 * h, MMA_WIDE);
        if (n + 1 == blocks && kk % each == each / 2 && kk / each < MMA_STEPS(bytes))
            mma_send(fetch, bytes, kk / each);
    }
}

/* Each type has code of its own. */
GPU_INLINE void mma_scores(const struct gpu_run *run, const unsigned char *queries, const unsigned char *keys,
                           uint32_t row_group, uint32_t q[MMA_DK / 16][MMA_MI][4],
                           float s[MMA_MI][MMA_KEYS / 8][4], struct mma_fetching *fetch)
{
    if (MMA_RB == 4 && !MMA_EIGHT && MMA_DK <= 128) {
        mma_score_stream(queries, keys, row_group, s, fetch);
        return;
    }
    if (!MMA_EIGHT || run->k.dtype == ATTN_E4M3)
        mma_score_tile(ATTN_E4M3, queries, keys, row_group, q, s, fetch);
    else if (run->k.dtype == ATTN_E5M2)
        mma_score_tile(ATTN_E5M2, queries, keys, row_group, q, s, fetch);
    else
        mma_score_tile(ATTN_INT8, queries, keys, row_group, q, s, fetch);
}

/* A score in base 2, minus infinity for a key that the row does not see. */
GPU_INLINE float mma_rule(const struct gpu_run *run, const struct mma_shared *shared, uint32_t slot,
                          uint32_t row, uint32_t tile, uint32_t key, float score)
{
    const struct gpu_row *r = &shared->row[row];
    const uint32_t at = tile * GPU_TILE + key;
    double bias;

    if (at < r->lo || at >= r->hi || shared->k_at[slot][key] == MMA_NOWHERE)
        return -GPU_INFINITY;
    const float cap = run->problem.softcap;
    if (cap > 0)
        score = cap * gpu_tanh(score / cap);
    if (run->mask.base == 0 && run->slopes == 0)
        return score * GPU_LOG2E;
    if (!gpu_sees(run, &shared->sequence, r, at, &bias))
        return -GPU_INFINITY;
    return (float)(((double)score + bias) * (double)GPU_LOG2E);
}

/* All scores of the warp by their rules; `scale` makes scores of products. Four in turn, so that the rules
 * are here only four times. */
GPU_INLINE void mma_special(const struct gpu_run *run, const struct mma_shared *shared, uint32_t slot,
                            uint32_t row_group, uint32_t tile, uint32_t key0, float scale,
                            float s[MMA_MI][MMA_KEYS / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, blocks = MMA_KEYS / 8;

    GPU_LOOP
    for (uint32_t i = 0; i < MMA_MI * blocks; i++) {
        float x[4];
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            x[e] = mma_rule(run, shared, slot, (row_group * MMA_MI + i / blocks) * 16 + lane / 4 + e / 2 * 8,
                            tile, key0 + i % blocks * 8 + lane % 4 * 2 + e % 2, s[0][0][e] * scale);
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++) {
            GPU_UNROLL
            for (uint32_t j = 0; j + 1 < MMA_MI * blocks; j++)
                s[j / blocks][j % blocks][e] = s[(j + 1) / blocks][(j + 1) % blocks][e];
            s[MMA_MI - 1][blocks - 1][e] = x[e];
        }
    }
}

/* Which of the team's keys are there, a bit for each. */
#define MMA_EVERYONE (MMA_KEYS == 16 ? 0xffffu : ~UINT64_C(0))
GPU_INLINE uint64_t mma_present(const struct gpu_run *run, const struct mma_shared *shared, uint32_t slot,
                                uint32_t key0)
{
    if (MMA_RB == 1 && run->batch.addressing == ATTN_DENSE)
        return MMA_EVERYONE;
    const uint64_t *at = shared->k_at[slot] + key0;
    const uint32_t lane = gpu_thread() % GPU_WARP;

    if (MMA_KEYS == 16)
        return gpu_ballot(at[lane % 16] != MMA_NOWHERE) & 0xffff;
    return gpu_ballot(at[lane] != MMA_NOWHERE) |
           (uint64_t)gpu_ballot(at[(lane + 32) % MMA_KEYS] != MMA_NOWHERE) << 32;
}

/* Minus infinity for keys that a row does not see or that are not there. */
GPU_INLINE void mma_hide(const struct mma_shared *shared, uint64_t present, uint32_t row_group, uint32_t from,
                         float s[MMA_MI][MMA_KEYS / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    present >>= lane % 4 * 2;
    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const struct gpu_row *r = &shared->row[(row_group * MMA_MI + m) * 16 + lane / 4 + h * 8];
        const uint32_t lo = r->lo, count = r->hi > lo ? r->hi - lo : 0, at = from + lane % 4 * 2 - lo;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
            GPU_UNROLL
        for (uint32_t e = 0; e < 2; e++)
            if (at + n * 8 + e >= count || (present >> (n * 8 + e) & 1) == 0)
                s[m][n][2 * h + e] = -GPU_INFINITY;
    }
}

/* Rows' scores of a tile, but for the factor. True if every row sees every key. */
GPU_INLINE bool mma_apply_rules(const struct gpu_run *run, const struct mma_shared *shared,
                                const struct mma_rules *rules, uint32_t slot, uint32_t row_group,
                                uint32_t tile, uint32_t key0, uint64_t present,
                                float s[MMA_MI][MMA_KEYS / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, from = tile * GPU_TILE + key0;
    const bool plain = from >= rules->lo && from + MMA_KEYS <= rules->hi && present == MMA_EVERYONE;

    if (MMA_SCALED)
        GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const float back = shared->q_factor[(row_group * MMA_MI + m) * 16 + lane / 4 + h * 8];
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_KEYS / 8; n++) {
            s[m][n][2 * h] *= back;
            s[m][n][2 * h + 1] *= back;
        }
    }
    if (mma_by_key(run->problem.k_scale))
        GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
        GPU_UNROLL
    for (uint32_t e = 0; e < 4; e++)
        s[m][n][e] *= shared->k_scale[slot][key0 + n * 8 + lane % 4 * 2 + e % 2];
    if (rules->special)
        mma_special(run, shared, slot, row_group, tile, key0, rules->scale, s);
    else if (!plain)
        mma_hide(shared, present, row_group, from, s);
    return plain;
}
