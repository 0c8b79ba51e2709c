/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of tile-body.h: P, its product with the values of a tile, and values that are no numbers. */

/* What P of a row's keys is summed to. Millions of tiles follow one another: what f32 cuts off adds up too.
 */
struct tile_sum {
    float high, low;
};

/*
 * Sums and results so far follow the maximum of the row. What its scores are compared with may be an old
 * maximum, as long as no score is more than TILE_SLACK above it in base 2: a row's own affair whatever its
 * neighbours do. Maxima seldom grow after the first tiles.
 */
GPU_INLINE void tile_rescale(const struct tile_rules *rules, uint32_t blocks, float s[4][TILE_ACC],
                             float *max, struct tile_sum *sum, float o[TILE_OUT][TILE_ACC])
{
    float top = s[0][0];

    GPU_UNROLL
    for (uint32_t n = 0; n < blocks; n++)
        GPU_UNROLL
    for (uint32_t i = 0; i < TILE_ACC; i++)
        top = __builtin_fmaxf(top, s[n][i]);
    top = tile_most(top);
    if (!(top > *max + rules->slack))
        return;
    const float down = gpu_exp2_fast(*max * rules->factor - top * rules->factor);
    *max = top;
    sum->high *= down;
    sum->low *= down;
    GPU_UNROLL
    for (uint32_t n = 0; n < TILE_OUT; n++)
        GPU_UNROLL
    for (uint32_t i = 0; i < TILE_ACC; i++)
        o[n][i] *= down;
}

/* What scores are compared with, in base 2: the maximum's P is 2^TILE_LIFT. */
GPU_INLINE float tile_base(float max, float factor)
{
    return max == -GPU_INFINITY ? 0 : max * factor - TILE_LIFT; /* NaN scores stay NaN */
}

/* P in place of the scores. */
GPU_INLINE void tile_weigh(const struct tile_rules *rules, uint32_t blocks, float max, float s[4][TILE_ACC],
                           struct tile_sum *sum)
{
    const float base = tile_base(max, rules->factor);
    float own = 0;

    GPU_UNROLL
    for (uint32_t n = 0; n < blocks; n++)
        GPU_UNROLL
    for (uint32_t i = 0; i < TILE_ACC; i++) {
        s[n][i] = gpu_exp2_fast(gpu_fma(s[n][i], rules->factor, -base));
        own += s[n][i];
    }
    const float high = sum->high + own;
    sum->low += own - (high - sum->high);
    sum->high = high;
}

/* P times scales of values. What a row does not see stays 0 whatever its scale. */
GPU_INLINE void tile_scale(const struct tile_shared *shared, uint32_t tile, uint32_t key0, bool plain,
                           uint32_t blocks, float p[4][TILE_ACC])
{
    GPU_UNROLL
    for (uint32_t n = 0; n < blocks; n++) {
        TILE_TURN();
        GPU_UNROLL
        for (uint32_t i = 0; i < TILE_ACC; i++)
            if (plain || p[n][i] != 0)
                p[n][i] *= shared->scale[1][tile % 2][tile_key(key0, n, i)];
    }
}

/* Of P of 16 keys, times V: block n of the results is about columns 16 n and on. P moves on by a block. */
GPU_INLINE void tile_value(const unsigned char *values, uint32_t block, uint32_t blocks, bool wide,
                           float p[4][TILE_ACC], float o[TILE_OUT][TILE_ACC])
{
    struct tile_b b;
    struct tile_full full;

    TILE_TURN();
    tile_round_b(&b, p[0], wide);
    tile_full_of(&full, &b);
    GPU_UNROLL
    for (uint32_t n = 0; n + 1 < blocks; n++)
        GPU_UNROLL
    for (uint32_t i = 0; i < TILE_ACC; i++)
        p[n][i] = p[n + 1][i];
#if TILE_ROLLED
    GPU_LOOP
    for (uint32_t first = 0; first < TILE_OUT; first += 2) {
        float own[2][TILE_ACC];
        GPU_UNROLL
        for (uint32_t n = 0; n < 2; n++) {
            GPU_UNROLL
            for (uint32_t i = 0; i < TILE_ACC; i++)
                own[n][i] = o[n][i];
            tile_multiply_columns(own[n], values, (first + n) * 16, block, &full, wide);
        }
        GPU_UNROLL
        for (uint32_t n = 0; n < TILE_OUT; n++)
            GPU_UNROLL
        for (uint32_t i = 0; i < TILE_ACC; i++)
            o[n][i] = n + 2 < TILE_OUT ? o[(n + 2) % TILE_OUT][i] : own[n + 2 - TILE_OUT][i];
    }
#else
    GPU_UNROLL
    for (uint32_t n = 0; n < TILE_OUT; n++)
        tile_multiply_columns(o[n], values, n * 16, block, &full, wide);
#endif
}

/* P of all of the wave's keys times V. */
GPU_INLINE void tile_values(const unsigned char *values, uint32_t block0, uint32_t blocks, bool wide,
                            float p[4][TILE_ACC], float o[TILE_OUT][TILE_ACC])
{
#if TILE_ROLLED
    GPU_LOOP
#else
    GPU_UNROLL
#endif
    for (uint32_t k = 0; k < blocks; k++)
        tile_value(values, block0 + k, blocks, wide, p, o);
}

/* Keys of the tile that the lane's row sees, a bit for each; scores are not P yet. */
GPU_INLINE uint64_t tile_seen(uint32_t key0, uint32_t blocks, float s[4][TILE_ACC])
{
    uint64_t seen = 0;

    GPU_UNROLL
    for (uint32_t n = 0; n < blocks; n++)
        GPU_UNROLL
    for (uint32_t i = 0; i < TILE_ACC; i++)
        seen |= (uint64_t)(s[n][i] != -GPU_INFINITY) << (n * 16 + i);
    seen <<= key0 + tile_thread() % TILE_WAVE / 16 * TILE_ACC;
    return (uint64_t)tile_any((uint32_t)(seen >> 32)) << 32 | tile_any((uint32_t)seen);
}

/*
 * A tile with values that are no numbers, which are zero in shared memory: rows that see one become NaN in
 * its column. All threads note which they are, from where they lie, and look for those that their row has
 * seen.
 */
GPU_INLINE void tile_mark(const struct gpu_run *run, struct tile_shared *shared, uint32_t tile, bool wide,
                          uint64_t seen, uint32_t column0, float o[TILE_OUT][TILE_ACC])
{
    GPU_LOOP
    for (uint32_t u = tile_thread(); u < TILE_QUAD_CHUNKS; u += TILE_THREADS) {
        const uint32_t row = u / (TILE_DV / 8);
        uint32_t quad[4 * TILE_CHUNK] = {0}, bits[8] = {0};
        tile_gather(run, shared, tile, true, row * 4, 4, u % (TILE_DV / 8), quad);
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            float scale = 1;
            if (tile_by_key(run->problem.v_scale))
                scale = shared->scale[1][tile % 2][row * 4 + i];
            GPU_UNROLL
            for (uint32_t c = 0; c < 8; c++) {
                const uint32_t word = c * TILE_SIZE / 4, bit = (c * TILE_SIZE % 4 + TILE_SIZE) * 8 - 1;
                const uint32_t odd = tile_odd(run->v.dtype, wide, quad[i * TILE_CHUNK + word]) >> bit & 1;
                bits[c] |= (scale != scale ? 1 : odd) << i;
            }
        }
        GPU_UNROLL
        for (uint32_t c = 0; c < 8; c++)
            shared->odd[u % (TILE_DV / 8) * 8 + c][row] = (unsigned char)bits[c];
    }
    uint32_t mine[4] = {0, 0, 0, 0}; /* four keys a byte, as they are noted */
    GPU_UNROLL
    for (uint32_t quad = 0; quad < GPU_TILE / 4; quad++)
        mine[quad / 4] |= (uint32_t)(seen >> quad * 4 & 15) << quad % 4 * 8;
    gpu_barrier();
    GPU_LOOP
    for (uint32_t n = 0; n < TILE_OUT; n++) {
        float x[TILE_ACC];
        GPU_UNROLL
        for (uint32_t i = 0; i < TILE_ACC; i++) {
            const struct gpu_u128 odd =
                gpu_load_u128(shared->odd[column0 + n * 16 + tile_lane() / 16 * TILE_ACC + i]);
            const uint32_t any =
                (odd.x[0] & mine[0]) | (odd.x[1] & mine[1]) | (odd.x[2] & mine[2]) | (odd.x[3] & mine[3]);
            x[i] = any != 0 ? GPU_NAN : o[0][i];
        }
        GPU_UNROLL
        for (uint32_t i = 0; i < TILE_ACC; i++) {
            GPU_UNROLL
            for (uint32_t j = 0; j + 1 < TILE_OUT; j++)
                o[j][i] = o[j + 1][i];
            o[TILE_OUT - 1][i] = x[i];
        }
    }
    gpu_barrier();
}
