/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Vector comparisons: a bit of a scalar mask for each active lane. */
#include "emu-vector.h"

static inline uint8_t flag(bool b)
{
    return b;
}

/* v_cmpx (size 1) writes EXEC too. */
static void finish(struct wave *w, const struct op *o, const uint8_t flags[EMU_ROW])
{
    uint64_t mask = mask_of_lanes(w, flags);
    wave_mask_set(w, o->at[0].index, mask);
    if (o->size == 1)
        exec_set(w, mask);
}

#define COMPARE(name, rows, type, load, expression)                                                          \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t ta[(rows)*EMU_ROW], tb[(rows)*EMU_ROW];                                                     \
        uint8_t flags[EMU_ROW];                                                                              \
        const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb);                             \
        LANES(i)                                                                                             \
        {                                                                                                    \
            type a = (type)load(pa, i), b = (type)load(pb, i);                                               \
            flags[i] = flag(expression);                                                                     \
        }                                                                                                    \
        finish(w, o, flags);                                                                                 \
    }

#define U32(p, i) (p)[i]
#define I32(p, i) (int32_t)(p)[i]
#define F32(p, i) f32_of_bits((p)[i])
#define U16(p, i) ((p)[i] & 0xffff)
#define F16(p, i) f32_of_f16((p)[i] & 0xffff)
#define U64(p, i) u64_of_lanes(p, i)
#define F64(p, i) f64_of_lanes(p, i)

#define ORDERED(suffix, rows, type, load)                                                                    \
    COMPARE(eq_##suffix, rows, type, load, a == b)                                                           \
    COMPARE(ne_##suffix, rows, type, load, a != b)                                                           \
    COMPARE(gt_##suffix, rows, type, load, a > b)                                                            \
    COMPARE(ge_##suffix, rows, type, load, a >= b)                                                           \
    COMPARE(lt_##suffix, rows, type, load, a < b)                                                            \
    COMPARE(le_##suffix, rows, type, load, a <= b)
#define UNORDERED(suffix, rows, type, load)                                                                  \
    ORDERED(suffix, rows, type, load)                                                                        \
    COMPARE(lg_##suffix, rows, type, load, a<b || a> b)                                                      \
    COMPARE(o_##suffix, rows, type, load, a == a && b == b)                                                  \
    COMPARE(u_##suffix, rows, type, load, a != a || b != b)                                                  \
    COMPARE(nge_##suffix, rows, type, load, !(a >= b))                                                       \
    COMPARE(ngt_##suffix, rows, type, load, !(a > b))                                                        \
    COMPARE(nle_##suffix, rows, type, load, !(a <= b))                                                       \
    COMPARE(nlt_##suffix, rows, type, load, !(a < b))                                                        \
    COMPARE(nlg_##suffix, rows, type, load, !(a < b || a > b))

ORDERED(u32, 1, uint32_t, U32)
ORDERED(i32, 1, int32_t, I32)
ORDERED(u16, 1, uint16_t, U16)
ORDERED(i16, 1, int16_t, U16)
ORDERED(u64, 2, uint64_t, U64)
ORDERED(i64, 2, int64_t, U64)
UNORDERED(f32, 1, float, F32)
UNORDERED(f16, 1, float, F16)
UNORDERED(f64, 2, double, F64)

/* Signalling NaN, quiet NaN, then -infinity, -normal, -denormal, -0, +0, +denormal, +normal, +infinity. */
static uint32_t class_of(uint64_t bits, unsigned exponent, unsigned mantissa)
{
    uint64_t e = bits >> mantissa & ((1ull << exponent) - 1), m = bits & ((1ull << mantissa) - 1);
    bool negative = bits >> (exponent + mantissa) & 1;
    if (e == (1ull << exponent) - 1) {
        if (m != 0)
            return m >> (mantissa - 1) & 1 ? 2 : 1;
        return negative ? 1u << 2 : 1u << 9;
    }
    if (e != 0)
        return negative ? 1u << 3 : 1u << 8;
    if (m != 0)
        return negative ? 1u << 4 : 1u << 7;
    return negative ? 1u << 5 : 1u << 6;
}

#define CLASS(name, rows, load, exponent, mantissa)                                                          \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t ta[(rows)*EMU_ROW], tb[EMU_ROW];                                                            \
        uint8_t flags[EMU_ROW];                                                                              \
        const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb);                             \
        for (int i = 0; i < (int)w->lanes; i++)                                                              \
            flags[i] = (class_of(load(pa, i), exponent, mantissa) & pb[i]) != 0;                             \
        finish(w, o, flags);                                                                                 \
    }
CLASS(class_f32, 1, U32, 8, 23)
CLASS(class_f16, 1, U16, 5, 10)
CLASS(class_f64, 2, U64, 11, 52)

#define BOTH(name, types, run)                                                                               \
    {"v_cmp_" name, types, run, 0, 0},                                                                       \
    {                                                                                                        \
        "v_cmpx_" name, types, run, 0, 1                                                                     \
    }
#define ORDERED_ENTRIES(s, types)                                                                            \
    BOTH("eq_" #s, types, eq_##s), BOTH("ne_" #s, types, ne_##s), BOTH("gt_" #s, types, gt_##s),             \
        BOTH("ge_" #s, types, ge_##s), BOTH("lt_" #s, types, lt_##s), BOTH("le_" #s, types, le_##s)
#define UNORDERED_ENTRIES(s, types)                                                                          \
    BOTH("eq_" #s, types, eq_##s), BOTH("neq_" #s, types, ne_##s), BOTH("gt_" #s, types, gt_##s),            \
        BOTH("ge_" #s, types, ge_##s), BOTH("lt_" #s, types, lt_##s), BOTH("le_" #s, types, le_##s),         \
        BOTH("lg_" #s, types, lg_##s), BOTH("o_" #s, types, o_##s), BOTH("u_" #s, types, u_##s),             \
        BOTH("nge_" #s, types, nge_##s), BOTH("ngt_" #s, types, ngt_##s), BOTH("nle_" #s, types, nle_##s),   \
        BOTH("nlt_" #s, types, nlt_##s), BOTH("nlg_" #s, types, nlg_##s)
static const struct entry entries[] = {
    ORDERED_ENTRIES(u32, "muu"),         ORDERED_ENTRIES(i32, "muu"),
    ORDERED_ENTRIES(u16, "mww"),         ORDERED_ENTRIES(i16, "mww"),
    ORDERED_ENTRIES(u64, "mqq"),         ORDERED_ENTRIES(i64, "mqq"),
    UNORDERED_ENTRIES(f32, "mff"),       UNORDERED_ENTRIES(f16, "mhh"),
    UNORDERED_ENTRIES(f64, "mdd"),       BOTH("class_f32", "mfu", class_f32),
    BOTH("class_f16", "mhu", class_f16), BOTH("class_f64", "mdu", class_f64),
};

const struct entry_list EMU_NAME(vcmp) = {entries, sizeof entries / sizeof *entries};
