/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-body.h: P, and its product with the values of a tile. */

/* P in place of the scores; maxima, sums and results so far follow. */
GPU_INLINE void mma_softmax(float s[MMA_MI][MMA_KEYS / 8][4], float max[MMA_MI][2], float sum[MMA_MI][2],
                            float o[MMA_MI][MMA_DV / 8][4], float factor)
{
    float base[MMA_MI][2], down[MMA_MI][2];
    bool grown = false;

    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float peak = max[m][h], other = -GPU_INFINITY;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_KEYS / 8; n++) {
            peak = fmaxf(peak, s[m][n][2 * h]);
            other = fmaxf(other, s[m][n][2 * h + 1]);
        }
        peak = fmaxf(peak, other);
        peak = fmaxf(peak, gpu_shuffle_xor_f32(peak, 1));
        peak = fmaxf(peak, gpu_shuffle_xor_f32(peak, 2));
        base[m][h] = peak == -GPU_INFINITY ? 0 : peak * factor; /* NaN scores stay NaN */
        down[m][h] = gpu_exp2_fast(max[m][h] * factor - base[m][h]);
        grown = grown || peak != max[m][h];
        max[m][h] = peak;
    }
    /* Maxima seldom grow after the first tiles. */
    if (gpu_ballot(grown) != 0)
        GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t n = 0; n < MMA_DV / 8; n++)
        GPU_UNROLL
    for (uint32_t e = 0; e < 4; e++)
        o[m][n][e] *= down[m][e / 2];
    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float total = sum[m][h] * down[m][h], other = 0;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_KEYS / 8; n++) {
            GPU_UNROLL
            for (uint32_t e = 2 * h; e < 2 * h + 2; e++)
                s[m][n][e] = gpu_exp2_fast(gpu_fma(s[m][n][e], factor, -base[m][h]));
            total += s[m][n][2 * h];
            other += s[m][n][2 * h + 1];
        }
        sum[m][h] = total + other;
    }
}

/* P times V; `dtype`: of 8-bit values, `wide`: P is bf16. Columns of 8-bit values come even ones first within
 * 16. */
GPU_INLINE void mma_value_tile(uint32_t dtype, bool wide, const unsigned char *values,
                               float p[MMA_MI][MMA_KEYS / 8][4], float o[MMA_MI][MMA_DV / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, own = MMA_LANE(lane % 16, lane / 16, MMA_VB);

    GPU_UNROLL
    for (uint32_t k = 0; k < MMA_KEYS / 16; k++) {
        uint32_t a[MMA_MI][4], r[4];
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
    }
}

/* Each type has code of its own; values with a scale for each key, which is P's here, have the longest. */
GPU_INLINE void mma_values(const struct gpu_run *run, const struct mma_shared *shared,
                           const unsigned char *values, uint32_t slot, uint32_t key0, bool plain,
                           float p[MMA_MI][MMA_KEYS / 8][4], float o[MMA_MI][MMA_DV / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, dtype = run->v.dtype;

    if (!MMA_EIGHT) {
        mma_value_tile(dtype, MMA_WIDE, values, p, o);
        return;
    }
    if (!mma_by_key(run->problem.v_scale)) {
        if (dtype == ATTN_E4M3)
            mma_value_tile(ATTN_E4M3, false, values, p, o);
        else
            mma_value_tile(dtype, false, values, p, o);
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
    mma_value_tile(dtype, true, values, p, o);
}
