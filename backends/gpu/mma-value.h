/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-body.h: P, and its product with the values of a tile. */

/* P in place of the scores; maxima, sums and results so far follow. */
GPU_INLINE void mma_softmax(float s[MMA_MI][MMA_KEYS / 8][4], float max[MMA_MI][2], float sum[MMA_MI][2],
                            float o[MMA_MI][MMA_DV / 8][4])
{
    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float peak = max[m][h];
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
            peak = fmaxf(peak, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
        peak = fmaxf(peak, gpu_shuffle_xor_f32(peak, 1));
        peak = fmaxf(peak, gpu_shuffle_xor_f32(peak, 2));
        const float base = peak == -GPU_INFINITY ? 0 : peak; /* NaN scores stay NaN */
        const float down = gpu_exp2(max[m][h] - base);
        float total = sum[m][h] * down;
        max[m][h] = peak;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
            GPU_UNROLL
        for (uint32_t e = 2 * h; e < 2 * h + 2; e++) {
            s[m][n][e] = gpu_exp2(s[m][n][e] - base);
            total += s[m][n][e];
        }
        sum[m][h] = total;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_DV / 8; n++) {
            o[m][n][2 * h] *= down;
            o[m][n][2 * h + 1] *= down;
        }
    }
}

/* P times V. Columns of 8-bit values come even ones first within 16. */
GPU_INLINE void mma_values(const struct gpu_run *run, const struct mma_shared *shared,
                           const unsigned char *values, uint32_t slot, uint32_t key0,
                           float p[MMA_MI][MMA_KEYS / 8][4], float o[MMA_MI][MMA_DV / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, matrix = lane / 8, in = lane % 8;
    const bool by_key = mma_by_key(run->problem.v_scale);

    if (by_key)
        GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t n = 0; n < MMA_KEYS / 8; n++)
        GPU_UNROLL
    for (uint32_t e = 0; e < 4; e++)
        if (p[m][n][e] != 0)
            p[m][n][e] *= shared->v_scale[slot][key0 + n * 8 + lane % 4 * 2 + e % 2];
    GPU_UNROLL
    for (uint32_t k = 0; k < MMA_KEYS / 16; k++) {
        uint32_t a[MMA_MI][4];
        GPU_UNROLL
        for (uint32_t m = 0; m < MMA_MI; m++)
            GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            a[m][i] = mma_pack(p[m][2 * k + i / 2][i % 2 * 2], p[m][2 * k + i / 2][i % 2 * 2 + 1]);
        const uint32_t row = key0 + k * 16 + (matrix & 1) * 8 + in;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_DV / 16; n++) {
            uint32_t r[4], b[2];
            if (!MMA_EIGHT)
                gpu_load_matrix4_trans(r, values + MMA_AT(row, n * 2 + (matrix >> 1), MMA_VB));
            else if (n % 2 == 0)
                gpu_load_matrix4_trans(r, values + MMA_AT(row, n + (matrix >> 1), MMA_VB));
            GPU_UNROLL
            for (uint32_t h = 0; h < 2; h++) {
                if (MMA_EIGHT) {
                    b[0] = gpu_pair8(run->v.dtype, r[n % 2 * 2], h, h + 2, true);
                    b[1] = gpu_pair8(run->v.dtype, r[n % 2 * 2 + 1], h, h + 2, true);
                } else {
                    b[0] = r[2 * h];
                    b[1] = r[2 * h + 1];
                }
                GPU_UNROLL
                for (uint32_t m = 0; m < MMA_MI; m++) {
                    if (MMA_EIGHT)
                        gpu_mma_bf16(o[m][2 * n + h], a[m], b);
                    else
                        mma_multiply(o[m][2 * n + h], a[m], b);
                }
            }
        }
    }
}
