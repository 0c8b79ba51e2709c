/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Vector arithmetic on f16, and on f32 with some sources in f16. */
#include "emu-vector.h"

static inline float half(uint32_t u)
{
    return f32_of_f16(u & 0xffff);
}

static inline float most(float a, float b)
{
    return a != a ? b : b != b ? a : a == b ? f32_of_bits(bits_of_f32(a) & bits_of_f32(b)) : a > b ? a : b;
}

static inline float least(float a, float b)
{
    return a != a ? b : b != b ? a : a == b ? f32_of_bits(bits_of_f32(a) | bits_of_f32(b)) : a < b ? a : b;
}

/* Exact enough in f64 that one rounding to f16 is all there is. */
static inline uint32_t fused(uint32_t a, uint32_t b, uint32_t c)
{
    return f16_of_f64((double)half(a) * (double)half(b) + (double)half(c));
}

static inline float median(float a, float b, float c)
{
    return most(least(a, b), least(most(a, b), c));
}

#define H(x) f16_of_f32(x)
VECTOR2(v_add, u, H(half(a.u) + half(b.u)))
VECTOR2(v_sub, u, H(half(a.u) - half(b.u)))
VECTOR2(v_subrev, u, H(half(b.u) - half(a.u)))
VECTOR2(v_mul, u, H(half(a.u) * half(b.u)))
VECTOR2(v_max, u, H(most(half(a.u), half(b.u))))
VECTOR2(v_min, u, H(least(half(a.u), half(b.u))))
VECTOR2(v_ldexp, u, H(ldexpf(half(a.u), (int16_t)b.u)))
VECTOR3(v_fma, u, fused(a.u, b.u, c.u))
VECTOR3(v_max3, u, H(most(most(half(a.u), half(b.u)), half(c.u))))
VECTOR3(v_min3, u, H(least(least(half(a.u), half(b.u)), half(c.u))))
VECTOR3(v_med3, u, H(median(half(a.u), half(b.u), half(c.u))))
VECTOR2_ON(v_fmac, u, fused(a.u, b.u, c.u))
VECTOR1(v_rcp, u, H(1 / half(a.u)))
VECTOR1(v_rsq, u, H(1 / sqrtf(half(a.u))))
VECTOR1(v_sqrt, u, H(sqrtf(half(a.u))))
VECTOR1(v_exp, u, H(exp2f(half(a.u))))
VECTOR1(v_log, u, H(log2f(half(a.u))))
VECTOR1(v_trunc, u, H(truncf(half(a.u))))
VECTOR1(v_floor, u, H(floorf(half(a.u))))
VECTOR1(v_ceil, u, H(ceilf(half(a.u))))
VECTOR1(v_rndne, u, H(rintf(half(a.u))))

/* A source of a mixed operation: f32, or the half that op_sel tells. */
static const uint32_t *mixed(struct wave *w, const struct op *o, unsigned k, uint32_t *tmp)
{
    struct operand s = o->at[k];
    bool is_half = o->op_sel_hi >> (k - 1) & 1, high = o->op_sel >> (k - 1) & 1;
    s.mods = 0;
    s.plain = s.kind == AT_VGPR;
    s.type = 'u';
    const uint32_t *from = src(w, &s, tmp);
    if (!is_half && o->at[k].mods == 0)
        return from;
    uint32_t shift = high ? 16 : 0;
    if (is_half &&
        s.kind == AT_CONST) { /* an inline number is read as f32 here: it is no f16 in a register */
        uint32_t x = (uint32_t)s.value;
        uint32_t exponent = x >> 23 & 255;
        if (x <= 0xffff)
            LANES(i) tmp[i] = bits_of_f32(half(x >> shift));
        else if (exponent != 0)
            LANES(i) tmp[i] = x;
    } else if (is_half) {
        LANES(i) tmp[i] = bits_of_f32(half(from[i] >> shift));
    } else {
        LANES(i) tmp[i] = from[i];
    }
    uint32_t keep = o->at[k].mods & MOD_ABS ? 0x7fffffff : ~0u,
             flip = o->at[k].mods & MOD_NEG ? 0x80000000 : 0;
    LANES(i) tmp[i] = (tmp[i] & keep) ^ flip;
    return tmp;
}

static void v_fma_mix(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW], tb[EMU_ROW], tc[EMU_ROW];
    const uint32_t *pa = mixed(w, o, 1, ta), *pb = mixed(w, o, 2, tb), *pc = mixed(w, o, 3, tc);
    uint32_t *d = dst(w, o);
    LANES(i) d[i] = bits_of_f32(fmaf(f32_of_bits(pa[i]), f32_of_bits(pb[i]), f32_of_bits(pc[i])));
    done(w, o, d, 1);
}

/* The result in f16, in the low (size 0) or high half; the other one stays. */
static void v_fma_mix_half(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW], tb[EMU_ROW], tc[EMU_ROW];
    const uint32_t *pa = mixed(w, o, 1, ta), *pb = mixed(w, o, 2, tb), *pc = mixed(w, o, 3, tc);
    const uint32_t *old = w->v + o->at[0].offset;
    uint32_t shift = o->size, keep = o->size ? 0xffff : 0xffff0000;
    LANES(i)
    {
        double x = fma((double)f32_of_bits(pa[i]), (double)f32_of_bits(pb[i]), (double)f32_of_bits(pc[i]));
        x = o->clamp ? x > 0 ? x < 1 ? x : 1 : 0 : x;
        w->tmp[i] = (old[i] & keep) | f16_of_f64(x) << shift;
    }
    struct op plain = *o;
    plain.clamp = 0;
    plain.dst_select = 6;
    EMU_NAME(emu_done_slow)(w, &plain, w->tmp, 1);
}

#define H1(name, run)                                                                                        \
    {                                                                                                        \
        name, "hh", run, E_HALF, 0                                                                           \
    }
#define H2(name, run)                                                                                        \
    {                                                                                                        \
        name, "hhh", run, E_HALF, 0                                                                          \
    }
#define H3(name, run)                                                                                        \
    {                                                                                                        \
        name, "hhhh", run, 0, 0                                                                              \
    }
static const struct entry entries[] = {
    H2("v_add_f16", v_add),
    H2("v_sub_f16", v_sub),
    H2("v_subrev_f16", v_subrev),
    H2("v_mul_f16", v_mul),
    H2("v_max_f16", v_max),
    H2("v_min_f16", v_min),
    {"v_ldexp_f16", "hhw", v_ldexp, E_HALF, 0},
    H3("v_fma_f16", v_fma),
    H3("v_fmaak_f16", v_fma),
    H3("v_fmamk_f16", v_fma),
    H3("v_max3_f16", v_max3),
    H3("v_min3_f16", v_min3),
    H3("v_med3_f16", v_med3),
    {"v_fmac_f16", "hhh", v_fmac, 0, 0},
    H1("v_rcp_f16", v_rcp),
    H1("v_rsq_f16", v_rsq),
    H1("v_sqrt_f16", v_sqrt),
    H1("v_exp_f16", v_exp),
    H1("v_log_f16", v_log),
    H1("v_trunc_f16", v_trunc),
    H1("v_floor_f16", v_floor),
    H1("v_ceil_f16", v_ceil),
    H1("v_rndne_f16", v_rndne),
    {"v_fma_mix_f32", "ffff", v_fma_mix, E_PACKED | E_MIX, 0},
    {"v_fma_mixlo_f16", "ffff", v_fma_mix_half, E_PACKED | E_MIX, 0},
    {"v_fma_mixhi_f16", "ffff", v_fma_mix_half, E_PACKED | E_MIX, 16},
};

const struct entry_list EMU_NAME(vf16) = {entries, sizeof entries / sizeof *entries};
