/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scalar arithmetic on 32 bits. */
#include <math.h>
#include <stdlib.h>

#include "emu-half.h"
#include "emu-wave.h"

static inline void put(struct wave *w, const struct op *o, uint32_t x)
{
    w->s[o->at[0].index] = x;
}

#define A scalar(w, &o->at[1])
#define B scalar(w, &o->at[2])

/* The result alone; with SCC telling whether it is not 0; with SCC as told. */
#define PLAIN(name, expression)                                                                              \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t a = A;                                                                                      \
        (void)a;                                                                                             \
        put(w, o, (uint32_t)(expression));                                                                   \
    }
#define PLAIN2(name, expression)                                                                             \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t a = A, b = B;                                                                               \
        put(w, o, (uint32_t)(expression));                                                                   \
    }
#define NONZERO(name, expression)                                                                            \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t a = A, x = (uint32_t)(expression);                                                          \
        put(w, o, x);                                                                                        \
        w->s[S_SCC] = x != 0;                                                                                \
    }
#define NONZERO2(name, expression)                                                                           \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t a = A, b = B, x = (uint32_t)(expression);                                                   \
        put(w, o, x);                                                                                        \
        w->s[S_SCC] = x != 0;                                                                                \
    }
#define TOLD2(name, expression, scc)                                                                         \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t a = A, b = B, c = w->s[S_SCC];                                                              \
        (void)c;                                                                                             \
        put(w, o, (uint32_t)(expression));                                                                   \
        w->s[S_SCC] = (scc);                                                                                 \
    }
#define COMPARE(name, expression)                                                                            \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t a = scalar(w, &o->at[0]), b = scalar(w, &o->at[1]);                                         \
        w->s[S_SCC] = (expression) ? 1u : 0u;                                                                \
    }

static inline int32_t s32(uint32_t x)
{
    return (int32_t)x;
}

static inline uint32_t field(uint32_t a, uint32_t b)
{
    uint32_t width = b >> 16 & 127, x = a >> (b & 31);
    return width >= 32 ? x : x & ((1u << width) - 1);
}

static inline uint32_t signed_field(uint32_t a, uint32_t b)
{
    uint32_t width = b >> 16 & 127, x = (uint32_t)(s32(a) >> (b & 31));
    return width == 0 ? 0 : width >= 32 ? x : (uint32_t)(s32(x << (32 - width)) >> (32 - width));
}

static inline uint32_t reversed(uint32_t a)
{
    uint32_t x = 0;
    for (int i = 0; i < 32; i++)
        x |= (a >> i & 1) << (31 - i);
    return x;
}

PLAIN(s_mov, a)
PLAIN(s_movk, s32(a << 16) >> 16)
PLAIN(s_sext8, s32(a << 24) >> 24)
PLAIN(s_sext16, s32(a << 16) >> 16)
PLAIN(s_brev, reversed(a))
PLAIN(s_ff1, a == 0 ? ~0u : (uint32_t)__builtin_ctz(a))
PLAIN(s_flbit, a == 0 ? ~0u : (uint32_t)__builtin_clz(a))
PLAIN(s_flbit_signed, a == 0 || a == ~0u ? ~0u : (uint32_t)__builtin_clrsb(s32(a)) + 1)
NONZERO(s_not, ~a)
NONZERO(s_abs, s32(a) < 0 ? 0 - a : a)
NONZERO(s_bcnt1, (uint32_t)__builtin_popcount(a))
NONZERO2(s_and, a &b)
NONZERO2(s_or, a | b)
NONZERO2(s_xor, a ^ b)
NONZERO2(s_andn2, a & ~b)
NONZERO2(s_orn2, a | ~b)
NONZERO2(s_nand, ~(a &b))
NONZERO2(s_nor, ~(a | b))
NONZERO2(s_xnor, ~(a ^ b))
NONZERO2(s_lshl, a << (b & 31))
NONZERO2(s_lshr, a >> (b & 31))
NONZERO2(s_ashr, s32(a) >> (b & 31))
NONZERO2(s_bfe_u, field(a, b))
NONZERO2(s_bfe_i, signed_field(a, b))
PLAIN2(s_bfm, ((1u << (a & 31)) - 1) << (b & 31))
PLAIN2(s_mul, a *b)
PLAIN2(s_mul_hi_u, (uint64_t)a *b >> 32)
PLAIN2(s_mul_hi_i, (uint64_t)((int64_t)s32(a) * s32(b)) >> 32)
PLAIN2(s_cselect, w->s[S_SCC] ? a : b)
PLAIN2(s_pack_ll, (a & 0xffff) | b << 16)
PLAIN2(s_pack_lh, (a & 0xffff) | (b & 0xffff0000))
PLAIN2(s_pack_hh, a >> 16 | (b & 0xffff0000))
PLAIN2(s_pack_hl, a >> 16 | b << 16)
TOLD2(s_add_u, a + b, a + b < a)
TOLD2(s_addc_u, a + b + c, ((uint64_t)a + b + c) >> 32 != 0)
TOLD2(s_sub_u, a - b, b > a)
TOLD2(s_subb_u, a - b - c, (uint64_t)b + c > a)
TOLD2(s_add_i, a + b, (~(a ^ b) & (a ^ (a + b))) >> 31)
TOLD2(s_sub_i, a - b, ((a ^ b) & (a ^ (a - b))) >> 31)
TOLD2(s_min_i, s32(a) < s32(b) ? a : b, s32(a) < s32(b))
TOLD2(s_max_i, s32(a) > s32(b) ? a : b, s32(a) > s32(b))
TOLD2(s_min_u, a < b ? a : b, a < b)
TOLD2(s_max_u, a > b ? a : b, a > b)
TOLD2(s_lshl1_add, (a << 1) + b, (((uint64_t)a << 1) + b) >> 32 != 0)
TOLD2(s_lshl2_add, (a << 2) + b, (((uint64_t)a << 2) + b) >> 32 != 0)
TOLD2(s_lshl3_add, (a << 3) + b, (((uint64_t)a << 3) + b) >> 32 != 0)
TOLD2(s_lshl4_add, (a << 4) + b, (((uint64_t)a << 4) + b) >> 32 != 0)
COMPARE(s_cmp_eq, a == b)
COMPARE(s_cmp_lg, a != b)
COMPARE(s_cmp_gt_u, a > b)
COMPARE(s_cmp_ge_u, a >= b)
COMPARE(s_cmp_lt_u, a < b)
COMPARE(s_cmp_le_u, a <= b)
COMPARE(s_cmp_gt_i, s32(a) > s32(b))
COMPARE(s_cmp_ge_i, s32(a) >= s32(b))
COMPARE(s_cmp_lt_i, s32(a) < s32(b))
COMPARE(s_cmp_le_i, s32(a) <= s32(b))
COMPARE(s_bitcmp0, (a >> (b & 31) & 1) == 0)
COMPARE(s_bitcmp1, a >> (b & 31) & 1)

/* The 16-bit constant of these takes its sign along, but for comparisons of unsigned numbers. */
static inline uint32_t constant16(const struct operand *s)
{
    return (uint32_t)(int32_t)(int16_t)s->value;
}

#define COMPAREK(name, expression)                                                                           \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t a = scalar(w, &o->at[0]), b = constant16(&o->at[1]), u = b & 0xffff;                        \
        (void)b;                                                                                             \
        (void)u;                                                                                             \
        w->s[S_SCC] = (expression) ? 1u : 0u;                                                                \
    }
COMPAREK(s_cmpk_eq_i, a == b)
COMPAREK(s_cmpk_lg_i, a != b)
COMPAREK(s_cmpk_gt_i, s32(a) > s32(b))
COMPAREK(s_cmpk_ge_i, s32(a) >= s32(b))
COMPAREK(s_cmpk_lt_i, s32(a) < s32(b))
COMPAREK(s_cmpk_le_i, s32(a) <= s32(b))
COMPAREK(s_cmpk_eq_u, a == u)
COMPAREK(s_cmpk_lg_u, a != u)
COMPAREK(s_cmpk_gt_u, a > u)
COMPAREK(s_cmpk_ge_u, a >= u)
COMPAREK(s_cmpk_lt_u, a < u)
COMPAREK(s_cmpk_le_u, a <= u)

static void s_addk(struct wave *w, const struct op *o)
{
    uint32_t a = w->s[o->at[0].index], b = constant16(&o->at[1]);
    put(w, o, a + b);
    w->s[S_SCC] = (~(a ^ b) & (a ^ (a + b))) >> 31;
}

static void s_mulk(struct wave *w, const struct op *o)
{
    put(w, o, w->s[o->at[0].index] * constant16(&o->at[1]));
}

static void s_cmovk(struct wave *w, const struct op *o)
{
    if (w->s[S_SCC])
        put(w, o, constant16(&o->at[1]));
}

static void s_cmov(struct wave *w, const struct op *o)
{
    if (w->s[S_SCC])
        put(w, o, A);
}

static void s_bitset0(struct wave *w, const struct op *o)
{
    put(w, o, w->s[o->at[0].index] & ~(1u << (A & 31)));
}

static void s_bitset1(struct wave *w, const struct op *o)
{
    put(w, o, w->s[o->at[0].index] | 1u << (A & 31));
}

static inline float number(uint32_t u)
{
    return f32_of_bits(u);
}

static inline uint32_t to_u32(float f)
{
    return !(f > 0) ? 0 : f >= 0x1p32f ? ~0u : (uint32_t)f;
}

static inline uint32_t to_i32(float f)
{
    return isnan(f) ? 0 : f >= 0x1p31f ? 0x7fffffff : f <= -0x1p31f ? 0x80000000 : (uint32_t)(int32_t)f;
}

PLAIN2(s_add_f, bits_of_f32(number(a) + number(b)))
PLAIN2(s_sub_f, bits_of_f32(number(a) - number(b)))
PLAIN2(s_mul_f, bits_of_f32(number(a) * number(b)))
PLAIN2(s_max_f, bits_of_f32(fmaxf(number(a), number(b))))
PLAIN2(s_min_f, bits_of_f32(fminf(number(a), number(b))))
PLAIN2(s_fmac_f, bits_of_f32(fmaf(number(a), number(b), number(w->s[o->at[0].index]))))
PLAIN2(s_fma_k, bits_of_f32(fmaf(number(a), number(b), number(scalar(w, &o->at[3])))))
PLAIN(s_cvt_f_u, bits_of_f32((float)a))
PLAIN(s_cvt_f_i, bits_of_f32((float)s32(a)))
PLAIN(s_cvt_u_f, to_u32(number(a)))
PLAIN(s_cvt_i_f, to_i32(number(a)))
PLAIN(s_cvt_f_h, bits_of_f32(f32_of_f16(a & 0xffff)))
PLAIN(s_cvt_h_f, f16_of_f32(number(a)))
PLAIN(s_trunc_f, bits_of_f32(truncf(number(a))))
PLAIN(s_floor_f, bits_of_f32(floorf(number(a))))
PLAIN(s_ceil_f, bits_of_f32(ceilf(number(a))))
PLAIN(s_rndne_f, bits_of_f32(rintf(number(a))))
COMPARE(s_cmp_lt_f, number(a) < number(b))
COMPARE(s_cmp_le_f, number(a) <= number(b))
COMPARE(s_cmp_gt_f, number(a) > number(b))
COMPARE(s_cmp_ge_f, number(a) >= number(b))
COMPARE(s_cmp_eq_f, number(a) == number(b))
COMPARE(s_cmp_neq_f, !(number(a) == number(b)))
COMPARE(s_cmp_lg_f, number(a) < number(b) || number(a) > number(b))
COMPARE(s_cmp_u_f, isnan(number(a)) || isnan(number(b)))
COMPARE(s_cmp_o_f, !isnan(number(a)) && !isnan(number(b)))
COMPARE(s_cmp_nlt_f, !(number(a) < number(b)))
COMPARE(s_cmp_nle_f, !(number(a) <= number(b)))
COMPARE(s_cmp_ngt_f, !(number(a) > number(b)))
COMPARE(s_cmp_nge_f, !(number(a) >= number(b)))

#define S1(name, run)                                                                                        \
    {                                                                                                        \
        name, "uu", run, E_SCALAR, 0                                                                         \
    }
#define S2(name, run)                                                                                        \
    {                                                                                                        \
        name, "uuu", run, E_SCALAR, 0                                                                        \
    }
#define SC(name, run)                                                                                        \
    {                                                                                                        \
        name, "uu", run, E_SCALAR | E_STORE, 0                                                               \
    }
#define SF(name, run)                                                                                        \
    {                                                                                                        \
        "s_cmp_" name "_f32", "ff", run, E_SCALAR | E_STORE, 0                                               \
    }
static const struct entry entries[] = {
    S1("s_mov_b32", s_mov),
    S1("s_movk_i32", s_movk),
    S1("s_sext_i32_i8", s_sext8),
    S1("s_sext_i32_i16", s_sext16),
    S1("s_brev_b32", s_brev),
    S1("s_ff1_i32_b32", s_ff1),
    S1("s_flbit_i32_b32", s_flbit),
    S1("s_flbit_i32", s_flbit_signed),
    S1("s_not_b32", s_not),
    S1("s_abs_i32", s_abs),
    S1("s_bcnt1_i32_b32", s_bcnt1),
    S2("s_and_b32", s_and),
    S2("s_or_b32", s_or),
    S2("s_xor_b32", s_xor),
    S2("s_andn2_b32", s_andn2),
    S2("s_orn2_b32", s_orn2),
    S2("s_nand_b32", s_nand),
    S2("s_nor_b32", s_nor),
    S2("s_xnor_b32", s_xnor),
    S2("s_lshl_b32", s_lshl),
    S2("s_lshr_b32", s_lshr),
    S2("s_ashr_i32", s_ashr),
    S2("s_bfe_u32", s_bfe_u),
    S2("s_bfe_i32", s_bfe_i),
    S2("s_bfm_b32", s_bfm),
    S2("s_mul_i32", s_mul),
    S2("s_mul_hi_u32", s_mul_hi_u),
    S2("s_mul_hi_i32", s_mul_hi_i),
    S2("s_cselect_b32", s_cselect),
    S2("s_pack_ll_b32_b16", s_pack_ll),
    S2("s_pack_lh_b32_b16", s_pack_lh),
    S2("s_pack_hh_b32_b16", s_pack_hh),
    S2("s_pack_hl_b32_b16", s_pack_hl),
    S2("s_add_u32", s_add_u),
    S2("s_addc_u32", s_addc_u),
    S2("s_sub_u32", s_sub_u),
    S2("s_subb_u32", s_subb_u),
    S2("s_add_i32", s_add_i),
    S2("s_sub_i32", s_sub_i),
    S2("s_min_i32", s_min_i),
    S2("s_max_i32", s_max_i),
    S2("s_min_u32", s_min_u),
    S2("s_max_u32", s_max_u),
    S2("s_lshl1_add_u32", s_lshl1_add),
    S2("s_lshl2_add_u32", s_lshl2_add),
    S2("s_lshl3_add_u32", s_lshl3_add),
    S2("s_lshl4_add_u32", s_lshl4_add),
    SC("s_cmp_eq_u32", s_cmp_eq),
    SC("s_cmp_eq_i32", s_cmp_eq),
    SC("s_cmp_lg_u32", s_cmp_lg),
    SC("s_cmp_lg_i32", s_cmp_lg),
    SC("s_cmp_gt_u32", s_cmp_gt_u),
    SC("s_cmp_ge_u32", s_cmp_ge_u),
    SC("s_cmp_lt_u32", s_cmp_lt_u),
    SC("s_cmp_le_u32", s_cmp_le_u),
    SC("s_cmp_gt_i32", s_cmp_gt_i),
    SC("s_cmp_ge_i32", s_cmp_ge_i),
    SC("s_cmp_lt_i32", s_cmp_lt_i),
    SC("s_cmp_le_i32", s_cmp_le_i),
    SC("s_bitcmp0_b32", s_bitcmp0),
    SC("s_bitcmp1_b32", s_bitcmp1),
    SC("s_cmpk_eq_i32", s_cmpk_eq_i),
    SC("s_cmpk_lg_i32", s_cmpk_lg_i),
    SC("s_cmpk_gt_i32", s_cmpk_gt_i),
    SC("s_cmpk_ge_i32", s_cmpk_ge_i),
    SC("s_cmpk_lt_i32", s_cmpk_lt_i),
    SC("s_cmpk_le_i32", s_cmpk_le_i),
    SC("s_cmpk_eq_u32", s_cmpk_eq_u),
    SC("s_cmpk_lg_u32", s_cmpk_lg_u),
    SC("s_cmpk_gt_u32", s_cmpk_gt_u),
    SC("s_cmpk_ge_u32", s_cmpk_ge_u),
    SC("s_cmpk_lt_u32", s_cmpk_lt_u),
    SC("s_cmpk_le_u32", s_cmpk_le_u),
    S1("s_addk_i32", s_addk),
    S1("s_mulk_i32", s_mulk),
    S1("s_cmovk_i32", s_cmovk),
    S1("s_cmov_b32", s_cmov),
    S1("s_bitset0_b32", s_bitset0),
    S1("s_bitset1_b32", s_bitset1),
    {"s_add_f32", "fff", s_add_f, E_SCALAR, 0},
    {"s_sub_f32", "fff", s_sub_f, E_SCALAR, 0},
    {"s_mul_f32", "fff", s_mul_f, E_SCALAR, 0},
    {"s_max_f32", "fff", s_max_f, E_SCALAR, 0},
    {"s_min_f32", "fff", s_min_f, E_SCALAR, 0},
    {"s_fmac_f32", "fff", s_fmac_f, E_SCALAR, 0},
    {"s_fmaak_f32", "ffff", s_fma_k, E_SCALAR, 0},
    {"s_fmamk_f32", "ffff", s_fma_k, E_SCALAR, 0},
    {"s_cvt_f32_u32", "fu", s_cvt_f_u, E_SCALAR, 0},
    {"s_cvt_f32_i32", "fu", s_cvt_f_i, E_SCALAR, 0},
    {"s_cvt_u32_f32", "uf", s_cvt_u_f, E_SCALAR, 0},
    {"s_cvt_i32_f32", "uf", s_cvt_i_f, E_SCALAR, 0},
    {"s_cvt_f32_f16", "fu", s_cvt_f_h, E_SCALAR, 0},
    {"s_cvt_f16_f32", "uf", s_cvt_h_f, E_SCALAR, 0},
    {"s_trunc_f32", "ff", s_trunc_f, E_SCALAR, 0},
    {"s_floor_f32", "ff", s_floor_f, E_SCALAR, 0},
    {"s_ceil_f32", "ff", s_ceil_f, E_SCALAR, 0},
    {"s_rndne_f32", "ff", s_rndne_f, E_SCALAR, 0},
    SF("lt", s_cmp_lt_f),
    SF("le", s_cmp_le_f),
    SF("gt", s_cmp_gt_f),
    SF("ge", s_cmp_ge_f),
    SF("eq", s_cmp_eq_f),
    SF("neq", s_cmp_neq_f),
    SF("lg", s_cmp_lg_f),
    SF("u", s_cmp_u_f),
    SF("o", s_cmp_o_f),
    SF("nlt", s_cmp_nlt_f),
    SF("nle", s_cmp_nle_f),
    SF("ngt", s_cmp_ngt_f),
    SF("nge", s_cmp_nge_f),
};

const struct entry_list EMU_NAME(salu) = {entries, sizeof entries / sizeof *entries};
