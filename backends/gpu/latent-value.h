/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of latent-body.h: P, and its product with the values of a tile. */

/* The running maximum follows only jumps: 2^8 costs no precision, and results are seldom rescaled. */
#define LATENT_SLACK 8.0f

/* Byte of 8 keys of a row of P, in the last 64 columns of the tile. */
GPU_INLINE uint32_t latent_p_at(uint32_t row, uint32_t chunk)
{
    return row * LATENT_PITCH + 1024u + ((chunk ^ (row & 7u)) * 16u);
}

/*
 * A row that does not see a key must not get its NaN, which a product with 0 would be. Infinities and NaN of
 * a tile that some row does not see whole become 0: a row that sees them has a P of NaN by its score already.
 */
GPU_INLINE void latent_clean(unsigned char *keys, bool bf16)
{
    const uint32_t odd = bf16 ? 0x7f80 : 0x7c00;

    GPU_LOOP
    for (uint32_t i = gpu_thread(); i < 64 * (GPU_LATENT_VO / 8); i += GPU_LATENT_THREADS) {
        unsigned char *at = keys + LATENT_AT(i / (GPU_LATENT_VO / 8), i % (GPU_LATENT_VO / 8));
        struct gpu_u128 word = gpu_load_u128(at);
        bool any = false;
        GPU_UNROLL
        for (uint32_t e = 0; e < 8; e++) {
            const uint32_t code = word.x[e / 2] >> (16 * (e % 2));
            if ((code & odd) != odd)
                continue;
            any = true;
            word.x[e / 2] &= e % 2 != 0 ? 0xffffu : 0xffff0000u;
        }
        if (any)
            gpu_store_u128(at, word);
    }
}

/* P of the scores, into shared memory; maxima and sums so far follow. */
GPU_INLINE void latent_softmax(struct latent_shared *shared, unsigned char *keys, const struct latent_warp *w,
                               bool bf16, float s[LATENT_KEPT][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t row = w->block * 16 + h * 8 + lane / 4;
        const float before = shared->peak[row];
        float peak = -GPU_INFINITY;
        GPU_UNROLL
        for (uint32_t i = 0; i < LATENT_WARPS / LATENT_BLOCKS; i++)
            peak = fmaxf(peak, shared->most[i][row]);
        peak = peak > before + LATENT_SLACK ? peak : before;
        const float base = peak == -GPU_INFINITY ? 0 : peak; /* NaN scores stay NaN */
        const float down = peak == before ? 1 : gpu_exp2(before - base);
        if (w->group == 0 && lane % 4 == 0) {
            shared->down[row] = down;
            shared->next[row] = peak;
        }
        float total = 0;
        GPU_UNROLL
        for (uint32_t n = 0; n < LATENT_KEPT; n++) {
            const float p0 = gpu_exp2(s[n][2 * h] - base), p1 = gpu_exp2(s[n][2 * h + 1] - base);
            const uint32_t key = latent_key(w, n, 0);
            total += p0 + p1;
            *(uint32_t *)(void *)(keys + latent_p_at(row, key / 8) + key % 8 * 2) =
                bf16 ? gpu_pack_bf16(p0, p1) : gpu_pack_f16(p0, p1);
        }
        shared->sum[h][gpu_thread()] = shared->sum[h][gpu_thread()] * down + total;
    }
}

/* P times this warp's 64 columns of the values. */
GPU_INLINE void latent_values(const struct latent_shared *shared, const unsigned char *stages, uint32_t keys,
                              bool bf16, float o[LATENT_BLOCKS][8][4])
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t matrix = lane / 8, in = lane % 8;
    const uint32_t row = (matrix & 1) * 8 + in;
    const uint32_t p = keys + latent_p_at(row, matrix >> 1),
                   v = keys + LATENT_AT(row, warp * 8 + (matrix >> 1));
    float least = 1;

    GPU_UNROLL
    for (uint32_t i = 0; i < LATENT_ROWS; i += GPU_WARP)
        least = fminf(least, shared->down[i + (LATENT_ROWS < GPU_WARP ? lane % 16 : lane)]);
    if (gpu_ballot(least < 1) != 0) {
        GPU_UNROLL
        for (uint32_t m = 0; m < LATENT_BLOCKS; m++)
            GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const float down = shared->down[m * 16 + h * 8 + lane / 4];
            GPU_UNROLL
            for (uint32_t n = 0; n < 8; n++) {
                o[m][n][2 * h] *= down;
                o[m][n][2 * h + 1] *= down;
            }
        }
    }
    GPU_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t a[LATENT_BLOCKS][4];
        GPU_UNROLL
        for (uint32_t m = 0; m < LATENT_BLOCKS; m++)
            gpu_load_matrix4(a[m], stages + (p ^ (k * 32)) + m * 16 * LATENT_PITCH);
        GPU_UNROLL
        for (uint32_t n = 0; n < 4; n++) {
            uint32_t r[4];
            gpu_load_matrix4_trans(r, stages + (v ^ (n * 32)) + k * 16 * LATENT_PITCH);
            GPU_UNROLL
            for (uint32_t m = 0; m < LATENT_BLOCKS; m++) {
                latent_multiply(bf16, o[m][2 * n], a[m], r);
                latent_multiply(bf16, o[m][2 * n + 1], a[m], r + 2);
            }
        }
    }
}
