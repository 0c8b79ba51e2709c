/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-thin.h: P, and its product with the values of a turn. */

/* By how much P, whose exponents count from a row's top, may grow before the top follows. */
#define MMA_ROOM 8.0f

/* Of a lane's two rows, in base 2: what exponents count from, what P is summed to, what scores are. */
struct mma_thin_peaks {
    float top[2]; /* minus infinity before the first key */
    float sum[2];
    float factor[2]; /* makes scores in base 2 of what the rules leave */
    float back[2];   /* makes products of queries of what were multiplied: a factor where it is no part of
                        `factor` */
};

GPU_INLINE struct mma_thin_peaks mma_thin_peaks_of(const struct mma_shared *shared,
                                                   const struct mma_rules *rules)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    struct mma_thin_peaks peaks;

    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        peaks.back[e] = MMA_SCALED ? shared->q_factor[lane % 4 * 2 + e] : 1;
        peaks.factor[e] = rules->special ? 1 : rules->factor * peaks.back[e];
        /* Any number keeps a hidden key hidden and a product of nothing nothing. */
        peaks.factor[e] = fminf(fmaxf(peaks.factor[e], 0x1p-126f), 0x1.fffffep127f);
        peaks.top[e] = -GPU_INFINITY;
        peaks.sum[e] = 0;
    }
    return peaks;
}

/* Columns of values within 16 that a lane has: those of 8 bits come even ones first. */
GPU_INLINE uint32_t mma_thin_column(uint32_t half)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    return MMA_EIGHT ? lane / 4 * 2 + half : lane / 4 + half * 8;
}

/* Tops follow, and sums and results so far with them. */
GPU_INLINE void mma_thin_raise(const float high[2], struct mma_thin_peaks *peaks, float o[MMA_DV / 16][4])
{
    float down[2];

    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        float top = high[e];
        GPU_UNROLL
        for (uint32_t step = 4; step < GPU_WARP; step *= 2)
            top = fmaxf(top, gpu_shuffle_xor_f32(top, step));
        top = fmaxf(peaks->top[e], top);
        down[e] = peaks->top[e] == -GPU_INFINITY ? 0 : gpu_exp2_fast(peaks->top[e] - top);
        peaks->top[e] = top;
        peaks->sum[e] *= down[e];
    }
    GPU_UNROLL
    for (uint32_t n = 0; n < MMA_DV / 16; n++)
        GPU_UNROLL
    for (uint32_t e = 0; e < 4; e++)
        o[n][e] *= down[e % 2];
}

/* P in place of the scores. Tops follow maxima only where P would grow too large: rows need not meet. */
GPU_INLINE void mma_thin_softmax(float s[MMA_KEYS / 16][4], struct mma_thin_peaks *peaks,
                                 float o[MMA_DV / 16][4])
{
    float high[2];
    bool above = false;

    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        high[e] = fmaxf(s[0][e], s[0][2 + e]);
        GPU_UNROLL
        for (uint32_t n = 1; n < MMA_KEYS / 16; n++)
            high[e] = fmaxf(high[e], fmaxf(s[n][e], s[n][2 + e]));
        high[e] *= peaks->factor[e];
        above = above || high[e] > peaks->top[e] + MMA_ROOM;
    }
    if (gpu_ballot(above) != 0)
        mma_thin_raise(high, peaks, o);
    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        const float base = peaks->top[e] == -GPU_INFINITY ? 0 : peaks->top[e]; /* NaN scores stay NaN */
        GPU_UNROLL
        for (uint32_t i = 0; i < MMA_KEYS / 8; i++) {
            float *p = &s[i / 2][i % 2 * 2 + e];
            *p = gpu_exp2_fast(gpu_fma(*p, peaks->factor[e], -base));
            peaks->sum[e] += *p;
        }
    }
}

/* Two rows' numbers of P for eight keys as the other operand has them. */
GPU_INLINE uint32_t mma_thin_turn(float low, float high, bool wide)
{
    return gpu_transpose_matrix(mma_pack(low, high, wide));
}

/* Values times P; `dtype`: of 8-bit values, `wide`: P is bf16. */
GPU_INLINE void mma_thin_value_tile(uint32_t dtype, bool wide, const unsigned char *values,
                                    float p[MMA_KEYS / 16][4], float o[MMA_DV / 16][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    /* Of 16-bit values, 16 columns of 16 keys; of codes, 32 columns. */
    const uint32_t own = MMA_EIGHT ? MMA_LANE(lane % 16, lane / 16, MMA_VB)
                                   : MMA_LANE(lane / 16 * 8 + lane % 8, lane / 8 % 2, MMA_VB);

    GPU_UNROLL
    for (uint32_t k = 0; k < MMA_KEYS / 16; k++) {
        uint32_t b[2], r[4];
        b[0] = mma_thin_turn(p[k][0], p[k][1], wide);
        b[1] = mma_thin_turn(p[k][2], p[k][3], wide);
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_DV / 16; n++) {
            uint32_t a[4];
            if (!MMA_EIGHT)
                gpu_load_matrix4_trans(a, values + MMA_BLOCK(own, k * 16, n * 2, MMA_VB));
            else if (n % 2 == 0)
                gpu_load_matrix4_trans(r, values + MMA_BLOCK(own, k * 16, n, MMA_VB));
            GPU_UNROLL
            for (uint32_t i = 0; MMA_EIGHT && i < 2; i++) {
                if (wide)
                    gpu_quad8_wide(dtype, r[n % 2 * 2 + i], a + 2 * i);
                else
                    gpu_quad8_across(dtype, r[n % 2 * 2 + i], a + 2 * i);
            }
            mma_multiply(o[n], a, b, wide);
        }
    }
}

/* Each type has code of its own; values with a scale for each key, which is P's here, too. */
GPU_INLINE void mma_thin_typed_values(uint32_t dtype, bool wide, const unsigned char *values,
                                      float p[MMA_KEYS / 16][4], float o[MMA_DV / 16][4])
{
    if (!MMA_EIGHT || dtype == ATTN_E4M3)
        mma_thin_value_tile(ATTN_E4M3, wide, values, p, o);
    else if (dtype == ATTN_E5M2)
        mma_thin_value_tile(ATTN_E5M2, wide, values, p, o);
    else
        mma_thin_value_tile(ATTN_INT8, wide, values, p, o);
}

GPU_INLINE void mma_thin_values(const struct gpu_run *run, const struct mma_shared *shared,
                                const unsigned char *values, uint32_t slot, uint32_t key0, bool plain,
                                float p[MMA_KEYS / 16][4], float o[MMA_DV / 16][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    if (!mma_by_key(run->problem.v_scale)) {
        mma_thin_typed_values(run->v.dtype, MMA_WIDE, values, p, o);
        return;
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < MMA_KEYS / 8; i++) {
        const float scale = shared->v_scale[slot][key0 + i * 8 + lane / 4];
        GPU_UNROLL
        for (uint32_t e = 0; e < 2; e++)
            if (plain || p[i / 2][i % 2 * 2 + e] != 0)
                p[i / 2][i % 2 * 2 + e] *= scale;
    }
    mma_thin_typed_values(run->v.dtype, true, values, p, o);
}

/* Results of rows that see a value that is no number. */
GPU_INLINE void mma_thin_mark(const struct mma_shared *shared, uint32_t key0, float s[MMA_KEYS / 16][4],
                              float o[MMA_DV / 16][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, one = MMA_WIDE ? 0x3f80 : 0x3c00;
    uint32_t seen[MMA_KEYS / 16][2];

    GPU_UNROLL
    for (uint32_t i = 0; i < MMA_KEYS / 8; i++)
        seen[i / 2][i % 2] =
            gpu_transpose_matrix((s[i / 2][i % 2 * 2] != -GPU_INFINITY ? one : 0u) |
                                 (s[i / 2][i % 2 * 2 + 1] != -GPU_INFINITY ? one << 16 : 0u));
    GPU_LOOP
    for (uint32_t n = 0; n < MMA_DV / 16; n++) {
        float marks[4] = {0, 0, 0, 0};
        GPU_UNROLL
        for (uint32_t k = 0; k < MMA_KEYS / 16; k++) {
            uint32_t a[4];
            GPU_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t key = key0 + k * 16 + i / 2 * 8 + lane % 4 * 2;
                const uint32_t d = n * 16 + mma_thin_column(i % 2);
                a[i] = mma_odd_bit(shared, key, d) * one | mma_odd_bit(shared, key + 1, d) * one << 16;
            }
            mma_multiply(marks, a, seen[k], MMA_WIDE);
        }
        GPU_UNROLL
        for (uint32_t j = 0; j < MMA_DV / 16; j++)
            GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            if (j == n && marks[e] > 0)
                o[j][e] = GPU_NAN;
    }
}
