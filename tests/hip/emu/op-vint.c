/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Vector arithmetic on integers of 32 and 16 bits. */
#include "emu-vector.h"

static inline int32_t s24(uint32_t x)
{
    return (int32_t)(x << 8) >> 8;
}

static inline uint32_t field(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t width = c & 31;
    return a >> (b & 31) & ((1u << width) - 1);
}

static inline int32_t signed_field(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t width = c & 31, shift = (32 - width) & 31;
    int32_t x = (int32_t)((a >> (b & 31)) << shift) >> shift;
    int32_t whole = (int32_t)a >> (b & 31);
    return width == 0 ? 0 : (b & 31) + width >= 32 ? whole : x;
}

static inline uint32_t reversed(uint32_t x)
{
    x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
    x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
    x = (x >> 8 & 0x00ff00ff) | (x & 0x00ff00ff) << 8;
    return x >> 16 | x << 16;
}

/* Bytes 0 to 3 are b's, 4 to 7 a's; then signs, zero, ones. */
static inline uint32_t permuted(uint32_t a, uint32_t b, uint32_t selector)
{
    uint64_t from = (uint64_t)a << 32 | b;
    uint32_t x = 0;
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t s = selector >> (8 * k) & 255, byte = (uint32_t)(from >> (8 * (s & 7))) & 255;
        uint32_t sign = (uint32_t)(from >> (16 * (s & 3) + 15) & 1) * 255;
        byte = s < 8 ? byte : s < 12 ? sign : s == 12 ? 0 : 255;
        x |= byte << (8 * k);
    }
    return x;
}

static inline uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static inline int32_t least_i(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static inline int32_t most_i(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static inline uint32_t low16(uint32_t x)
{
    return x & 0xffff;
}

static inline int32_t low16_i(uint32_t x)
{
    return (int32_t)(x << 16) >> 16;
}

VECTOR1(v_mov, u, a.u)
VECTOR1(v_not, u, ~a.u)
VECTOR1(v_bfrev, u, reversed(a.u))
VECTOR1(v_ffbh_u, u, a.u == 0 ? ~0u : (uint32_t)__builtin_clz(a.u | (a.u == 0)))
VECTOR1(v_ffbl, u, a.u == 0 ? ~0u : (uint32_t)__builtin_ctz(a.u | (a.u == 0)))
VECTOR1(v_ffbh_i, u, a.u == 0 || a.u == ~0u ? ~0u : (uint32_t)__builtin_clrsb(a.i) + 1)
VECTOR2(v_and, u, a.u &b.u)
VECTOR2(v_or, u, a.u | b.u)
VECTOR2(v_xor, u, a.u ^ b.u)
VECTOR2(v_xnor, u, ~(a.u ^ b.u))
VECTOR2(v_add, u, a.u + b.u)
VECTOR2(v_sub, u, a.u - b.u)
VECTOR2(v_subrev, u, b.u - a.u)
VECTOR2(v_lshlrev, u, b.u << (a.u & 31))
VECTOR2(v_lshrrev, u, b.u >> (a.u & 31))
VECTOR2(v_ashrrev, i, b.i >> (a.u & 31))
VECTOR2(v_mul_lo, u, a.u *b.u)
VECTOR2(v_mul_hi_u, u, (uint32_t)((uint64_t)a.u *b.u >> 32))
VECTOR2(v_mul_hi_i, u, (uint32_t)((uint64_t)((int64_t)a.i *b.i) >> 32))
VECTOR2(v_mul_u24, u, (a.u & 0xffffff) * (b.u & 0xffffff))
VECTOR2(v_mul_hi_u24, u, (uint32_t)((uint64_t)(a.u & 0xffffff) * (b.u & 0xffffff) >> 32))
VECTOR2(v_mul_i24, u, (uint32_t)((int64_t)s24(a.u) * s24(b.u)))
VECTOR2(v_min_u, u, least(a.u, b.u))
VECTOR2(v_max_u, u, most(a.u, b.u))
VECTOR2(v_min_i, i, least_i(a.i, b.i))
VECTOR2(v_max_i, i, most_i(a.i, b.i))
VECTOR2(v_bcnt, u, (uint32_t)__builtin_popcount(a.u) + b.u)
VECTOR2(v_bfm, u, ((1u << (a.u & 31)) - 1) << (b.u & 31))
VECTOR3(v_lshl_or, u, a.u << (b.u & 31) | c.u)
VECTOR3(v_lshl_add, u, (a.u << (b.u & 31)) + c.u)
VECTOR3(v_add_lshl, u, (a.u + b.u) << (c.u & 31))
VECTOR3(v_add3, u, a.u + b.u + c.u)
VECTOR3(v_or3, u, a.u | b.u | c.u)
VECTOR3(v_xor3, u, a.u ^ b.u ^ c.u)
VECTOR3(v_and_or, u, (a.u & b.u) | c.u)
VECTOR3(v_xad, u, (a.u ^ b.u) + c.u)
VECTOR3(v_bfe_u, u, field(a.u, b.u, c.u))
VECTOR3(v_bfe_i, i, signed_field(a.u, b.u, c.u))
VECTOR3(v_bfi, u, (a.u & b.u) | (~a.u & c.u))
VECTOR3(v_mad_u24, u, (a.u & 0xffffff) * (b.u & 0xffffff) + c.u)
VECTOR3(v_mad_i24, u, (uint32_t)((int64_t)s24(a.u) * s24(b.u)) + c.u)
VECTOR3(v_perm, u, permuted(a.u, b.u, c.u))
VECTOR3(v_alignbit, u, (uint32_t)(((uint64_t)a.u << 32 | b.u) >> (c.u & 31)))
VECTOR3(v_alignbyte, u, (uint32_t)(((uint64_t)a.u << 32 | b.u) >> (8 * (c.u & 3))))
VECTOR3(v_min3_u, u, least(least(a.u, b.u), c.u))
VECTOR3(v_max3_u, u, most(most(a.u, b.u), c.u))
VECTOR3(v_min3_i, i, least_i(least_i(a.i, b.i), c.i))
VECTOR3(v_max3_i, i, most_i(most_i(a.i, b.i), c.i))
VECTOR3(v_med3_u, u, most(least(a.u, b.u), least(most(a.u, b.u), c.u)))
VECTOR3(v_med3_i, i, most_i(least_i(a.i, b.i), least_i(most_i(a.i, b.i), c.i)))
VECTOR3(v_maxmin_i, i, least_i(most_i(a.i, b.i), c.i))
VECTOR3(v_minmax_i, i, most_i(least_i(a.i, b.i), c.i))
VECTOR3(v_maxmin_u, u, least(most(a.u, b.u), c.u))
VECTOR3(v_minmax_u, u, most(least(a.u, b.u), c.u))
VECTOR3(v_mad_u32_u16, u, low16(a.u) * low16(b.u) + c.u)
VECTOR3(v_mad_i32_i16, u, (uint32_t)(low16_i(a.u) * low16_i(b.u)) + c.u)
VECTOR3(v_sad, u, most(a.u, b.u) - least(a.u, b.u) + c.u)
VECTOR3(v_dot4_u, u,
        (a.u & 255) * (b.u & 255) + (a.u >> 8 & 255) * (b.u >> 8 & 255) +
            (a.u >> 16 & 255) * (b.u >> 16 & 255) + (a.u >> 24) * (b.u >> 24) + c.u)

/* Subtraction and addition that stop at the ends of the range. */
static void v_sub_either(struct wave *w, const struct op *o, bool reverse)
{
    uint32_t ta[EMU_ROW], tb[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[reverse ? 2 : 1], ta), *pb = src(w, &o->at[reverse ? 1 : 2], tb);
    LANES(i) w->tmp[i] = pa[i] > pb[i] ? pa[i] - pb[i] : 0;
    EMU_NAME(emu_done_slow)(w, o, w->tmp, 1);
}

static void v_sub_any(struct wave *w, const struct op *o)
{
    if (o->clamp)
        v_sub_either(w, o, false);
    else
        v_sub(w, o);
}

static void v_subrev_any(struct wave *w, const struct op *o)
{
    if (o->clamp)
        v_sub_either(w, o, true);
    else
        v_subrev(w, o);
}

static void v_add_any(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW], tb[EMU_ROW];
    if (!o->clamp) {
        v_add(w, o);
        return;
    }
    const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb);
    LANES(i) w->tmp[i] = pa[i] + pb[i] < pa[i] ? ~0u : pa[i] + pb[i];
    EMU_NAME(emu_done_slow)(w, o, w->tmp, 1);
}

VECTOR2(v_add16, u, low16(a.u + b.u))
VECTOR2(v_sub16, u, low16(a.u - b.u))
VECTOR2(v_subrev16, u, low16(b.u - a.u))
VECTOR2(v_mul16, u, low16(a.u *b.u))
VECTOR2(v_lshlrev16, u, low16(b.u << (a.u & 15)))
VECTOR2(v_lshrrev16, u, low16(b.u) >> (a.u & 15))
VECTOR2(v_ashrrev16, u, low16((uint32_t)(low16_i(b.u) >> (a.u & 15))))
VECTOR2(v_min_u16, u, least(low16(a.u), low16(b.u)))
VECTOR2(v_max_u16, u, most(low16(a.u), low16(b.u)))
VECTOR2(v_min_i16, u, low16((uint32_t)least_i(low16_i(a.u), low16_i(b.u))))
VECTOR2(v_max_i16, u, low16((uint32_t)most_i(low16_i(a.u), low16_i(b.u))))
VECTOR2(v_and16, u, low16(a.u &b.u))
VECTOR2(v_or16, u, low16(a.u | b.u))
VECTOR2(v_xor16, u, low16(a.u ^ b.u))
VECTOR1(v_mov16, u, low16(a.u))
VECTOR1(v_not16, u, low16(~a.u))
VECTOR3(v_mad16, u, low16(a.u *b.u + c.u))
VECTOR1(v_sext16, i, low16_i(a.u))
VECTOR1(v_zext16, u, low16(a.u))

static void v_cndmask16(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW], tb[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb);
    uint64_t m = mask_of(w, &o->at[3]);
    uint32_t *d = dst(w, o);
    LANES(i) d[i] = low16(m >> i & 1 ? pb[i] : pa[i]);
    done(w, o, d, 1);
}

/* A truth table of three bits, a's the highest of its index. */
static inline uint32_t by_table(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
    uint32_t x = 0;
    for (uint32_t k = 0; k < 8; k++) {
        uint32_t at = (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
        x |= at & (0u - (table >> k & 1));
    }
    return x;
}
VECTOR3(v_bitop3, u, by_table(a.u, b.u, c.u, o->byte_sel))

#define U1(name, run)                                                                                        \
    {                                                                                                        \
        name, "uu", run, 0, 0                                                                                \
    }
#define U2(name, run)                                                                                        \
    {                                                                                                        \
        name, "uuu", run, 0, 0                                                                               \
    }
#define U3(name, run)                                                                                        \
    {                                                                                                        \
        name, "uuuu", run, 0, 0                                                                              \
    }
#define W2(name, run)                                                                                        \
    {                                                                                                        \
        name, "www", run, E_HALF, 0                                                                          \
    }
static const struct entry entries[] = {
    U1("v_mov_b32", v_mov),
    U1("v_accvgpr_read_b32", v_mov),
    U1("v_accvgpr_write_b32", v_mov),
    U1("v_accvgpr_mov_b32", v_mov),
    U1("v_not_b32", v_not),
    U1("v_bfrev_b32", v_bfrev),
    U1("v_ffbh_u32", v_ffbh_u),
    U1("v_ffbl_b32", v_ffbl),
    U1("v_ffbh_i32", v_ffbh_i),
    U2("v_and_b32", v_and),
    U2("v_or_b32", v_or),
    U2("v_xor_b32", v_xor),
    U2("v_xnor_b32", v_xnor),
    U2("v_add_i32", v_add),
    U2("v_sub_i32", v_sub),
    U2("v_lshlrev_b32", v_lshlrev),
    U2("v_lshrrev_b32", v_lshrrev),
    U2("v_ashrrev_i32", v_ashrrev),
    U2("v_mul_lo_u32", v_mul_lo),
    U2("v_mul_hi_u32", v_mul_hi_u),
    U2("v_mul_hi_i32", v_mul_hi_i),
    U2("v_mul_u32_u24", v_mul_u24),
    U2("v_mul_hi_u32_u24", v_mul_hi_u24),
    U2("v_mul_i32_i24", v_mul_i24),
    U2("v_min_u32", v_min_u),
    U2("v_max_u32", v_max_u),
    U2("v_min_i32", v_min_i),
    U2("v_max_i32", v_max_i),
    U2("v_bcnt_u32_b32", v_bcnt),
    U2("v_bfm_b32", v_bfm),
    U3("v_lshl_or_b32", v_lshl_or),
    U3("v_lshl_add_u32", v_lshl_add),
    U3("v_add_lshl_u32", v_add_lshl),
    U3("v_add3_u32", v_add3),
    U3("v_or3_b32", v_or3),
    U3("v_xor3_b32", v_xor3),
    U3("v_and_or_b32", v_and_or),
    U3("v_xad_u32", v_xad),
    U3("v_bfe_u32", v_bfe_u),
    U3("v_bfe_i32", v_bfe_i),
    U3("v_bfi_b32", v_bfi),
    U3("v_mad_u32_u24", v_mad_u24),
    U3("v_mad_i32_i24", v_mad_i24),
    U3("v_perm_b32", v_perm),
    U3("v_alignbit_b32", v_alignbit),
    U3("v_alignbyte_b32", v_alignbyte),
    U3("v_min3_u32", v_min3_u),
    U3("v_max3_u32", v_max3_u),
    U3("v_min3_i32", v_min3_i),
    U3("v_max3_i32", v_max3_i),
    U3("v_med3_u32", v_med3_u),
    U3("v_med3_i32", v_med3_i),
    U3("v_maxmin_i32", v_maxmin_i),
    U3("v_minmax_i32", v_minmax_i),
    U3("v_maxmin_u32", v_maxmin_u),
    U3("v_minmax_u32", v_minmax_u),
    U3("v_sad_u32", v_sad),
    U3("v_bitop3_b32", v_bitop3),
    {"v_dot4_u32_u8", "uuuu", v_dot4_u, E_PACKED, 0},
    {"v_mad_u32_u16", "uwwu", v_mad_u32_u16, 0, 0},
    {"v_mad_i32_i16", "uwwu", v_mad_i32_i16, 0, 0},
    {"v_add_u32", "uuu", v_add_any, E_CLAMP, 0},
    {"v_sub_u32", "uuu", v_sub_any, E_CLAMP, 0},
    {"v_subrev_u32", "uuu", v_subrev_any, E_CLAMP, 0},
    W2("v_add_u16", v_add16),
    W2("v_sub_u16", v_sub16),
    W2("v_subrev_u16", v_subrev16),
    W2("v_mul_lo_u16", v_mul16),
    W2("v_lshlrev_b16", v_lshlrev16),
    W2("v_lshrrev_b16", v_lshrrev16),
    W2("v_ashrrev_i16", v_ashrrev16),
    W2("v_min_u16", v_min_u16),
    W2("v_max_u16", v_max_u16),
    W2("v_min_i16", v_min_i16),
    W2("v_max_i16", v_max_i16),
    W2("v_and_b16", v_and16),
    W2("v_or_b16", v_or16),
    W2("v_xor_b16", v_xor16),
    {"v_mov_b16", "ww", v_mov16, 0, 0},
    {"v_not_b16", "ww", v_not16, 0, 0},
    {"v_mad_u16", "wwww", v_mad16, 0, 0},
    {"v_mad_i16", "wwww", v_mad16, 0, 0},
    {"v_cndmask_b16", "hhhm", v_cndmask16, 0, 0},
    {"v_cvt_i32_i16", "uw", v_sext16, 0, 0},
    {"v_cvt_u32_u16", "uw", v_zext16, 0, 0},
};

const struct entry_list EMU_NAME(vint) = {entries, sizeof entries / sizeof *entries};
