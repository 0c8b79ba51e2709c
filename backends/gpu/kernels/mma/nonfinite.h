/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Infinite and NaN values: only rows that see them may get them. */
#ifndef ATTN_GPU_MMA_NONFINITE_H
#define ATTN_GPU_MMA_NONFINITE_H

#include "config.h"

/* Which elements of a word are not finite, a bit for each; they become 0. */
template <class C> GPU_INLINE uint32_t mma_clear_nonfinite_word(const struct gpu_run *run, uint32_t *word)
{
    if constexpr (C::CODES) {
        const uint32_t found = gpu_nonfinite8(mma_kv_dtype<C>(run), *word) >> 7;
        *word &= ~(found * 0xffu);
        return (found | found >> 7 | found >> 14 | found >> 21) & 15;
    }
    if constexpr (C::KV32) {
        const uint32_t found =
            (*word & 0x7fffffffu) + 0x1000 >= 0x7f800000u; /* its high part is not finite */
        *word = found != 0 ? 0 : *word;
        return found;
    }
    const bool bf16 = C::CONVERTS ? mma_p_bf16<C>(run) : C::BF16;
    const uint32_t least = bf16 ? 0x00800080u : 0x04000400u; /* carries out of a full exponent */
    const uint32_t found = (((*word & 0x7fff7fffu) + least) & 0x80008000u) >> 15;
    *word &= ~(found * 0xffffu);
    return (found | found >> 15) & 3;
}

GPU_INLINE bool mma_is_nonfinite_scale(float scale)
{
    return (gpu_f32_bits(scale) & 0x7fffffffu) >= 0x7f800000u;
}

/*
 * A row that does not see a key must not get its NaN, although NaN times a P of 0 is NaN. In masked tiles
 * that are checked (mma_begins_again) such values, and such scales, become 0 and are marked; rows that see
 * them get theirs from mma_spread_nonfinite.
 */
template <class C>
GPU_INLINE void mma_clear_nonfinite(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *values,
                                    uint32_t slot, uint32_t tile, uint32_t key0)
{
    const uint32_t each = 4 / C::KV_SIZE; /* elements of a word */
    const uint32_t chunks = C::GROUP_KEYS * (C::V_ROW / 16) / C::GROUP_THREADS;

    GPU_LOOP
    for (uint32_t first = 0; first < chunks; first += C::CHECK_CHUNKS) {
        struct gpu_u128 part[C::CHECK_CHUNKS];
        GPU_UNROLL
        for (uint32_t u = 0; u < C::CHECK_CHUNKS; u++) { /* loads are issued before the first is used */
            const uint32_t i = (first + u) * C::GROUP_THREADS + gpu_thread() % C::GROUP_THREADS;
            part[u] =
                gpu_load_u128(values + mma_swizzled<C>(i / (C::V_ROW / 16), i % (C::V_ROW / 16), C::V_ROW));
        }
        GPU_UNROLL
        for (uint32_t u = 0; u < C::CHECK_CHUNKS; u++) {
            const uint32_t i = (first + u) * C::GROUP_THREADS + gpu_thread() % C::GROUP_THREADS;
            const uint32_t row = i / (C::V_ROW / 16), chunk = i % (C::V_ROW / 16);
            uint32_t found = 0;
            GPU_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                found |= mma_clear_nonfinite_word<C>(run, &part[u].x[j]) << j * each;
            /* A NaN scale makes NaN of the whole vector, even where P has become 0. */
            if (mma_scale_per_key<C>(run->problem.v_scale) &&
                mma_is_nonfinite_scale(shared->v_scale[slot][mma_scale_at<C>(key0 + row)]))
                found = (1u << 4 * each) - 1;
            const uint32_t bytes = (each + 1) / 2;
            for (uint32_t b = 0; b < bytes; b++)
                shared->nonfinite[key0 + row][chunk * bytes + b] = (unsigned char)(found >> 8 * b);
            if (found == 0)
                continue;
            gpu_store_u128(values + mma_swizzled<C>(row, chunk, C::V_ROW), part[u]);
            shared->nonfinite_tile[key0 / C::GROUP_KEYS] = tile + 1;
        }
    }
    mma_group_barrier<C>();
    if (mma_scale_per_key<C>(run->problem.v_scale)) {
        float *scale = &shared->v_scale[slot][key0 + gpu_thread() % C::GROUP_KEYS];
        if (gpu_thread() % C::GROUP_THREADS < C::GROUP_KEYS && mma_is_nonfinite_scale(*scale))
            *scale = 0;
        mma_group_barrier<C>();
    }
}

/* Whether the value of a key in a column is marked, in shared memory, or where e4m3 has it. */
template <class C> GPU_INLINE uint32_t mma_is_nonfinite(const mma_shared<C> *shared, uint32_t key, uint32_t d)
{
    const uint32_t bits = C::KV32 ? 4 : 8;

    return shared->nonfinite[key][d / bits] >> d % bits & 1;
}
template <class C> GPU_INLINE uint32_t mma_is_nonfinite(const unsigned char *marks, uint32_t key, uint32_t d)
{
    return marks[key * (C::DV / 8) + d / 8] >> d % 8 & 1;
}

/*
 * Sets results to NaN where a row sees a key whose value is not finite. These are the positive elements of a
 * matrix product of ones and zeros: whether a row sees a key, times whether a value of the key is not finite.
 * `column0`: the warp's first column.
 */
template <class C, class Marks>
GPU_INLINE void mma_spread_nonfinite(const Marks *marks, uint32_t key0, uint32_t column0,
                                     mma_score_fragments<C> s, mma_out_fragments<C> o)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, one = C::BF16_MMA ? 0x3f80 : 0x3c00;

    GPU_LOOP
    for (uint32_t n = 0; n < C::WARP_DV / 8; n++) {
        const uint32_t d = column0 + (C::KV32    ? n / 4 * 32 + lane / 4 * 4 + n % 4
                                      : C::CODES ? n / 2 * 16 + lane / 4 * 2 + n % 2
                                                 : n * 8 + lane / 4);
        float seen[C::M_FRAGMENTS][4];
        GPU_UNROLL
        for (uint32_t m = 0; m < C::M_FRAGMENTS; m++)
            seen[m][0] = seen[m][1] = seen[m][2] = seen[m][3] = 0;
        GPU_UNROLL
        for (uint32_t k = 0; k < C::GROUP_KEYS / 16; k++) {
            uint32_t b[2], a[4];
            GPU_UNROLL
            for (uint32_t h = 0; h < 2; h++) {
                const uint32_t key = key0 + k * 16 + h * 8 + lane % 4 * 2;
                b[h] = mma_is_nonfinite<C>(marks, key, d) * one | mma_is_nonfinite<C>(marks, key + 1, d) * one
                                                                      << 16;
            }
            GPU_UNROLL
            for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
                GPU_UNROLL
                for (uint32_t i = 0; i < 4; i++)
                    a[i] = (s[m][2 * k + i / 2][i % 2 * 2] != -GPU_INFINITY ? one : 0u) |
                           (s[m][2 * k + i / 2][i % 2 * 2 + 1] != -GPU_INFINITY ? one << 16 : 0u);
                mma_multiply(seen[m], a, b, C::BF16_MMA);
            }
        }
        GPU_UNROLL
        for (uint32_t j = 0; j < C::WARP_DV / 8; j++) {
            GPU_UNROLL
            for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
                GPU_UNROLL
                for (uint32_t e = 0; e < 4; e++)
                    if (j == n && seen[m][e] > 0)
                        o[m][j][e] = GPU_NAN;
            }
        }
    }
}

#endif
