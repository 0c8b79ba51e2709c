/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Two numbers a lane: pairs of f16 and 16-bit integers in a register, pairs of f32 in two; dot products. */
#include "emu-vector.h"

/* One half of each lane of source k, its sign turned where told; shift is 0 or 16. */
static void halves(struct wave *w, const struct op *o, unsigned k, bool high, uint32_t flip,
                   uint32_t to[EMU_ROW])
{
    uint32_t t[EMU_ROW];
    const uint32_t *from = src(w, &o->at[k], t);
    uint32_t shift = ((high ? o->op_sel_hi : o->op_sel) >> (k - 1) & 1) ? 16 : 0;
    uint32_t sign = ((high ? o->neg_hi : o->neg_lo) >> (k - 1) & 1) ? flip : 0;
    LANES(i) to[i] = (from[i] >> shift & 0xffff) ^ sign;
}

#define F(x) f32_of_f16(x)
#define S(x) ((int32_t)((x) << 16) >> 16)
#define PAIR(name, sources, flip, expression)                                                                \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t x[3][EMU_ROW], low[EMU_ROW] = {0};                                                          \
        for (unsigned high = 0; high < 2; high++) {                                                          \
            for (unsigned k = 0; k < (sources); k++)                                                         \
                halves(w, o, k + 1, high, flip, x[k]);                                                       \
            LANES(i)                                                                                         \
            {                                                                                                \
                uint32_t a = x[0][i], b = x[1][i], c = (sources) > 2 ? x[2][i] : 0;                          \
                (void)c;                                                                                     \
                uint32_t r = (uint32_t)(expression)&0xffff;                                                  \
                w->tmp[i] = low[i] | r << 16;                                                                \
                low[i] = r;                                                                                  \
            }                                                                                                \
        }                                                                                                    \
        finish_halves(w, o);                                                                                 \
    }

static inline float clamped(float f)
{
    return f > 0 ? f < 1 ? f : 1 : 0;
}

static void finish_halves(struct wave *w, const struct op *o)
{
    struct op plain = *o;
    plain.clamp = 0;
    if (o->clamp)
        LANES(i)
        {
            uint32_t u = w->tmp[i];
            w->tmp[i] = f16_of_f32(clamped(F(u & 0xffff))) | f16_of_f32(clamped(F(u >> 16))) << 16;
        }
    EMU_NAME(emu_done_slow)(w, &plain, w->tmp, 1);
}

static inline float most(float a, float b)
{
    return a != a ? b : b != b ? a : a == b ? f32_of_bits(bits_of_f32(a) & bits_of_f32(b)) : a > b ? a : b;
}

static inline float least(float a, float b)
{
    return a != a ? b : b != b ? a : a == b ? f32_of_bits(bits_of_f32(a) | bits_of_f32(b)) : a < b ? a : b;
}

PAIR(v_pk_add, 2, 0x8000, f16_of_f32(F(a) + F(b)))
PAIR(v_pk_mul, 2, 0x8000, f16_of_f32(F(a) * F(b)))
PAIR(v_pk_max, 2, 0x8000, f16_of_f32(most(F(a), F(b))))
PAIR(v_pk_min, 2, 0x8000, f16_of_f32(least(F(a), F(b))))
PAIR(v_pk_fma, 3, 0x8000, f16_of_f64((double)F(a) * (double)F(b) + (double)F(c)))
PAIR(v_pk_add_u16, 2, 0, a + b)
PAIR(v_pk_sub_u16, 2, 0, a - b)
PAIR(v_pk_mul_u16, 2, 0, a *b)
PAIR(v_pk_mad_u16, 3, 0, a *b + c)
PAIR(v_pk_lshlrev, 2, 0, b << (a & 15))
PAIR(v_pk_lshrrev, 2, 0, b >> (a & 15))
PAIR(v_pk_ashrrev, 2, 0, S(b) >> (a & 15))
PAIR(v_pk_min_u16, 2, 0, a < b ? a : b)
PAIR(v_pk_max_u16, 2, 0, a > b ? a : b)
PAIR(v_pk_min_i16, 2, 0, S(a) < S(b) ? a : b)
PAIR(v_pk_max_i16, 2, 0, S(a) > S(b) ? a : b)

static void v_pk_fmac(struct wave *w, const struct op *o)
{
    struct op three = *o;
    three.at[3] = o->at[0];
    three.at[3].plain = true;
    three.count = 4;
    three.op_sel_hi = 7;
    v_pk_fma(w, &three);
}

/* Pairs of f32: a source's word for each of the two results is told by op_sel and op_sel_hi. */
static const uint32_t *word(struct wave *w, const struct op *o, unsigned k, bool high, uint32_t *tmp)
{
    const uint32_t *from = src(w, &o->at[k], tmp);
    if (o->at[k].kind != AT_CONST && ((high ? o->op_sel_hi : o->op_sel) >> (k - 1) & 1))
        from += EMU_ROW;
    if (((high ? o->neg_hi : o->neg_lo) >> (k - 1) & 1) == 0)
        return from;
    LANES(i) tmp[i] = from[i] ^ 0x80000000;
    return tmp;
}

/* Both results of a lane before either is written: sources may be the destination. */
#define PAIR_F32(name, sources, expression)                                                                  \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t t[6][2 * EMU_ROW];                                                                          \
        const uint32_t *pa = word(w, o, 1, false, t[0]), *pb = word(w, o, 2, false, t[1]);                   \
        const uint32_t *qa = word(w, o, 1, true, t[2]), *qb = word(w, o, 2, true, t[3]);                     \
        const uint32_t *pc = (sources) > 2 ? word(w, o, 3, false, t[4]) : pa;                                \
        const uint32_t *qc = (sources) > 2 ? word(w, o, 3, true, t[5]) : qa;                                 \
        uint32_t *d = dst(w, o);                                                                             \
        LANES(i)                                                                                             \
        {                                                                                                    \
            float a = f32_of_bits(pa[i]), b = f32_of_bits(pb[i]), c = f32_of_bits(pc[i]);                    \
            (void)c;                                                                                         \
            float low = (expression);                                                                        \
            a = f32_of_bits(qa[i]), b = f32_of_bits(qb[i]), c = f32_of_bits(qc[i]);                          \
            float high = (expression);                                                                       \
            d[i] = bits_of_f32(low);                                                                         \
            d[EMU_ROW + i] = bits_of_f32(high);                                                              \
        }                                                                                                    \
        if (o->clamp)                                                                                        \
            LANES(i)                                                                                         \
            {                                                                                                \
                d[i] = bits_of_f32(clamped(f32_of_bits(d[i])));                                              \
                d[EMU_ROW + i] = bits_of_f32(clamped(f32_of_bits(d[EMU_ROW + i])));                          \
            }                                                                                                \
        done(w, o, d, 2);                                                                                    \
    }
PAIR_F32(v_pk_add_f32, 2, a + b)
PAIR_F32(v_pk_mul_f32, 2, a *b)
PAIR_F32(v_pk_fma_f32, 3, fmaf(a, b, c))

/* Dot products of two: the sum in f64 is exact but for its last rounding. */
static inline float dot_f16(uint32_t a, uint32_t b, float c)
{
    return (float)((double)F(a & 0xffff) * (double)F(b & 0xffff) + (double)F(a >> 16) * (double)F(b >> 16) +
                   (double)c);
}

static inline float dot_bf16(uint32_t a, uint32_t b, float c)
{
    double low = (double)f32_of_bf16(a & 0xffff) * (double)f32_of_bf16(b & 0xffff);
    return (float)(low + (double)f32_of_bits(a & 0xffff0000) * (double)f32_of_bits(b & 0xffff0000) +
                   (double)c);
}

static void v_dot2(struct wave *w, const struct op *o)
{
    uint32_t a[2][EMU_ROW], b[2][EMU_ROW];
    uint32_t tc[EMU_ROW];
    for (unsigned high = 0; high < 2; high++) {
        halves(w, o, 1, high, 0x8000, a[high]);
        halves(w, o, 2, high, 0x8000, b[high]);
    }
    const uint32_t *pc = src(w, &o->at[3], tc);
    uint32_t flip = o->neg_lo & 4 ? 0x80000000 : 0;
    bool bf16 = o->size == 1;
    LANES(i)
    {
        uint32_t x = a[0][i] | a[1][i] << 16, y = b[0][i] | b[1][i] << 16;
        float c = f32_of_bits(pc[i] ^ flip);
        w->tmp[i] = bits_of_f32(bf16 ? dot_bf16(x, y, c) : dot_f16(x, y, c));
    }
    EMU_NAME(emu_done_slow)(w, o, w->tmp, 1);
}

VECTOR2_ON(v_dot2c, f, dot_f16(a.u, b.u, c.f))
VECTOR2_ON(v_dot2c_bf16, f, dot_bf16(a.u, b.u, c.f))

#define P2(name, run)                                                                                        \
    {                                                                                                        \
        name, "ppp", run, E_PACKED, 0                                                                        \
    }
#define P3(name, run)                                                                                        \
    {                                                                                                        \
        name, "pppp", run, E_PACKED, 0                                                                       \
    }
static const struct entry entries[] = {
    P2("v_pk_add_f16", v_pk_add),
    P2("v_pk_mul_f16", v_pk_mul),
    P2("v_pk_max_f16", v_pk_max),
    P2("v_pk_min_f16", v_pk_min),
    P3("v_pk_fma_f16", v_pk_fma),
    P2("v_pk_fmac_f16", v_pk_fmac),
    P2("v_pk_add_u16", v_pk_add_u16),
    P2("v_pk_add_i16", v_pk_add_u16),
    P2("v_pk_sub_u16", v_pk_sub_u16),
    P2("v_pk_sub_i16", v_pk_sub_u16),
    P2("v_pk_mul_lo_u16", v_pk_mul_u16),
    P3("v_pk_mad_u16", v_pk_mad_u16),
    P3("v_pk_mad_i16", v_pk_mad_u16),
    P2("v_pk_lshlrev_b16", v_pk_lshlrev),
    P2("v_pk_lshrrev_b16", v_pk_lshrrev),
    P2("v_pk_ashrrev_i16", v_pk_ashrrev),
    P2("v_pk_min_u16", v_pk_min_u16),
    P2("v_pk_max_u16", v_pk_max_u16),
    P2("v_pk_min_i16", v_pk_min_i16),
    P2("v_pk_max_i16", v_pk_max_i16),
    {"v_pk_add_f32", "ggg", v_pk_add_f32, E_PACKED, 0},
    {"v_pk_mul_f32", "ggg", v_pk_mul_f32, E_PACKED, 0},
    {"v_pk_fma_f32", "gggg", v_pk_fma_f32, E_PACKED, 0},
    {"v_dot2_f32_f16", "fppf", v_dot2, E_PACKED, 0},
    {"v_dot2_f32_bf16", "fppf", v_dot2, E_PACKED, 1},
    {"v_dot2c_f32_f16", "fpp", v_dot2c, E_PACKED, 0},
    {"v_dot2c_f32_bf16", "fpp", v_dot2c_bf16, E_PACKED, 0},
};

const struct entry_list EMU_NAME(vpk) = {entries, sizeof entries / sizeof *entries};
