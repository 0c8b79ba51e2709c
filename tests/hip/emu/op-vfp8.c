/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Conversions of fp8: the forms of gfx942 have no negative zero and another bias than those of OCP. */
#include "emu-vector.h"

/* bits of exponent and mantissa, and the bias; fnuz: 0x80 is NaN and there is no infinity. */
static float decode(uint32_t code, int mantissa, int bias, bool fnuz)
{
    int exponent_bits = 7 - mantissa, top = (1 << exponent_bits) - 1;
    int e = (int)(code >> mantissa) & top, m = (int)code & ((1 << mantissa) - 1);
    float sign = code & 0x80 ? -1 : 1;
    if (fnuz && code == 0x80)
        return NAN;
    if (!fnuz && mantissa == 3 && (code & 0x7f) == 0x7f)
        return NAN;
    if (!fnuz && mantissa == 2 && e == top)
        return m != 0 ? NAN : sign * INFINITY;
    if (e == 0)
        return sign * ldexpf((float)m, 1 - bias - mantissa);
    return sign * ldexpf((float)(m | 1 << mantissa), e - bias - mantissa);
}

/* Nearest even; what is beyond the largest number becomes it, or NaN or infinity where that is the form's. */
static uint32_t encode(float f, int mantissa, int bias, bool fnuz)
{
    uint32_t sign = bits_of_f32(f) >> 31 ? 0x80 : 0;
    uint32_t nan = fnuz ? 0x80 : mantissa == 3 ? sign | 0x7f : sign | 0x7e;
    if (f != f)
        return nan;
    uint32_t largest = fnuz ? 0x7f : mantissa == 3 ? 0x7e : 0x7b;
    uint32_t beyond = fnuz ? 0x80 : mantissa == 3 ? sign | 0x7f : sign | 0x7c;
    float a = fabsf(f);
    if (isinf(a))
        return beyond;
    int e = 0;
    if (a != 0)
        (void)frexpf(a, &e);
    e = a == 0 || e - 1 < 1 - bias ? 1 - bias : e - 1;
    uint32_t units = (uint32_t)rintf(ldexpf(a, mantissa - e)); /* of the last place */
    uint32_t code = units + ((uint32_t)(e + bias - 1) << mantissa);
    if (a > decode(largest, mantissa, bias, fnuz) && code > largest)
        return beyond;
    return fnuz && code == 0 ? 0 : sign | code;
}

/* size 3 and 2: bits of mantissa, e4m3 and e5m2. */
static float read_code(const struct wave *w, const struct op *o, uint32_t code)
{
    bool fnuz = w->arch == 0x942;
    return decode(code & 255, o->size, (o->size == 3 ? 7 : 15) + fnuz, fnuz);
}

static uint32_t write_code(const struct wave *w, const struct op *o, float f)
{
    bool fnuz = w->arch == 0x942;
    return encode(f, o->size, (o->size == 3 ? 7 : 15) + fnuz, fnuz);
}

/* The byte is told by SDWA on gfx9, by op_sel or byte_sel on gfx12. */
static void cvt_f32(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta);
    uint32_t byte = o->byte_sel != 0 ? o->byte_sel : (o->op_sel >> 1 & 1) | (o->op_sel & 1) << 1;
    for (uint32_t i = 0; i < w->lanes; i++)
        w->tmp[i] = bits_of_f32(read_code(w, o, pa[i] >> (8 * byte)));
    EMU_NAME(emu_done_slow)(w, o, w->tmp, 1);
}

static void cvt_pk_f32(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta);
    uint32_t shift = o->op_sel & 1 ? 16 : 0;
    for (uint32_t i = 0; i < w->lanes; i++) {
        float low = read_code(w, o, pa[i] >> shift), high = read_code(w, o, pa[i] >> (shift + 8));
        w->tmp[i] = bits_of_f32(low);
        w->tmp[EMU_ROW + i] = bits_of_f32(high);
    }
    EMU_NAME(emu_done_slow)(w, o, w->tmp, 2);
}

/* Two codes into one half of the destination. */
static void cvt_pk_code(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW], tb[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb), *old = w->v + o->at[0].offset;
    uint32_t shift = o->op_sel & 4 || o->at[0].select == 5 ? 16 : 0;
    for (uint32_t i = 0; i < w->lanes; i++) {
        uint32_t two = write_code(w, o, f32_of_bits(pa[i])) | write_code(w, o, f32_of_bits(pb[i])) << 8;
        w->tmp[i] = (old[i] & ~(0xffffu << shift)) | two << shift;
    }
    EMU_NAME(emu_done_slow)(w, o, w->tmp, 1);
}

static const struct entry entries[] = {
    {"v_cvt_f32_fp8", "fu", cvt_f32, E_PACKED, 3},
    {"v_cvt_f32_bf8", "fu", cvt_f32, E_PACKED, 2},
    {"v_cvt_pk_f32_fp8", "gu", cvt_pk_f32, E_PACKED, 3},
    {"v_cvt_pk_f32_bf8", "gu", cvt_pk_f32, E_PACKED, 2},
    {"v_cvt_pk_fp8_f32", "uff", cvt_pk_code, E_PACKED, 3},
    {"v_cvt_pk_bf8_f32", "uff", cvt_pk_code, E_PACKED, 2},
};

const struct entry_list EMU_NAME(vfp8) = {entries, sizeof entries / sizeof *entries};
