/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Matrix instructions. For each: the lanes' registers are taken apart into two matrices by the layout of the
 * generation, multiplied with sums in f32, and put back. EXEC does not matter to them.
 */
#include "emu-half.h"
#include "emu-wave.h"

static inline float element(uint32_t word, uint32_t odd, bool bf16)
{
    uint32_t u = odd ? word >> 16 : word & 0xffff;
    return bf16 ? f32_of_bf16(u) : f32_of_f16(u);
}

static inline uint32_t word_of(const struct wave *w, const struct operand *s, uint32_t reg, uint32_t lane)
{
    if (s->kind == AT_VGPR)
        return w->v[s->offset + reg * EMU_ROW + lane];
    return s->kind == AT_SGPR ? w->s[s->index] : (uint32_t)s->value;
}

/* Rows of a, columns of b, one after the other with k along; d and c as [m][n]. */
static void multiply(const float *restrict a, const float *restrict bt, float *restrict d, uint32_t m,
                     uint32_t n, uint32_t k)
{
    float b[32 * 32]; /* k along the rows, so that loops run along n */
    for (uint32_t q = 0; q < n; q++)
        for (uint32_t j = 0; j < k; j++)
            b[j * n + q] = bt[q * k + j];
    for (uint32_t p = 0; p < m; p++) {
        for (uint32_t j = 0; j < k; j++) {
            float x = a[p * k + j];
            for (uint32_t q = 0; q < n; q++)
                d[p * n + q] += x * b[j * n + q];
        }
    }
}

/* Inputs of MFMA: lane l has row l % m and the k / (64 / m) elements from that many times l / m on. */
static void take_mfma(const struct wave *w, const struct operand *s, uint32_t m, uint32_t k, bool bf16,
                      float *to)
{
    uint32_t each = k * m / 64;
    for (uint32_t l = 0; l < 64; l++)
        for (uint32_t j = 0; j < each; j++)
            to[l % m * k + l / m * each + j] = element(word_of(w, s, j / 2, l), j & 1, bf16);
}

/* Results of MFMA: groups of four rows, first along the lanes, then along the registers. */
static void mfma(struct wave *w, const struct op *o, uint32_t m, uint32_t k, bool bf16)
{
    float a[32 * 32], b[32 * 32], d[32 * 32];
    uint32_t registers = m * m / 64, spread = 64 / m;
    take_mfma(w, &o->at[1], m, k, bf16, a);
    take_mfma(w, &o->at[2], m, k, bf16, b);
    for (uint32_t l = 0; l < 64; l++) {
        for (uint32_t i = 0; i < registers; i++) {
            uint32_t row = i / 4 * 4 * spread + l / m * 4 + i % 4;
            d[row * m + l % m] = f32_of_bits(word_of(w, &o->at[3], i, l));
        }
    }
    multiply(a, b, d, m, m, k);
    uint32_t *to = w->v + o->at[0].offset;
    for (uint32_t l = 0; l < 64; l++) {
        for (uint32_t i = 0; i < registers; i++) {
            uint32_t row = i / 4 * 4 * spread + l / m * 4 + i % 4;
            to[i * EMU_ROW + l] = bits_of_f32(d[row * m + l % m]);
        }
    }
}

#define MFMA(name, m, k, bf16)                                                                               \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        mfma(w, o, m, k, bf16);                                                                              \
    }
MFMA(f16_16x16x16, 16, 16, false)
MFMA(bf16_16x16x16, 16, 16, true)
MFMA(bf16_16x16x8, 16, 8, true)
MFMA(f16_16x16x32, 16, 32, false)
MFMA(bf16_16x16x32, 16, 32, true)
MFMA(f16_32x32x8, 32, 8, false)
MFMA(bf16_32x32x8, 32, 8, true)
MFMA(bf16_32x32x4, 32, 4, true)
MFMA(f16_32x32x16, 32, 16, false)
MFMA(bf16_32x32x16, 32, 16, true)

/* gfx11: every 16 lanes have the whole of a row; the compiler sees to it that they are the same.
 * gfx12: lanes 16 to 31 have the second half of k. */
static bool take_wmma(struct wave *w, const struct operand *s, bool bf16, float *to)
{
    bool split = w->arch >= 0x1200;
    uint32_t each = split ? w->lanes == 32 ? 8 : 4 : 16;
    for (uint32_t l = 0; l < w->lanes; l++) {
        for (uint32_t j = 0; j < each; j++) {
            uint32_t word = word_of(w, s, j / 2, l);
            if (split)
                to[l % 16 * 16 + l / 16 * each + j] = element(word, j & 1, bf16);
            else if (l < 16)
                to[l * 16 + j] = element(word, j & 1, bf16);
            else if (word != word_of(w, s, j / 2, l % 16)) {
                emu_fail(w, EMU_UNMODELLED, "lanes %u and %u differ in an operand that they must repeat",
                         l % 16, l);
                return false;
            }
        }
    }
    return true;
}

/* The row that register i of lane l has. */
static uint32_t wmma_row(const struct wave *w, uint32_t i, uint32_t l)
{
    return w->arch >= 0x1200 ? l / 16 * (256 / w->lanes) + i : w->lanes / 16 * i + l / 16;
}

static void wmma(struct wave *w, const struct op *o)
{
    float a[16 * 16], b[16 * 16], d[16 * 16];
    bool bf16 = o->size == 1;
    uint32_t registers = 256 / w->lanes;
    if (!take_wmma(w, &o->at[1], bf16, a) || !take_wmma(w, &o->at[2], bf16, b))
        return;
    for (uint32_t l = 0; l < w->lanes; l++)
        for (uint32_t i = 0; i < registers; i++)
            d[wmma_row(w, i, l) * 16 + l % 16] = f32_of_bits(word_of(w, &o->at[3], i, l));
    multiply(a, b, d, 16, 16, 16);
    uint32_t *to = w->v + o->at[0].offset;
    for (uint32_t l = 0; l < w->lanes; l++)
        for (uint32_t i = 0; i < registers; i++)
            to[i * EMU_ROW + l] = bits_of_f32(d[wmma_row(w, i, l) * 16 + l % 16]);
}

#define M(name, run)                                                                                         \
    {                                                                                                        \
        name, "aaaf", run, E_SCALAR, 0                                                                       \
    }
static const struct entry entries[] = {
    M("v_mfma_f32_16x16x16f16", f16_16x16x16),
    M("v_mfma_f32_16x16x16bf16_1k", bf16_16x16x16),
    M("v_mfma_f32_16x16x8bf16", bf16_16x16x8),
    M("v_mfma_f32_16x16x32_f16", f16_16x16x32),
    M("v_mfma_f32_16x16x32_bf16", bf16_16x16x32),
    M("v_mfma_f32_32x32x8f16", f16_32x32x8),
    M("v_mfma_f32_32x32x8bf16_1k", bf16_32x32x8),
    M("v_mfma_f32_32x32x4bf16", bf16_32x32x4),
    M("v_mfma_f32_32x32x16_f16", f16_32x32x16),
    M("v_mfma_f32_32x32x16_bf16", bf16_32x32x16),
    {"v_wmma_f32_16x16x16_f16", "aaaf", wmma, E_SCALAR, 0},
    {"v_wmma_f32_16x16x16_bf16", "aaaf", wmma, E_SCALAR, 1},
};

const struct entry_list EMU_NAME(matrix) = {entries, sizeof entries / sizeof *entries};
