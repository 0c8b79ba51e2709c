/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of tile-body.h: scores of a tile, and the rules that change or hide them. */

/*
 * What the scores of a piece have in common, and a lane's row. `scale` makes scores of products, `factor`
 * scores in base 2 of what the rules leave: where one positive factor does all, maxima are found before it.
 */
struct tile_rules {
    float scale;
    float factor;
    float slack; /* TILE_SLACK in base 2 */
    bool special;
    uint32_t lo, hi; /* keys that every row sees without being asked */
};

/* s + products of the wave's rows with `blocks` blocks of 16 keys, columns [16 * first, 16 * end). */
GPU_INLINE void tile_score(const unsigned char *keys, const struct tile_b q[TILE_DK / 16], uint32_t first,
                           uint32_t end, uint32_t blocks, bool wide, float (*s)[TILE_ACC])
{
    GPU_UNROLL
    for (uint32_t k = first; k < end; k++) {
        struct tile_full full;
        TILE_TURN();
        tile_full_of(&full, &q[k]);
        GPU_UNROLL
        for (uint32_t n = 0; n < blocks; n++)
            tile_multiply_rows(s[n], keys + (n * 16 * HIP_TILE_PITCH(TILE_DK) + k * 32),
                               HIP_TILE_PITCH(TILE_DK), &full, wide);
    }
}

/* Long sums lose more than a score may: more than 128 columns are summed in two. */
#define TILE_FIRST (TILE_DK > 128 ? TILE_DK / 32 : TILE_DK / 16)

/* s + products of the columns from 16 * first on with `blocks` blocks of keys. */
GPU_INLINE void tile_score_rest(const unsigned char *keys, const struct tile_b q[TILE_DK / 16],
                                uint32_t first, uint32_t blocks, bool wide, float (*s)[TILE_ACC])
{
    float own[4][TILE_ACC];

    if (first == TILE_DK / 16)
        return;
    GPU_UNROLL
    for (uint32_t n = 0; n < blocks; n++)
        GPU_UNROLL
    for (uint32_t i = 0; i < TILE_ACC; i++)
        own[n][i] = 0;
    tile_score(keys, q, first, TILE_DK / 16, blocks, wide, own);
    GPU_UNROLL
    for (uint32_t n = 0; n < blocks; n++)
        GPU_UNROLL
    for (uint32_t i = 0; i < TILE_ACC; i++)
        s[n][i] += own[n][i];
}

/* Products of the wave's rows with all of its keys. */
GPU_INLINE void tile_scores(const unsigned char *keys, const struct tile_b q[TILE_DK / 16], uint32_t blocks,
                            bool wide, float s[4][TILE_ACC])
{
    GPU_UNROLL
    for (uint32_t n = 0; n < blocks; n++)
        GPU_UNROLL
    for (uint32_t i = 0; i < TILE_ACC; i++)
        s[n][i] = 0;
#if TILE_ROLLED
    GPU_LOOP
    for (uint32_t n = 0; n < blocks; n++) {
        float own[TILE_ACC];
        GPU_UNROLL
        for (uint32_t i = 0; i < TILE_ACC; i++)
            own[i] = 0;
        tile_score(keys + n * 16 * HIP_TILE_PITCH(TILE_DK), q, 0, TILE_FIRST, 1, wide, &own);
        tile_score_rest(keys + n * 16 * HIP_TILE_PITCH(TILE_DK), q, TILE_FIRST, 1, wide, &own);
        GPU_UNROLL
        for (uint32_t i = 0; i < TILE_ACC; i++) {
            GPU_UNROLL
            for (uint32_t j = 0; j + 1 < blocks; j++)
                s[j][i] = s[j + 1][i];
            s[blocks - 1][i] = own[i];
        }
    }
#else
    tile_score(keys, q, 0, TILE_FIRST, blocks, wide, s);
    tile_score_rest(keys, q, TILE_FIRST, blocks, wide, s);
#endif
}

GPU_INLINE struct tile_rules tile_find_rules(const struct gpu_run *run, const struct tile_shared *shared,
                                             const struct gpu_piece *p, uint32_t rows)
{
    const uint32_t there = shared->sequence.q_len * run->group - p->row0;
    struct tile_rules rules;

    rules.lo = 0;
    rules.hi = 0xffffffffu;
    for (uint32_t row = tile_thread() % GPU_WARP; row < rows && row < there; row += GPU_WARP) {
        rules.lo = shared->row[row].lo > rules.lo ? shared->row[row].lo : rules.lo;
        rules.hi = shared->row[row].hi < rules.hi ? shared->row[row].hi : rules.hi;
    }
    GPU_UNROLL
    for (uint32_t step = 1; step < GPU_WARP; step *= 2) {
        const uint32_t lo = gpu_shuffle_xor_u32(rules.lo, step), hi = gpu_shuffle_xor_u32(rules.hi, step);
        rules.lo = lo > rules.lo ? lo : rules.lo;
        rules.hi = hi < rules.hi ? hi : rules.hi;
    }
    rules.lo = tile_same(rules.lo);
    rules.hi = run->mask.base != 0 ? 0 : tile_same(rules.hi);
    rules.scale = run->softmax_scale;
    if (TILE_EIGHT && !tile_by_key(run->problem.k_scale))
        rules.scale *= gpu_scale_at(&run->k.scale, 0, 0, p->kv_head);
    rules.scale = tile_same_f32(rules.scale);
    rules.special = run->problem.softcap > 0 || run->slopes != 0 || run->mask.base != 0 ||
                    !(rules.scale > 0 && rules.scale < GPU_INFINITY);
    rules.factor = tile_same_f32(rules.special ? 1 : rules.scale * GPU_LOG2E);
    rules.slack = tile_same_f32(__builtin_fminf(TILE_SLACK / rules.factor, 1e38f));
    return rules;
}

/* A score in base 2 by its rules, minus infinity for a key that the row does not see. */
GPU_INLINE float tile_rule(const struct gpu_run *run, const struct gpu_sequence *s, const struct gpu_row *row,
                           uint32_t key, float score)
{
    const float cap = run->problem.softcap;
    double bias;

    if (cap > 0)
        score = cap * gpu_tanh(score / cap);
    if (run->mask.base == 0 && run->slopes == 0)
        return score * GPU_LOG2E;
    if (!gpu_sees(run, s, row, key, &bias))
        return -GPU_INFINITY;
    return (float)(((double)score + bias) * (double)GPU_LOG2E);
}

/* The key of a tile that element i of a lane's block n is about. */
GPU_INLINE uint32_t tile_key(uint32_t key0, uint32_t n, uint32_t i)
{
    return key0 + n * 16 + tile_lane() / 16 * TILE_ACC + i;
}

/* The first `count` of 64 bits; all of them from 64 on. */
GPU_INLINE uint64_t tile_first_bits(uint32_t count)
{
    return count >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << count) - 1;
}

/* Keys of a tile that are there and in the reach of the lane's row, a bit for each from the lane's first on.
 */
GPU_INLINE uint64_t tile_reached(const struct gpu_row *row, uint32_t tile, uint32_t key0, uint64_t present)
{
    const uint32_t from = tile * GPU_TILE, lo = row->lo, hi = row->hi;

    present &= tile_first_bits(hi > from ? hi - from : 0) & ~tile_first_bits(lo > from ? lo - from : 0);
    return present >> (key0 + tile_lane() / 16 * TILE_ACC);
}

/* All scores of the wave by their rules, one after the other, so that the rules are here only once. */
GPU_INLINE void tile_special(const struct gpu_run *run, const struct tile_shared *shared,
                             const struct tile_rules *rules, uint32_t own, uint32_t tile, uint32_t key0,
                             uint64_t present, uint32_t blocks, float s[4][TILE_ACC])
{
    const uint64_t reached = tile_reached(&shared->row[own], tile, key0, present);

    GPU_LOOP
    for (uint32_t i = 0; i < blocks * TILE_ACC; i++) {
        const uint32_t key = i / TILE_ACC * 16 + i % TILE_ACC;
        float x = -GPU_INFINITY;
        run = (const struct gpu_run *)gpu_again(run);
        if ((reached >> key & 1) != 0)
            x = tile_rule(run, &shared->sequence, &shared->row[own], tile * GPU_TILE + tile_key(key0, 0, key),
                          s[0][0] * rules->scale);
        GPU_UNROLL
        for (uint32_t j = 0; j + 1 < blocks * TILE_ACC; j++)
            s[j / TILE_ACC][j % TILE_ACC] = s[(j + 1) / TILE_ACC][(j + 1) % TILE_ACC];
        s[blocks - 1][TILE_ACC - 1] = x;
    }
}

/* Rows' scores of a tile, but for the factor. `plain`: every row sees every key. */
GPU_INLINE void tile_apply_rules(const struct gpu_run *run, const struct tile_shared *shared,
                                 const struct tile_rules *rules, uint32_t own, uint32_t tile, uint32_t key0,
                                 uint64_t present, bool plain, uint32_t blocks, float s[4][TILE_ACC])
{
    if (tile_by_key(run->problem.k_scale))
        GPU_UNROLL
    for (uint32_t n = 0; n < blocks; n++) {
        TILE_TURN();
        GPU_UNROLL
        for (uint32_t i = 0; i < TILE_ACC; i++)
            s[n][i] *= shared->scale[0][tile % 2][tile_key(key0, n, i)];
    }
    if (rules->special) {
        tile_special(run, shared, rules, own, tile, key0, present, blocks, s);
    } else if (!plain) {
        const uint64_t reached = tile_reached(&shared->row[own], tile, key0, present);
        GPU_UNROLL
        for (uint32_t n = 0; n < blocks; n++)
            GPU_UNROLL
        for (uint32_t i = 0; i < TILE_ACC; i++)
            if (((uint32_t)(reached >> n / 2 * 32) >> (n % 2 * 16 + i) & 1) == 0)
                s[n][i] = -GPU_INFINITY;
    }
}
