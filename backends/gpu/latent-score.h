/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of latent-body.h: scores of a tile, and the rules that change or hide them. */

/* Steps of 16 columns whose products are added up by the matrix units alone. */
#define LATENT_STEPS 6u

/* Half a product each: the partner gets the keys that it keeps, and gives back the others. */
GPU_INLINE void latent_exchange(struct latent_shared *shared, const struct latent_warp *w, uint32_t wave,
                                float part[LATENT_WAVE][4], float s[LATENT_KEPT][4])
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;

    if (wave > 0)
        gpu_barrier_part(1 + warp / 2, 2 * GPU_WARP); /* the partner has read the wave before */
    GPU_UNROLL
    for (uint32_t i = 0; i < LATENT_HALF; i++) {
        struct gpu_u128 word;
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            word.x[e] = gpu_f32_bits(w->half != 0 ? part[i][e] : part[LATENT_HALF + i][e]);
        gpu_store_u128(&shared->exchange[warp][i][lane], word);
    }
    gpu_barrier_part(1 + warp / 2, 2 * GPU_WARP);
    GPU_UNROLL
    for (uint32_t i = 0; i < LATENT_HALF; i++) {
        const struct gpu_u128 word = gpu_load_u128(&shared->exchange[warp ^ 1][i][lane]);
        GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            s[wave * LATENT_HALF + i][e] =
                (w->half != 0 ? part[LATENT_HALF + i][e] : part[i][e]) + gpu_f32_of_bits(word.x[e]);
    }
}

/* Products of the warp's rows with the keys that it keeps. */
GPU_INLINE void latent_scores(struct latent_shared *shared, const unsigned char *stages, uint32_t keys,
                              const struct latent_warp *w, bool bf16, uint32_t q[18][4],
                              float s[LATENT_KEPT][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, matrix = lane / 8, in = lane % 8;

    /* Of this lane's row in the first 16 keys; 16-byte chunks of 128 bytes differ in these bits alone. */
    const uint32_t at =
        keys + LATENT_AT(w->key0 + (matrix >> 1) * 8 + in, latent_chunk(w->half, 0) + (matrix & 1));
    const uint32_t rope = (at - w->half * 512 + 1024) ^ (w->half * 64);

    GPU_UNROLL
    for (uint32_t wave = 0; wave < LATENT_KEPT / LATENT_HALF; wave++) {
        float part[LATENT_WAVE][4];
        GPU_UNROLL
        for (uint32_t n = 0; n < LATENT_WAVE; n++)
            part[n][0] = part[n][1] = part[n][2] = part[n][3] = 0;
        /* A sum of the matrix units is cut off at every step: many steps from zero would be off too far. */
        GPU_UNROLL
        for (uint32_t first = 0; first < 18; first += LATENT_STEPS) {
            float sum[LATENT_WAVE][4];
            GPU_UNROLL
            for (uint32_t n = 0; n < LATENT_WAVE; n++)
                sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
            GPU_UNROLL
            for (uint32_t k = first; k < first + LATENT_STEPS; k++)
                GPU_UNROLL
            for (uint32_t n = 0; n < LATENT_WAVE / 2; n++) {
                const uint32_t row = (wave * LATENT_WAVE * 8 + n * 16) * LATENT_PITCH;
                uint32_t r[4];
                if (k < 16)
                    gpu_load_matrix4(r, stages + (at ^ (k % 4 * 32)) + k / 4 * 128 + row);
                else
                    gpu_load_matrix4(r, stages + (rope ^ (k % 4 * 32)) + row);
                latent_multiply(bf16, sum[2 * n], q[k], r);
                latent_multiply(bf16, sum[2 * n + 1], q[k], r + 2);
            }
            GPU_UNROLL
            for (uint32_t n = 0; n < LATENT_WAVE; n++)
                GPU_UNROLL
            for (uint32_t e = 0; e < 4; e++)
                part[n][e] += sum[n][e];
        }
        latent_exchange(shared, w, wave, part, s);
    }
}

/* A score in base 2, minus infinity for a key that the row does not see. */
GPU_INLINE float latent_rule(const struct gpu_run *run, const struct latent_shared *shared,
                             const struct gpu_row *r, uint32_t at, float score)
{
    const float cap = run->problem.softcap;
    double bias;

    if (cap > 0)
        score = cap * gpu_tanh(score / cap);
    if (run->mask.base == 0 && run->slopes == 0)
        return score * LATENT_LOG2E;
    if (!gpu_sees(run, &shared->sequence, r, at, &bias))
        return -GPU_INFINITY;
    return (float)(((double)score + bias) * (double)LATENT_LOG2E);
}

/* Scores in base 2, in place. True if every row sees every key of the tile. */
GPU_INLINE bool latent_apply_rules(const struct gpu_run *run, const struct latent_shared *shared,
                                   uint32_t stage, const struct latent_warp *w, uint32_t tile,
                                   float s[LATENT_KEPT][4])
{
    const bool special = run->problem.softcap > 0 || run->slopes != 0 || run->mask.base != 0;
    const uint32_t row0 = w->block * 16 + gpu_thread() % GPU_WARP / 4, key0 = tile * GPU_TILE;
    const uint64_t there = shared->there[stage];
    const float scale = run->softmax_scale * LATENT_LOG2E;

    if (!special && key0 >= shared->row_lo && key0 + GPU_TILE <= shared->row_hi && ~there == 0) {
        GPU_UNROLL
        for (uint32_t n = 0; n < LATENT_KEPT; n++)
            GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            s[n][e] *= scale;
        return true;
    }
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const struct gpu_row *row = &shared->row[row0 + h * 8];
        const uint32_t lo = row->lo, hi = row->hi;
        GPU_UNROLL
        for (uint32_t n = 0; n < LATENT_KEPT; n++)
            GPU_UNROLL
        for (uint32_t e = 2 * h; e < 2 * h + 2; e++) {
            const uint32_t key = latent_key(w, n, e);
            const bool seen = key0 + key >= lo && key0 + key < hi && (there >> key & 1) != 0;
            if (!seen)
                s[n][e] = -GPU_INFINITY;
            else if (LATENT_SPECIAL && special)
                s[n][e] = latent_rule(run, shared, row, key0 + key, s[n][e] * run->softmax_scale);
            else
                s[n][e] *= scale;
        }
    }
    return false;
}

/* The largest score of each row, for the other warps that have keys of it. */
GPU_INLINE void latent_note_most(struct latent_shared *shared, const struct latent_warp *w,
                                 float s[LATENT_KEPT][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float peak = -GPU_INFINITY;
        GPU_UNROLL
        for (uint32_t n = 0; n < LATENT_KEPT; n++)
            peak = fmaxf(peak, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        peak = fmaxf(peak, gpu_shuffle_xor_f32(peak, 1));
        peak = fmaxf(peak, gpu_shuffle_xor_f32(peak, 2));
        if (lane % 4 == 0)
            shared->most[w->group][w->block * 16 + h * 8 + lane / 4] = peak;
    }
}
