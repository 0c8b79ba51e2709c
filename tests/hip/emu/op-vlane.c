/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Lanes to scalars, scalars to lanes, lanes to lanes. */
#include "emu-vector.h"

static void v_readfirstlane(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW];
    uint64_t exec = wave_exec(w);
    const uint32_t *pa = src(w, &o->at[1], ta);
    w->s[o->at[0].index] = pa[exec != 0 ? __builtin_ctzll(exec) : 0];
}

static void v_readlane(struct wave *w, const struct op *o)
{
    uint32_t lane = scalar(w, &o->at[2]) & (w->lanes - 1);
    w->s[o->at[0].index] = w->v[o->at[1].offset + lane];
}

static void v_writelane(struct wave *w, const struct op *o)
{
    uint32_t lane = scalar(w, &o->at[2]) & (w->lanes - 1);
    w->v[o->at[0].offset + lane] = scalar(w, &o->at[1]);
}

/* Active lanes of a mask below this one, added to b: low half of the mask, then high half. */
static void v_mbcnt(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW], tb[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb);
    uint32_t *d = dst(w, o);
    bool high = o->size == 1;
    for (uint32_t i = 0; i < w->lanes; i++) {
        uint32_t below = high ? i < 32 ? 0 : (1u << (i - 32)) - 1 : i < 32 ? (1u << i) - 1 : ~0u;
        d[i] = (uint32_t)__builtin_popcount(pa[i] & below) + pb[i];
    }
    done(w, o, d, 1);
}

/* Lanes of rows of 16 by the 4-bit numbers in two scalars: of the own row (size 0) or the other one. */
static void v_permlane16(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta), *old = w->v + o->at[0].offset;
    uint64_t select = scalar(w, &o->at[2]) | (uint64_t)scalar(w, &o->at[3]) << 32, exec = wave_exec(w);
    bool fetch_inactive = o->op_sel & 1, bound = o->op_sel & 2;
    for (uint32_t i = 0; i < w->lanes; i++) {
        uint32_t row = (i & ~15u) ^ (o->size == 1 ? 16 : 0), l = row | (select >> (4 * (i & 15)) & 15);
        bool valid = fetch_inactive || (exec >> l & 1);
        w->tmp[i] = valid ? pa[l] : bound ? 0 : old[i];
    }
    EMU_NAME(emu_done_slow)(w, o, w->tmp, 1);
}

/* Lane i and lane i + 32 of wave64. */
static void v_permlane64(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta);
    for (uint32_t i = 0; i < w->lanes; i++)
        w->tmp[i] = pa[w->lanes == 64 ? i ^ 32 : i];
    EMU_NAME(emu_done_slow)(w, o, w->tmp, 1);
}

/* The two registers exchange rows: odd rows of the first, even rows of the second; rows of 16 or 32. */
static void v_permlane_swap(struct wave *w, const struct op *o)
{
    uint32_t row = o->size;
    uint64_t exec = wave_exec(w);
    uint32_t *a = w->v + o->at[0].offset, *b = w->v + o->at[1].offset;
    for (uint32_t i = 0; i < w->lanes; i++) {
        if ((i & row) == 0 || !(exec >> i & 1) || !(exec >> (i - row) & 1))
            continue;
        uint32_t x = a[i];
        a[i] = b[i - row];
        b[i - row] = x;
    }
}

static void v_swap(struct wave *w, const struct op *o)
{
    uint32_t *a = w->v + o->at[0].offset, *b = w->v + o->at[1].offset;
    for (uint64_t m = wave_exec(w); m != 0; m &= m - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(m);
        uint32_t x = a[i];
        a[i] = b[i];
        b[i] = x;
    }
}

/* Special functions of scalars (gfx12). */
#define SCALAR(name, expression)                                                                             \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t u = scalar(w, &o->at[1]);                                                                   \
        u &= o->at[1].mods & MOD_ABS ? 0x7fffffff : ~0u;                                                     \
        u ^= o->at[1].mods & MOD_NEG ? 0x80000000 : 0;                                                       \
        float a = f32_flushed(f32_of_bits(u));                                                               \
        w->s[o->at[0].index] = bits_of_f32(f32_flushed(expression));                                         \
    }
SCALAR(v_s_exp, exp2f(a))
SCALAR(v_s_log, log2f(a))
SCALAR(v_s_rcp, 1 / a)
SCALAR(v_s_rsq, 1 / sqrtf(a))
SCALAR(v_s_sqrt, sqrtf(a))

static const struct entry entries[] = {
    {"v_readfirstlane_b32", ".u", v_readfirstlane, 0, 0},
    {"v_readlane_b32", ".uu", v_readlane, E_SCALAR, 0},
    {"v_writelane_b32", "uuu", v_writelane, E_SCALAR, 0},
    {"v_mbcnt_lo_u32_b32", "uuu", v_mbcnt, 0, 0},
    {"v_mbcnt_hi_u32_b32", "uuu", v_mbcnt, 0, 1},
    {"v_permlane16_b32", "uuuu", v_permlane16, E_PACKED, 0},
    {"v_permlanex16_b32", "uuuu", v_permlane16, E_PACKED, 1},
    {"v_permlane64_b32", "uu", v_permlane64, 0, 0},
    {"v_permlane16_swap_b32", "uu", v_permlane_swap, 0, 16},
    {"v_permlane32_swap_b32", "uu", v_permlane_swap, 0, 32},
    {"v_s_exp_f32", "ff", v_s_exp, E_SCALAR, 0},
    {"v_s_log_f32", "ff", v_s_log, E_SCALAR, 0},
    {"v_s_rcp_f32", "ff", v_s_rcp, E_SCALAR, 0},
    {"v_s_rsq_f32", "ff", v_s_rsq, E_SCALAR, 0},
    {"v_s_sqrt_f32", "ff", v_s_sqrt, E_SCALAR, 0},
    {"v_swap_b32", "uu", v_swap, 0, 0},
};

const struct entry_list EMU_NAME(vlane) = {entries, sizeof entries / sizeof *entries};
