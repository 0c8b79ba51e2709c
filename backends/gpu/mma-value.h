/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-body.h: P, and its product with the values of a tile. */

/* A lane's largest scores of its rows. */
GPU_INLINE void mma_peaks(float s[MMA_MI][MMA_KEYS / 8][4], float peak[MMA_MI][2])
{
    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float other = s[m][0][2 * h + 1];
        peak[m][h] = s[m][0][2 * h];
        GPU_UNROLL
        for (uint32_t n = 1; n < MMA_KEYS / 8; n++) {
            peak[m][h] = fmaxf(peak[m][h], s[m][n][2 * h]);
            other = fmaxf(other, s[m][n][2 * h + 1]);
        }
        peak[m][h] = fmaxf(peak[m][h], other);
    }
}

/*
 * Sums and results so far follow the maxima. What a row's scores are compared with is its maximum, but an old
 * one serves as long as no score is more than `slack` above it: that is 2^8 in P, which all types hold, and a
 * row's own affair whatever its neighbours do. Maxima seldom grow after the first tiles.
 */
GPU_INLINE void mma_rescale(float peak[MMA_MI][2], float max[MMA_MI][2], float sum[MMA_MI][2],
                            float o[MMA_MI][MMA_DV / 8][4], float factor, float slack)
{
    bool grown = false;

    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++)
        grown = grown || peak[m][h] > max[m][h] + slack;
    if (gpu_ballot(grown) != 0)
        GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float top = fmaxf(peak[m][h], gpu_shuffle_xor_f32(peak[m][h], 1));
        top = fmaxf(top, gpu_shuffle_xor_f32(top, 2));
        const bool own = top > max[m][h] + slack;
        const float down = own ? gpu_exp2_fast(max[m][h] * factor - top * factor) : 1;
        sum[m][h] *= down;
        max[m][h] = own ? top : max[m][h];
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_DV / 8; n++) {
            o[m][n][2 * h] *= down;
            o[m][n][2 * h + 1] *= down;
        }
    }
}

/* What scores are compared with, in base 2. */
GPU_INLINE float mma_base(float max, float factor)
{
    return max == -GPU_INFINITY ? 0 : max * factor; /* NaN scores stay NaN */
}

/* P in place of the scores. */
GPU_INLINE void mma_weigh(float s[MMA_MI][MMA_KEYS / 8][4], float max[MMA_MI][2], float sum[MMA_MI][2],
                          float factor)
{
    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const float base = mma_base(max[m][h], factor);
        float total = sum[m][h], other = 0;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_KEYS / 8; n++) {
            GPU_UNROLL
            for (uint32_t e = 2 * h; e < 2 * h + 2; e++)
                s[m][n][e] = gpu_exp2_fast(gpu_fma(s[m][n][e], factor, -base));
            total += s[m][n][2 * h];
            other += s[m][n][2 * h + 1];
        }
        sum[m][h] = total + other;
    }
}

/* Two numbers of P, of those that a lane has of 16 keys: word `i` of the block m of rows. */
GPU_INLINE uint32_t mma_weigh_two(float s[MMA_MI][MMA_KEYS / 8][4], uint32_t k, uint32_t m, uint32_t i,
                                  float base[MMA_MI][2], float sum[MMA_MI][2], float factor)
{
    const uint32_t n = 2 * k + i / 2, h = i % 2;
    const float low = gpu_exp2_fast(gpu_fma(s[m][n][2 * h], factor, -base[m][h]));
    const float high = gpu_exp2_fast(gpu_fma(s[m][n][2 * h + 1], factor, -base[m][h]));

    sum[m][h] += low + high;
    return mma_pack(low, high, MMA_WIDE);
}

/* P times V, where P of 16 keys is made while the 16 before are multiplied. */
GPU_INLINE void mma_value_stream(const unsigned char *values, float s[MMA_MI][MMA_KEYS / 8][4],
                                 float max[MMA_MI][2], float sum[MMA_MI][2], float o[MMA_MI][MMA_DV / 8][4],
                                 float factor, struct mma_fetching *fetch)
{
    /* Of the half that is fetched meanwhile. */
    const uint32_t bytes = MMA_HALVES % 2 == 0 ? MMA_KB : MMA_VB, each = MMA_EVERY(MMA_KEYS / 16, bytes);
    const uint32_t lane = gpu_thread() % GPU_WARP, own = MMA_LANE(lane % 16, lane / 16, MMA_VB);
    const uint32_t words = MMA_MI * 4, steps = MMA_DV / 16;
    float base[MMA_MI][2];
    uint32_t a[2][MMA_MI][4];

    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++)
        base[m][h] = mma_base(max[m][h], factor);
    GPU_UNROLL
    for (uint32_t w = 0; w < words; w++)
        a[0][w / 4][w % 4] = mma_weigh_two(s, 0, w / 4, w % 4, base, sum, factor);
    GPU_UNROLL
    for (uint32_t k = 0; k < MMA_KEYS / 16; k++) {
        GPU_UNROLL
        for (uint32_t n = 0; n < steps; n++) {
            uint32_t r[4];
            if (k % each == 0 && n == 0)
                mma_ask(fetch, k / each);
            if (k % each == 0 && n == steps / 2)
                mma_send(fetch, bytes, k / each);
            gpu_load_matrix4_trans(r, values + MMA_BLOCK(own, k * 16, n * 2, MMA_VB));
            GPU_UNROLL
            for (uint32_t h = 0; h < 2; h++)
                GPU_UNROLL
            for (uint32_t m = 0; m < MMA_MI; m++)
                mma_multiply(o[m][2 * n + h], a[k % 2][m], r + 2 * h, MMA_WIDE);
            GPU_UNROLL
            for (uint32_t w = n * words / steps; k + 1 < MMA_KEYS / 16 && w < (n + 1) * words / steps; w++)
                a[(k + 1) % 2][w / 4][w % 4] = mma_weigh_two(s, k + 1, w / 4, w % 4, base, sum, factor);
        }
    }
}

/* P times V; `dtype`: of 8-bit values, `wide`: P is bf16. Columns of 8-bit values come even ones first within
 * 16. */
GPU_INLINE void mma_value_tile(uint32_t dtype, bool wide, const unsigned char *values,
                               float p[MMA_MI][MMA_KEYS / 8][4], float o[MMA_MI][MMA_DV / 8][4],
                               struct mma_fetching *fetch)
{
    /* Of the half that is fetched meanwhile. */
    const uint32_t bytes = MMA_HALVES % 2 == 0 ? MMA_KB : MMA_VB, each = MMA_EVERY(MMA_KEYS / 16, bytes);
    const uint32_t lane = gpu_thread() % GPU_WARP, own = MMA_LANE(lane % 16, lane / 16, MMA_VB);

    GPU_UNROLL
    for (uint32_t k = 0; k < MMA_KEYS / 16; k++) {
        uint32_t a[MMA_MI][4], r[4];
        if (MMA_RB == 4 && k % each == 0)
            mma_ask(fetch, k / each);
        GPU_UNROLL
        for (uint32_t m = 0; m < MMA_MI; m++)
            GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            a[m][i] = mma_pack(p[m][2 * k + i / 2][i % 2 * 2], p[m][2 * k + i / 2][i % 2 * 2 + 1], wide);
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_DV / 16; n++) {
            uint32_t b[2][2]; /* even and odd columns, or lower and upper ones; keys 0 to 7, 8 to 15 */
            if (!MMA_EIGHT)
                gpu_load_matrix4_trans(r, values + MMA_BLOCK(own, k * 16, n * 2, MMA_VB));
            else if (n % 2 == 0)
                gpu_load_matrix4_trans(r, values + MMA_BLOCK(own, k * 16, n, MMA_VB));
            GPU_UNROLL
            for (uint32_t i = 0; i < 2; i++) {
                uint32_t number[2] = {r[i], r[2 + i]};
                if (MMA_EIGHT)
                    gpu_quad8_across(dtype, r[n % 2 * 2 + i], number);
                GPU_UNROLL
                for (uint32_t h = 0; h < 2; h++)
                    b[h][i] = MMA_EIGHT && wide ? gpu_pack_bf16(gpu_f16_to_f32((uint16_t)number[h]),
                                                                gpu_f16_to_f32((uint16_t)(number[h] >> 16)))
                                                : number[h];
            }
            GPU_UNROLL
            for (uint32_t h = 0; h < 2; h++)
                GPU_UNROLL
            for (uint32_t m = 0; m < MMA_MI; m++)
                mma_multiply(o[m][2 * n + h], a[m], b[h], wide);
        }
        if (MMA_RB == 4 && k % each == 0)
            mma_send(fetch, bytes, k / each);
    }
}

/* Each type has code of its own; values with a scale for each key, which is P's here, have the longest. */
GPU_INLINE void mma_values(const struct gpu_run *run, const struct mma_shared *shared,
                           const unsigned char *values, uint32_t slot, uint32_t key0, bool plain,
                           float p[MMA_MI][MMA_KEYS / 8][4], float max[MMA_MI][2], float sum[MMA_MI][2],
                           float factor, float o[MMA_MI][MMA_DV / 8][4], struct mma_fetching *fetch)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, dtype = run->v.dtype;

    if (MMA_RB == 4 && !MMA_EIGHT) {
        mma_value_stream(values, p, max, sum, o, factor, fetch);
        return;
    }
    mma_weigh(p, max, sum, factor);
    if (!MMA_EIGHT) {
        mma_value_tile(dtype, MMA_WIDE, values, p, o, fetch);
        return;
    }
    if (!mma_by_key(run->problem.v_scale)) {
        if (dtype == ATTN_E4M3)
            mma_value_tile(ATTN_E4M3, false, values, p, o, fetch);
        else
            mma_value_tile(dtype, false, values, p, o, fetch);
        return;
    }
    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
        GPU_UNROLL
    for (uint32_t e = 0; e < 4; e++)
        if (plain || p[m][n][e] != 0)
            p[m][n][e] *= shared->v_scale[slot][key0 + n * 8 + lane % 4 * 2 + e % 2];
    mma_value_tile(dtype, true, values, p, o, fetch);
}
