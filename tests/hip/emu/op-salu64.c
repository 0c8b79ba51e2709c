/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scalar arithmetic on 64 bits and masks of lanes. */
#include <stdlib.h>

#include "emu-wave.h"

static inline void put(struct wave *w, const struct op *o, uint64_t x)
{
    w->s[o->at[0].index] = (uint32_t)x;
    w->s[o->at[0].index + 1] = (uint32_t)(x >> 32);
}

#define A scalar64(w, &o->at[1])
#define B scalar64(w, &o->at[2])

#define PLAIN(name, expression)                                                                              \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint64_t a = A;                                                                                      \
        put(w, o, (expression));                                                                             \
    }
#define PLAIN2(name, expression)                                                                             \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint64_t a = A, b = B;                                                                               \
        put(w, o, (expression));                                                                             \
    }
#define NONZERO2(name, expression)                                                                           \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint64_t a = A, b = B, x = (expression);                                                             \
        put(w, o, x);                                                                                        \
        w->s[S_SCC] = x != 0;                                                                                \
    }
/* A shift's or field's second operand has 32 bits. */
#define SHIFT(name, expression)                                                                              \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint64_t a = A;                                                                                      \
        uint32_t b = scalar(w, &o->at[2]);                                                                   \
        uint64_t x = (uint64_t)(expression);                                                                 \
        put(w, o, x);                                                                                        \
        w->s[S_SCC] = x != 0;                                                                                \
    }
#define COUNT(name, expression)                                                                              \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint64_t a = A;                                                                                      \
        w->s[o->at[0].index] = (uint32_t)(expression);                                                       \
    }
#define COMPARE(name, expression)                                                                            \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint64_t a = scalar64(w, &o->at[0]), b = scalar64(w, &o->at[1]);                                     \
        w->s[S_SCC] = (expression) ? 1u : 0u;                                                                \
    }

static inline uint64_t field(uint64_t a, uint32_t b)
{
    uint32_t width = b >> 16 & 127;
    uint64_t x = a >> (b & 63);
    return width >= 64 ? x : x & ((1ull << width) - 1);
}

static inline uint64_t signed_field(uint64_t a, uint32_t b)
{
    uint32_t width = b >> 16 & 127;
    uint64_t x = (uint64_t)((int64_t)a >> (b & 63));
    return width == 0 ? 0 : width >= 64 ? x : (uint64_t)((int64_t)(x << (64 - width)) >> (64 - width));
}

static inline uint64_t reversed(uint64_t a)
{
    uint64_t x = 0;
    for (int i = 0; i < 64; i++)
        x |= (a >> i & 1) << (63 - i);
    return x;
}

PLAIN(s_mov, a)
PLAIN(s_brev, reversed(a))
PLAIN2(s_add, a + b)
PLAIN2(s_sub, a - b)
PLAIN2(s_mul, a *b)
PLAIN2(s_cselect, w->s[S_SCC] ? a : b)
NONZERO2(s_and, a &b)
NONZERO2(s_or, a | b)
NONZERO2(s_xor, a ^ b)
NONZERO2(s_andn2, a & ~b)
NONZERO2(s_orn2, a | ~b)
NONZERO2(s_nand, ~(a &b))
NONZERO2(s_nor, ~(a | b))
NONZERO2(s_xnor, ~(a ^ b))
SHIFT(s_lshl, a << (b & 63))
SHIFT(s_lshr, a >> (b & 63))
SHIFT(s_ashr, (int64_t)a >> (b & 63))
SHIFT(s_bfe_u, field(a, b))
SHIFT(s_bfe_i, signed_field(a, b))
COUNT(s_ff1, a == 0 ? ~0u : (uint32_t)__builtin_ctzll(a))
COUNT(s_flbit, a == 0 ? ~0u : (uint32_t)__builtin_clzll(a))
COMPARE(s_cmp_eq, a == b)
COMPARE(s_cmp_lg, a != b)

static void s_not(struct wave *w, const struct op *o)
{
    uint64_t x = ~A;
    put(w, o, x);
    w->s[S_SCC] = x != 0;
}

static void s_bcnt1(struct wave *w, const struct op *o)
{
    w->s[o->at[0].index] = (uint32_t)__builtin_popcountll(A);
    w->s[S_SCC] = w->s[o->at[0].index] != 0;
}

static void s_bfm(struct wave *w, const struct op *o)
{
    put(w, o, ((1ull << (scalar(w, &o->at[1]) & 63)) - 1) << (scalar(w, &o->at[2]) & 63));
}

static void s_cmov(struct wave *w, const struct op *o)
{
    if (w->s[S_SCC])
        put(w, o, A);
}

static void s_bitset0(struct wave *w, const struct op *o)
{
    put(w, o, scalar64(w, &o->at[0]) & ~(1ull << (scalar(w, &o->at[1]) & 63)));
}

static void s_bitset1(struct wave *w, const struct op *o)
{
    put(w, o, scalar64(w, &o->at[0]) | 1ull << (scalar(w, &o->at[1]) & 63));
}

/* The old EXEC to the destination, a new one from it and the source; both forms for both wave sizes. */
#define SAVEEXEC(name, expression)                                                                           \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        bool wide = o->at[0].words == 2 || o->size == 2;                                                     \
        uint64_t e = wide ? wave_exec(w) : w->s[S_EXEC];                                                     \
        uint64_t s = wide ? A : scalar(w, &o->at[1]);                                                        \
        uint64_t x = (expression);                                                                           \
        x = wide ? x : (uint32_t)x;                                                                          \
        w->s[o->at[0].index] = (uint32_t)e;                                                                  \
        if (wide)                                                                                            \
            w->s[o->at[0].index + 1] = (uint32_t)(e >> 32);                                                  \
        w->s[S_SCC] = x != 0;                                                                                \
        exec_set(w, x);                                                                                      \
    }
SAVEEXEC(s_and_saveexec, s &e)
SAVEEXEC(s_or_saveexec, s | e)
SAVEEXEC(s_xor_saveexec, s ^ e)
SAVEEXEC(s_andn2_saveexec, s & ~e)
SAVEEXEC(s_orn2_saveexec, s | ~e)
SAVEEXEC(s_andn1_saveexec, ~s &e)

/* The new EXEC to the destination too. */
static void s_andn2_wrexec(struct wave *w, const struct op *o)
{
    uint64_t x = (o->size == 2 ? A : scalar(w, &o->at[1])) & ~wave_exec(w);
    w->s[o->at[0].index] = (uint32_t)x;
    if (o->size == 2)
        w->s[o->at[0].index + 1] = (uint32_t)(x >> 32);
    w->s[S_SCC] = x != 0;
    exec_set(w, x);
}

static void s_getpc(struct wave *w, const struct op *o)
{
    put(w, o, w->group->code + o->pc + o->bytes);
}

/* Each group of four bits becomes four bits of all or none. */
static void s_wqm(struct wave *w, const struct op *o)
{
    uint64_t a = o->size == 2 ? A : scalar(w, &o->at[1]), x = 0;
    for (int i = 0; i < 64; i += 4)
        x |= a >> i & 15 ? 15ull << i : 0;
    w->s[o->at[0].index] = (uint32_t)x;
    if (o->size == 2)
        w->s[o->at[0].index + 1] = (uint32_t)(x >> 32);
    w->s[S_SCC] = x != 0;
}

#define Q1(name, run)                                                                                        \
    {                                                                                                        \
        name, "qq", run, E_SCALAR, 0                                                                         \
    }
#define Q2(name, run)                                                                                        \
    {                                                                                                        \
        name, "qqq", run, E_SCALAR, 0                                                                        \
    }
#define QS(name, run)                                                                                        \
    {                                                                                                        \
        name, "qqu", run, E_SCALAR, 0                                                                        \
    }
#define SAVE(name, run)                                                                                      \
    {name "_b32", "uu", run, E_SCALAR, 1},                                                                   \
    {                                                                                                        \
        name "_b64", "qq", run, E_SCALAR, 2                                                                  \
    }
static const struct entry entries[] = {
    Q1("s_mov_b64", s_mov),
    Q1("s_brev_b64", s_brev),
    Q1("s_not_b64", s_not),
    Q1("s_cmov_b64", s_cmov),
    Q2("s_add_nc_u64", s_add),
    Q2("s_sub_nc_u64", s_sub),
    Q2("s_mul_u64", s_mul),
    Q2("s_add_u64", s_add),
    Q2("s_sub_u64", s_sub),
    Q2("s_cselect_b64", s_cselect),
    Q2("s_and_b64", s_and),
    Q2("s_or_b64", s_or),
    Q2("s_xor_b64", s_xor),
    Q2("s_andn2_b64", s_andn2),
    Q2("s_orn2_b64", s_orn2),
    Q2("s_nand_b64", s_nand),
    Q2("s_nor_b64", s_nor),
    Q2("s_xnor_b64", s_xnor),
    QS("s_lshl_b64", s_lshl),
    QS("s_lshr_b64", s_lshr),
    QS("s_ashr_i64", s_ashr),
    QS("s_bfe_u64", s_bfe_u),
    QS("s_bfe_i64", s_bfe_i),
    {"s_bfm_b64", "quu", s_bfm, E_SCALAR, 0},
    {"s_ff1_i32_b64", "uq", s_ff1, E_SCALAR, 0},
    {"s_flbit_i32_b64", "uq", s_flbit, E_SCALAR, 0},
    {"s_bcnt1_i32_b64", "uq", s_bcnt1, E_SCALAR, 0},
    {"s_cmp_eq_u64", "qq", s_cmp_eq, E_SCALAR | E_STORE, 0},
    {"s_cmp_lg_u64", "qq", s_cmp_lg, E_SCALAR | E_STORE, 0},
    {"s_bitset0_b64", "qu", s_bitset0, E_SCALAR, 0},
    {"s_bitset1_b64", "qu", s_bitset1, E_SCALAR, 0},
    SAVE("s_and_saveexec", s_and_saveexec),
    SAVE("s_or_saveexec", s_or_saveexec),
    SAVE("s_xor_saveexec", s_xor_saveexec),
    SAVE("s_andn2_saveexec", s_andn2_saveexec),
    SAVE("s_orn2_saveexec", s_orn2_saveexec),
    SAVE("s_andn1_saveexec", s_andn1_saveexec),
    SAVE("s_andn2_wrexec", s_andn2_wrexec),
    SAVE("s_wqm", s_wqm),
    {"s_getpc_b64", "q", s_getpc, E_SCALAR, 0},
};

const struct entry_list EMU_NAME(salu64) = {entries, sizeof entries / sizeof *entries};
