/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Vector arithmetic on f64. Reciprocals are as rough as the GPU's, so that code which trusts them shows. */
#include "emu-vector.h"

static inline uint64_t bits_of(double d)
{
    uint64_t u;
    memcpy(&u, &d, 8);
    return u;
}

static inline double of_bits(uint64_t u)
{
    double d;
    memcpy(&d, &u, 8);
    return d;
}

static inline double most(double a, double b)
{
    double x = a > b ? a : b;
    x = a == b ? of_bits(bits_of(a) & bits_of(b)) : x;
    x = a != a ? b : x;
    return b != b ? a : x;
}

static inline double least(double a, double b)
{
    double x = a < b ? a : b;
    x = a == b ? of_bits(bits_of(a) | bits_of(b)) : x;
    x = a != a ? b : x;
    return b != b ? a : x;
}

/* 2^29 ulp, as documented: the lowest 28 bits of the significand are lost. */
static inline double rough(double x)
{
    uint64_t u = bits_of(x);
    return of_bits((u & 0x7ff0000000000000ull) == 0x7ff0000000000000ull ? u : u & ~0xfffffffull);
}

static inline uint32_t exponent_bits(double d)
{
    return (uint32_t)(bits_of(d) >> 52) & 2047;
}

static inline bool is_denormal(double d)
{
    return exponent_bits(d) == 0 && d != 0;
}

static inline double fraction(double a)
{
    double x = a - floor(a);
    return x >= 1 ? 0x1.fffffffffffffp-1 : x;
}

VECTOR2_F64(v_add, a + b)
VECTOR2_F64(v_mul, a *b)
VECTOR2_F64(v_max, most(a, b))
VECTOR2_F64(v_min, least(a, b))
VECTOR3_F64(v_fma, fma(a, b, c))
VECTOR1_F64(v_rcp, rough(1 / a))
VECTOR1_F64(v_rsq, rough(1 / sqrt(a)))
VECTOR1_F64(v_sqrt, rough(sqrt(a)))
VECTOR1_F64(v_trunc, trunc(a))
VECTOR1_F64(v_floor, floor(a))
VECTOR1_F64(v_ceil, ceil(a))
VECTOR1_F64(v_rndne, rint(a))
VECTOR1_F64(v_fract, fraction(a))

static void v_ldexp(struct wave *w, const struct op *o)
{
    uint32_t ta[2 * EMU_ROW], tb[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb);
    uint32_t *d = dst(w, o);
    for (int i = 0; i < (int)w->lanes; i++) {
        int32_t by = (int32_t)pb[i] > 3000 ? 3000 : (int32_t)pb[i] < -3000 ? -3000 : (int32_t)pb[i];
        lanes_put_f64(d, i, ldexp(f64_of_lanes(pa, i), by));
    }
    done(w, o, d, 2);
}

static void v_frexp_exp(struct wave *w, const struct op *o)
{
    uint32_t ta[2 * EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta);
    uint32_t *d = dst(w, o);
    for (int i = 0; i < (int)w->lanes; i++) {
        double a = f64_of_lanes(pa, i);
        int e = 0;
        if (a == a && !isinf(a))
            (void)frexp(a, &e);
        d[i] = (uint32_t)(e);
    }
    done(w, o, d, 1);
}

static inline double mantissa_of(double a)
{
    int e;
    return a != a || isinf(a) ? a : frexp(a, &e);
}
VECTOR1_F64(v_frexp_mant, mantissa_of(a))

/* As for f32, with the limits of f64. */
static double div_scale(double s0, double s1, double s2, bool *flag)
{
    bool numerator = bits_of(s0) == bits_of(s2);
    bool denominator = bits_of(s0) == bits_of(s1);
    int32_t apart = (int32_t)exponent_bits(s2) - (int32_t)exponent_bits(s1);
    *flag = false;
    if (s2 == 0 || s1 == 0)
        return NAN;
    if (apart >= 768) {
        *flag = true;
        return denominator ? s0 * 0x1p128 : s0;
    }
    if (is_denormal(s1))
        return s0 * 0x1p128;
    if (is_denormal(1 / s1) && is_denormal(s2 / s1)) {
        *flag = true;
        return denominator ? s0 * 0x1p128 : s0;
    }
    if (is_denormal(1 / s1))
        return s0 * 0x1p-128;
    if (is_denormal(s2 / s1)) {
        *flag = true;
        return numerator ? s0 * 0x1p128 : s0;
    }
    return exponent_bits(s2) <= 53 ? s0 * 0x1p128 : s0;
}

static void v_div_scale(struct wave *w, const struct op *o)
{
    uint32_t ta[2 * EMU_ROW], tb[2 * EMU_ROW], tc[2 * EMU_ROW];
    const uint32_t *pa = src(w, &o->at[2], ta), *pb = src(w, &o->at[3], tb), *pc = src(w, &o->at[4], tc);
    uint64_t mask = 0, exec = wave_exec(w);
    for (int i = 0; i < (int)w->lanes; i++) {
        bool flag;
        double x = div_scale(f64_of_lanes(pa, i), f64_of_lanes(pb, i), f64_of_lanes(pc, i), &flag);
        lanes_put_f64(w->tmp, i, x);
        mask |= (uint64_t)flag << i;
    }
    EMU_NAME(emu_done_slow)(w, o, w->tmp, 2);
    wave_mask_set(w, o->at[1].index, mask & exec);
}

static void v_div_fmas(struct wave *w, const struct op *o)
{
    uint32_t ta[2 * EMU_ROW], tb[2 * EMU_ROW], tc[2 * EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb), *pc = src(w, &o->at[3], tc);
    uint64_t m = wave_mask(w, S_VCC);
    uint32_t *d = dst(w, o);
    for (int i = 0; i < (int)w->lanes; i++) {
        double c = f64_of_lanes(pc, i);
        double x = fma(f64_of_lanes(pa, i), f64_of_lanes(pb, i), c);
        double by = exponent_bits(c) > 1023 ? 0x1p128 : 0x1p-128;
        lanes_put_f64(d, i, m >> i & 1 ? x * by : x);
    }
    done(w, o, d, 2);
}

static double div_fixup(double s0, double s1, double s2)
{
    uint64_t sign = (bits_of(s1) ^ bits_of(s2)) & 0x8000000000000000ull;
    if (s2 != s2)
        return s2;
    if (s1 != s1)
        return s1;
    if ((s1 == 0 && s2 == 0) || (isinf(s1) && isinf(s2)))
        return of_bits(0xfff8000000000000ull);
    if (s1 == 0 || isinf(s2))
        return of_bits(sign | 0x7ff0000000000000ull);
    if (isinf(s1) || s2 == 0)
        return of_bits(sign);
    if ((int32_t)exponent_bits(s2) - (int32_t)exponent_bits(s1) < -1075)
        return of_bits(sign);
    return of_bits((bits_of(s0) & ~0x8000000000000000ull) | sign);
}
VECTOR3_F64(v_div_fixup, div_fixup(a, b, c))

#define D1(name, run)                                                                                        \
    {                                                                                                        \
        name, "dd", run, 0, 0                                                                                \
    }
#define D2(name, run)                                                                                        \
    {                                                                                                        \
        name, "ddd", run, 0, 0                                                                               \
    }
#define D3(name, run)                                                                                        \
    {                                                                                                        \
        name, "dddd", run, 0, 0                                                                              \
    }
static const struct entry entries[] = {
    D2("v_add_f64", v_add),
    D2("v_mul_f64", v_mul),
    D2("v_max_f64", v_max),
    D2("v_min_f64", v_min),
    D3("v_fma_f64", v_fma),
    D1("v_rcp_f64", v_rcp),
    D1("v_rsq_f64", v_rsq),
    D1("v_sqrt_f64", v_sqrt),
    D1("v_trunc_f64", v_trunc),
    D1("v_floor_f64", v_floor),
    D1("v_ceil_f64", v_ceil),
    D1("v_rndne_f64", v_rndne),
    D1("v_fract_f64", v_fract),
    D2("v_fmac_f64", v_fma),
    {"v_ldexp_f64", "ddu", v_ldexp, 0, 0},
    {"v_frexp_exp_i32_f64", "ud", v_frexp_exp, 0, 0},
    D1("v_frexp_mant_f64", v_frexp_mant),
    {"v_div_scale_f64", "dmddd", v_div_scale, 0, 0},
    D3("v_div_fmas_f64", v_div_fmas),
    D3("v_div_fixup_f64", v_div_fixup),
};

const struct entry_list EMU_NAME(vf64) = {entries, sizeof entries / sizeof *entries};
