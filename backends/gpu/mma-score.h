/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-body.h: scores of a tile, and the rules that change or hide them. */

GPU_INLINE void mma_multiply(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    if (MMA_BF16)
        gpu_mma_bf16(d, a, b);
    else
        gpu_mma_f16(d, a, b);
}

/* P: in bf16 beside 8-bit values, whose scales f16 would not hold. */
GPU_INLINE uint32_t mma_pack(float low, float high)
{
    return MMA_BF16 || MMA_EIGHT ? gpu_pack_bf16(low, high) : gpu_pack_f16(low, high);
}

/* Products of the warp's rows with its keys. */
GPU_INLINE void mma_scores(const struct gpu_run *run, const unsigned char *queries, const unsigned char *keys,
                           uint32_t row_group, uint32_t key0, float s[MMA_MI][MMA_KEYS / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, matrix = lane / 8, in = lane % 8;

    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
        s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
    GPU_UNROLL
    for (uint32_t kk = 0; kk < MMA_DK / 16; kk += 2) {
        uint32_t a[2][MMA_MI][4];
        GPU_UNROLL
        for (uint32_t j = 0; j < 2; j++)
            GPU_UNROLL
        for (uint32_t m = 0; m < MMA_MI; m++) {
            const uint32_t row = (row_group * MMA_MI + m) * 16 + (matrix & 1) * 8 + in;
            gpu_load_matrix4(a[j][m], queries + MMA_AT(row, (kk + j) * 2 + (matrix >> 1), MMA_DK * 2));
        }
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_KEYS / 16; n++) {
            uint32_t r[4], b[2];
            if (MMA_EIGHT) {
                const uint32_t row = key0 + n * 16 + (matrix & 1) * 8 + in;
                gpu_load_matrix4(r, keys + MMA_AT(row, kk + (matrix >> 1), MMA_KB));
            }
            GPU_UNROLL
            for (uint32_t j = 0; j < 2; j++) {
                if (!MMA_EIGHT) {
                    const uint32_t row = key0 + n * 16 + (matrix >> 1) * 8 + in;
                    gpu_load_matrix4(r, keys + MMA_AT(row, (kk + j) * 2 + (matrix & 1), MMA_KB));
                }
                GPU_UNROLL
                for (uint32_t h = 0; h < 2; h++) {
                    if (MMA_EIGHT) {
                        b[0] = gpu_pair8(run->k.dtype, r[2 * j + h], 0, 1, MMA_BF16);
                        b[1] = gpu_pair8(run->k.dtype, r[2 * j + h], 2, 3, MMA_BF16);
                    } else {
                        b[0] = r[2 * h];
                        b[1] = r[2 * h + 1];
                    }
                    GPU_UNROLL
                    for (uint32_t m = 0; m < MMA_MI; m++)
                        mma_multiply(s[m][2 * n + h], a[j][m], b);
                }
            }
        }
    }
}

/* A score in base 2, minus infinity for a key that the row does not see. */
GPU_INLINE float mma_rule(const struct gpu_run *run, const struct mma_shared *shared, uint32_t slot,
                          uint32_t row, uint32_t tile, uint32_t key, float score, bool special)
{
    const struct gpu_row *r = &shared->row[row];
    const uint32_t at = tile * GPU_TILE + key;
    double bias;

    if (at < r->lo || at >= r->hi || shared->k_at[slot][key] == 0)
        return -GPU_INFINITY;
    if (!special)
        return score * GPU_LOG2E;
    const float cap = run->problem.softcap;
    if (cap > 0)
        score = cap * gpu_tanh(score / cap);
    if (run->mask.base == 0 && run->slopes == 0)
        return score * GPU_LOG2E;
    if (!gpu_sees(run, &shared->sequence, r, at, &bias))
        return -GPU_INFINITY;
    return (float)(((double)score + bias) * (double)GPU_LOG2E);
}

/* Scores in base 2, in place. True if every row sees every key of the tile. */
GPU_INLINE bool mma_apply_rules(const struct gpu_run *run, const struct mma_shared *shared, uint32_t slot,
                                uint32_t row_group, uint32_t tile, uint32_t key0,
                                float s[MMA_MI][MMA_KEYS / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const bool special = run->problem.softcap > 0 || run->slopes != 0 || run->mask.base != 0;
    const bool by_key = mma_by_key(run->problem.k_scale);
    const bool plain = !special && tile * GPU_TILE >= shared->row_lo &&
                       (tile + 1) * GPU_TILE <= shared->row_hi && run->batch.addressing == ATTN_DENSE;
    bool all = !special && tile * GPU_TILE >= shared->row_lo && (tile + 1) * GPU_TILE <= shared->row_hi;

    if (!plain && all) /* holes of a table */
        all = gpu_ballot(shared->k_at[slot][lane] != 0 && shared->k_at[slot][lane + 32] != 0) == 0xffffffffu;
    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
        GPU_UNROLL
    for (uint32_t e = 0; e < 4; e++) {
        const uint32_t row = (row_group * MMA_MI + m) * 16 + lane / 4 + e / 2 * 8;
        const uint32_t key = key0 + n * 8 + lane % 4 * 2 + e % 2;
        float x = s[m][n][e] * shared->scale[row];
        if (by_key)
            x *= shared->k_scale[slot][key];
        s[m][n][e] = all ? x * GPU_LOG2E : mma_rule(run, shared, slot, row, tile, key, x, special);
    }
    return all;
}
