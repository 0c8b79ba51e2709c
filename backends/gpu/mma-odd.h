/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-body.h: values that are no numbers, for the rows that see them and no others. */

/* Elements of a word that are infinite or no number, a bit for each; they become 0. */
GPU_INLINE uint32_t mma_odd_word(const struct gpu_run *run, uint32_t *word)
{
    if (MMA_EIGHT) {
        const uint32_t odd = gpu_odd8(run->v.dtype, *word) >> 7;
        *word &= ~(odd * 0xffu);
        return (odd | odd >> 7 | odd >> 14 | odd >> 21) & 15;
    }
    const uint32_t least = MMA_BF16 ? 0x00800080u : 0x04000400u; /* carries out of a full exponent */
    const uint32_t odd = (((*word & 0x7fff7fffu) + least) & 0x80008000u) >> 15;
    *word &= ~(odd * 0xffffu);
    return (odd | odd >> 15) & 3;
}

/* Chunks of a thread at once. */
#define MMA_CLEAN (MMA_RB == 4 && !MMA_EIGHT ? 4 : 1)

/*
 * A row that does not see a key must not get its NaN, which a product with 0 would be. In tiles that some row
 * does not see whole, such values become 0 and are noted; rows that see them get theirs from mark.
 */
GPU_INLINE void mma_clean(const struct gpu_run *run, struct mma_shared *shared, unsigned char *values,
                          uint32_t slot, uint32_t tile, uint32_t key0)
{
    const uint32_t each = 4 / MMA_SIZE; /* elements of a word */
    const uint32_t turns = MMA_KEYS * (MMA_VB / 16) / MMA_TEAM;

    GPU_LOOP
    for (uint32_t turn = 0; turn < turns; turn += MMA_CLEAN) {
        struct gpu_u128 part[MMA_CLEAN];
        GPU_UNROLL
        for (uint32_t u = 0; u < MMA_CLEAN; u++) { /* all are asked for before the first is used */
            const uint32_t i = (turn + u) * MMA_TEAM + gpu_thread() % MMA_TEAM;
            part[u] = gpu_load_u128(values + MMA_AT(i / (MMA_VB / 16), i % (MMA_VB / 16), MMA_VB));
        }
        GPU_UNROLL
        for (uint32_t u = 0; u < MMA_CLEAN; u++) {
            const uint32_t i = (turn + u) * MMA_TEAM + gpu_thread() % MMA_TEAM;
            const uint32_t row = i / (MMA_VB / 16), chunk = i % (MMA_VB / 16);
            uint32_t odd = 0;
            GPU_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                odd |= mma_odd_word(run, &part[u].x[j]) << j * each;
            /* A scale that is no number makes none of a whole vector, where P has gone under too. */
            if (mma_by_key(run->problem.v_scale) &&
                (gpu_f32_bits(shared->v_scale[slot][key0 + row]) & 0x7fffffffu) > 0x7f800000u)
                odd = (1u << 4 * each) - 1;
            for (uint32_t b = 0; b < each / 2; b++)
                shared->odd[key0 + row][chunk * (each / 2) + b] = (unsigned char)(odd >> 8 * b);
            if (odd == 0)
                continue;
            gpu_store_u128(values + MMA_AT(row, chunk, MMA_VB), part[u]);
            shared->odd_tile[key0 / MMA_KEYS] = tile + 1;
        }
    }
    mma_wait();
}

GPU_INLINE uint32_t mma_odd_bit(const struct mma_shared *shared, uint32_t key, uint32_t d)
{
    return shared->odd[key][d / 8] >> d % 8 & 1;
}

/* Results of rows that see a value that is no number. */
GPU_INLINE void mma_mark(const struct mma_shared *shared, uint32_t key0, float s[MMA_MI][MMA_KEYS / 8][4],
                         float o[MMA_MI][MMA_DV / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, one = MMA_WIDE ? 0x3f80 : 0x3c00;

    GPU_LOOP
    for (uint32_t n = 0; n < MMA_DV / 8; n++) {
        const uint32_t d = MMA_EIGHT ? n / 2 * 16 + lane / 4 * 2 + n % 2 : n * 8 + lane / 4;
        float seen[MMA_MI][4];
        GPU_UNROLL
        for (uint32_t m = 0; m < MMA_MI; m++)
            seen[m][0] = seen[m][1] = seen[m][2] = seen[m][3] = 0;
        GPU_UNROLL
        for (uint32_t k = 0; k < MMA_KEYS / 16; k++) {
            uint32_t b[2], a[4];
            GPU_UNROLL
            for (uint32_t h = 0; h < 2; h++) {
                const uint32_t key = key0 + k * 16 + h * 8 + lane % 4 * 2;
                b[h] = mma_odd_bit(shared, key, d) * one | mma_odd_bit(shared, key + 1, d) * one << 16;
            }
            GPU_UNROLL
            for (uint32_t m = 0; m < MMA_MI; m++) {
                GPU_UNROLL
                for (uint32_t i = 0; i < 4; i++)
                    a[i] = (s[m][2 * k + i / 2][i % 2 * 2] != -GPU_INFINITY ? one : 0u) |
                           (s[m][2 * k + i / 2][i % 2 * 2 + 1] != -GPU_INFINITY ? one << 16 : 0u);
                mma_multiply(seen[m], a, b, MMA_WIDE);
            }
        }
        GPU_UNROLL
        for (uint32_t j = 0; j < MMA_DV / 8; j++)
            GPU_UNROLL
        for (uint32_t m = 0; m < MMA_MI; m++)
            GPU_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            if (j == n && seen[m][e] > 0)
                o[m][j][e] = GPU_NAN;
    }
}
