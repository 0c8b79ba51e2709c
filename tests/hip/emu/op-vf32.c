/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Vector arithmetic on f32, with what a GPU's special functions do not do: denormals. */
#include "emu-vector.h"

/* maxNum and minNum: a number rather than a NaN, and +0 above -0. */
static inline float most(float a, float b)
{
    float x = a > b ? a : b;
    x = a == b ? f32_of_bits(bits_of_f32(a) & bits_of_f32(b)) : x;
    x = a != a ? b : x;
    return b != b ? a : x;
}

static inline float least(float a, float b)
{
    float x = a < b ? a : b;
    x = a == b ? f32_of_bits(bits_of_f32(a) | bits_of_f32(b)) : x;
    x = a != a ? b : x;
    return b != b ? a : x;
}

/* maximum and minimum of IEEE 754-2019: a NaN wins. */
static inline float most_nan(float a, float b)
{
    return a != a ? a : b != b ? b : most(a, b);
}

static inline float least_nan(float a, float b)
{
    return a != a ? a : b != b ? b : least(a, b);
}

static inline float median(float a, float b, float c)
{
    float x = most(least(a, b), least(most(a, b), c));
    return a != a || b != b || c != c ? least(least(a, b), c) : x;
}

static inline float scaled(float a, int32_t by)
{
    int32_t n = by > 400 ? 400 : by < -400 ? -400 : by;
    return ldexpf(a, n);
}

static inline float legacy(float a, float b)
{
    return a == 0 || b == 0 ? 0 : a * b;
}

static inline float fraction(float a)
{
    float x = a - floorf(a);
    return x >= 1 ? 0x1.fffffep-1f : x;
}

static inline int32_t exponent_of(float a)
{
    int e = 0;
    if (a != a || isinf(a))
        return 0;
    (void)frexpf(a, &e);
    return e;
}

static inline float mantissa_of(float a)
{
    int e;
    return a != a || isinf(a) ? a : frexpf(a, &e);
}

VECTOR2(v_add, f, a.f + b.f)
VECTOR2(v_sub, f, a.f - b.f)
VECTOR2(v_subrev, f, b.f - a.f)
VECTOR2(v_mul, f, a.f *b.f)
VECTOR2(v_mul_zero, f, legacy(a.f, b.f))
VECTOR2(v_max, f, most(a.f, b.f))
VECTOR2(v_min, f, least(a.f, b.f))
VECTOR2(v_maximum, f, most_nan(a.f, b.f))
VECTOR2(v_minimum, f, least_nan(a.f, b.f))
VECTOR2(v_ldexp, f, scaled(a.f, b.i))
VECTOR3(v_fma, f, fmaf(a.f, b.f, c.f))
VECTOR3(v_mad, f, a.f *b.f + c.f)
VECTOR3(v_max3, f, most(most(a.f, b.f), c.f))
VECTOR3(v_min3, f, least(least(a.f, b.f), c.f))
VECTOR3(v_maximum3, f, most_nan(most_nan(a.f, b.f), c.f))
VECTOR3(v_minimum3, f, least_nan(least_nan(a.f, b.f), c.f))
VECTOR3(v_med3, f, median(a.f, b.f, c.f))
VECTOR3(v_maxmin, f, least(most(a.f, b.f), c.f))
VECTOR3(v_minmax, f, most(least(a.f, b.f), c.f))
VECTOR2_ON(v_fmac, f, fmaf(a.f, b.f, c.f))
VECTOR2_ON(v_mac, f, a.f *b.f + c.f)
VECTOR1(v_exp, f, f32_flushed(exp2f(f32_flushed(a.f))))
VECTOR1(v_log, f, log2f(f32_flushed(a.f)))
VECTOR1(v_rcp, f, f32_flushed(1 / f32_flushed(a.f)))
VECTOR1(v_rsq, f, 1 / sqrtf(f32_flushed(a.f)))
VECTOR1(v_sqrt, f, sqrtf(f32_flushed(a.f)))
VECTOR1(v_trunc, f, truncf(a.f))
VECTOR1(v_floor, f, floorf(a.f))
VECTOR1(v_ceil, f, ceilf(a.f))
VECTOR1(v_rndne, f, rintf(a.f))
VECTOR1(v_fract, f, fraction(a.f))
VECTOR1(v_frexp_exp, i, exponent_of(a.f))
VECTOR1(v_frexp_mant, f, mantissa_of(a.f))

/* The division that compilers expand: scale, reciprocal, steps of Newton, fmas, fixup. */
static inline uint32_t exponent_bits(float f)
{
    return bits_of_f32(f) >> 23 & 255;
}

static inline bool is_denormal(float f)
{
    return exponent_bits(f) == 0 && f != 0;
}

static float div_scale(float s0, float s1, float s2, bool *flag)
{
    bool numerator = bits_of_f32(s0) == bits_of_f32(s2);
    bool denominator = bits_of_f32(s0) == bits_of_f32(s1);
    int32_t apart = (int32_t)exponent_bits(s2) - (int32_t)exponent_bits(s1);
    *flag = false;
    if (s2 == 0 || s1 == 0)
        return NAN;
    if (apart >= 96) { /* the quotient may overflow */
        *flag = true;
        return denominator ? s0 * 0x1p64f : s0;
    }
    if (is_denormal(s1))
        return s0 * 0x1p64f;
    if (is_denormal(1 / s1) && is_denormal(s2 / s1)) {
        *flag = true;
        return denominator ? s0 * 0x1p64f : s0;
    }
    if (is_denormal(1 / s1))
        return s0 * 0x1p-64f;
    if (is_denormal(s2 / s1)) {
        *flag = true;
        return numerator ? s0 * 0x1p64f : s0;
    }
    return exponent_bits(s2) <= 23 ? s0 * 0x1p64f : s0;
}

static void v_div_scale(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW], tb[EMU_ROW], tc[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[2], ta), *pb = src(w, &o->at[3], tb), *pc = src(w, &o->at[4], tc);
    uint64_t mask = 0, exec = wave_exec(w);
    for (uint32_t i = 0; i < w->lanes; i++) {
        bool flag;
        w->tmp[i] = bits_of_f32(div_scale(f32_of_bits(pa[i]), f32_of_bits(pb[i]), f32_of_bits(pc[i]), &flag));
        mask |= (uint64_t)flag << i;
    }
    EMU_NAME(emu_done_slow)(w, o, w->tmp, 1);
    wave_mask_set(w, o->at[1].index, mask & exec);
}

static void v_div_fmas(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW], tb[EMU_ROW], tc[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb), *pc = src(w, &o->at[3], tc);
    uint64_t m = wave_mask(w, S_VCC);
    uint32_t *d = dst(w, o);
    for (uint32_t i = 0; i < w->lanes; i++) {
        double exact =
            fma((double)f32_of_bits(pa[i]), (double)f32_of_bits(pb[i]), (double)f32_of_bits(pc[i]));
        double by = exponent_bits(f32_of_bits(pc[i])) > 127 ? 0x1p64 : 0x1p-64;
        d[i] = bits_of_f32(m >> i & 1 ? (float)(exact * by)
                                      : fmaf(f32_of_bits(pa[i]), f32_of_bits(pb[i]), f32_of_bits(pc[i])));
    }
    done(w, o, d, 1);
}

static float div_fixup(float s0, float s1, float s2)
{
    uint32_t sign = (bits_of_f32(s1) ^ bits_of_f32(s2)) & 0x80000000;
    if (s2 != s2)
        return s2;
    if (s1 != s1)
        return s1;
    if ((s1 == 0 && s2 == 0) || (isinf(s1) && isinf(s2)))
        return f32_of_bits(0xffc00000);
    if (s1 == 0 || isinf(s2))
        return f32_of_bits(sign | 0x7f800000);
    if (isinf(s1) || s2 == 0)
        return f32_of_bits(sign);
    int32_t apart = (int32_t)exponent_bits(s2) - (int32_t)exponent_bits(s1);
    if (apart < -150)
        return f32_of_bits(sign);
    return f32_of_bits((bits_of_f32(s0) & 0x7fffffff) | sign);
}
VECTOR3(v_div_fixup, f, div_fixup(a.f, b.f, c.f))

#define F1(name, run)                                                                                        \
    {                                                                                                        \
        name, "ff", run, 0, 0                                                                                \
    }
#define F2(name, run)                                                                                        \
    {                                                                                                        \
        name, "fff", run, 0, 0                                                                               \
    }
#define F3(name, run)                                                                                        \
    {                                                                                                        \
        name, "ffff", run, 0, 0                                                                              \
    }
static const struct entry entries[] = {
    F2("v_add_f32", v_add),
    F2("v_sub_f32", v_sub),
    F2("v_subrev_f32", v_subrev),
    F2("v_mul_f32", v_mul),
    F2("v_mul_dx9_zero_f32", v_mul_zero),
    F2("v_max_f32", v_max),
    F2("v_min_f32", v_min),
    F2("v_maximum_f32", v_maximum),
    F2("v_minimum_f32", v_minimum),
    {"v_ldexp_f32", "ffu", v_ldexp, 0, 0},
    F3("v_fma_f32", v_fma),
    F3("v_mad_f32", v_mad),
    F3("v_fmaak_f32", v_fma),
    F3("v_fmamk_f32", v_fma),
    F3("v_madak_f32", v_mad),
    F3("v_madmk_f32", v_mad),
    F3("v_max3_f32", v_max3),
    F3("v_min3_f32", v_min3),
    F3("v_maximum3_f32", v_maximum3),
    F3("v_minimum3_f32", v_minimum3),
    F3("v_med3_f32", v_med3),
    F3("v_maxmin_f32", v_maxmin),
    F3("v_minmax_f32", v_minmax),
    F2("v_fmac_f32", v_fmac),
    F2("v_mac_f32", v_mac),
    F1("v_exp_f32", v_exp),
    F1("v_log_f32", v_log),
    F1("v_rcp_f32", v_rcp),
    F1("v_rcp_iflag_f32", v_rcp),
    F1("v_rsq_f32", v_rsq),
    F1("v_sqrt_f32", v_sqrt),
    F1("v_trunc_f32", v_trunc),
    F1("v_floor_f32", v_floor),
    F1("v_ceil_f32", v_ceil),
    F1("v_rndne_f32", v_rndne),
    F1("v_fract_f32", v_fract),
    {"v_frexp_exp_i32_f32", "uf", v_frexp_exp, 0, 0},
    F1("v_frexp_mant_f32", v_frexp_mant),
    {"v_div_scale_f32", "fmfff", v_div_scale, 0, 0},
    F3("v_div_fmas_f32", v_div_fmas),
    F3("v_div_fixup_f32", v_div_fixup),
};

const struct entry_list EMU_NAME(vf32) = {entries, sizeof entries / sizeof *entries};
