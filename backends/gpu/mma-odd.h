/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-body.h: values that are no numbers, for the rows that see them and no others. */

/* Whether an element of 16 or 8 bits is an infinity or no number. */
GPU_INLINE bool mma_is_odd(uint32_t dtype, uint32_t code)
{
    if (!MMA_EIGHT)
        return MMA_BF16 ? (code & 0x7f80) == 0x7f80 : (code & 0x7c00) == 0x7c00;
    if (dtype == ATTN_INT8)
        return false;
    const float x = gpu_decode8(dtype, code);
    return !(x - x == 0);
}

/*
 * A row that does not see a key must not get its NaN, which a product with 0 would be. In tiles that some row
 * does not see whole, such values become 0 and are noted; rows that see them get theirs from mark.
 */
GPU_INLINE void mma_clean(const struct gpu_run *run, struct mma_shared *shared, unsigned char *values,
                          uint32_t tile)
{
    const uint32_t each = MMA_EIGHT ? 16 : 8, bits = MMA_EIGHT ? 8 : 16;

    for (uint32_t i = gpu_thread(); i < 64 * (MMA_VB / 16); i += 128) {
        const uint32_t row = i / (MMA_VB / 16), chunk = i % (MMA_VB / 16);
        unsigned char *at = values + MMA_AT(row, chunk, MMA_VB);
        struct gpu_u128 word = gpu_load_u128(at);
        uint32_t odd = 0;
        for (uint32_t e = 0; e < each; e++) {
            const uint32_t shift = e * bits % 32, mask = (1u << bits) - 1;
            if (!mma_is_odd(run->v.dtype, word.x[e * bits / 32] >> shift & mask))
                continue;
            odd |= 1u << e;
            word.x[e * bits / 32] &= ~(mask << shift);
        }
        for (uint32_t b = 0; b < each / 8; b++)
            shared->odd[row][chunk * (each / 8) + b] = (unsigned char)(odd >> 8 * b);
        if (odd == 0)
            continue;
        gpu_store_u128(at, word);
        shared->odd_tile = tile + 1;
    }
    gpu_barrier();
}

GPU_INLINE uint32_t mma_odd_bit(const struct mma_shared *shared, uint32_t key, uint32_t d)
{
    return shared->odd[key][d / 8] >> d % 8 & 1;
}

/* Results of rows that see a value that is no number. */
GPU_INLINE void mma_mark(const struct mma_shared *shared, uint32_t key0, float s[MMA_MI][MMA_KEYS / 8][4],
                         float o[MMA_MI][MMA_DV / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, one = MMA_BF16 ? 0x3f80 : 0x3c00;

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
                mma_multiply(seen[m], a, b);
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
