/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Conversions between integers, f16, bf16, f32 and f64. */
#include "emu-vector.h"

static inline uint32_t to_u32(double d)
{
    double x = d > 0 ? d : 0; /* NaN too */
    x = x > 4294967295.0 ? 4294967295.0 : x;
    return (uint32_t)x;
}

static inline int32_t to_i32(double d)
{
    double x = d == d ? d : 0;
    x = x > 2147483647.0 ? 2147483647.0 : x < -2147483648.0 ? -2147483648.0 : x;
    return (int32_t)x;
}

static inline uint32_t to_u16(float f)
{
    float x = f > 0 ? f : 0;
    return (uint32_t)(x > 65535 ? 65535 : x);
}

static inline uint32_t to_i16(float f)
{
    float x = f == f ? f : 0;
    return (uint32_t)(int32_t)(x > 32767 ? 32767 : x < -32768 ? -32768 : x) & 0xffff;
}

static inline float half(uint32_t u)
{
    return f32_of_f16(u & 0xffff);
}

VECTOR1(f32_u32, f, (float)a.u)
VECTOR1(f32_i32, f, (float)a.i)
VECTOR1(u32_f32, u, to_u32((double)a.f))
VECTOR1(i32_f32, i, to_i32((double)a.f))
VECTOR1(rpi_i32_f32, i, to_i32((double)floorf(a.f + 0.5f)))
VECTOR1(flr_i32_f32, i, to_i32((double)floorf(a.f)))
VECTOR1(f32_f16, f, half(a.u))
VECTOR1(f16_f32, u, f16_of_f32(a.f))
VECTOR1(f16_u16, u, f16_of_f32((float)(a.u & 0xffff)))
VECTOR1(f16_i16, u, f16_of_f32((float)(int16_t)a.u))
VECTOR1(u16_f16, u, to_u16(half(a.u)))
VECTOR1(i16_f16, u, to_i16(half(a.u)))
VECTOR1(f32_ubyte0, f, (float)(a.u & 255))
VECTOR1(f32_ubyte1, f, (float)(a.u >> 8 & 255))
VECTOR1(f32_ubyte2, f, (float)(a.u >> 16 & 255))
VECTOR1(f32_ubyte3, f, (float)(a.u >> 24))
VECTOR1(f32_bf16, f, f32_of_bf16(a.u & 0xffff))
VECTOR1(bf16_f32, u, bf16_of_f32(a.f))
VECTOR2(pk_f16_f32, u, f16_of_f32(a.f) | f16_of_f32(b.f) << 16)
VECTOR2(pkrtz_f16_f32, u, f16_of_f32_rtz(a.f) | f16_of_f32_rtz(b.f) << 16)
VECTOR2(pk_bf16_f32, u, bf16_of_f32(a.f) | bf16_of_f32(b.f) << 16)
VECTOR2(pk_u16_u32, u, (a.u > 65535 ? 65535 : a.u) | (b.u > 65535 ? 65535 : b.u) << 16)
VECTOR2(pack_f16, u, (a.u & 0xffff) | b.u << 16)

static void f64_u32(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta);
    uint32_t *d = dst(w, o);
    LANES(i) lanes_put_f64(d, i, (double)pa[i]);
    done(w, o, d, 2);
}

static void f64_i32(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta);
    uint32_t *d = dst(w, o);
    LANES(i) lanes_put_f64(d, i, (double)(int32_t)pa[i]);
    done(w, o, d, 2);
}

static void f64_f32(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta);
    uint32_t *d = dst(w, o);
    LANES(i) lanes_put_f64(d, i, (double)f32_of_bits(pa[i]));
    done(w, o, d, 2);
}

#define FROM_F64(name, member, expression)                                                                   \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t ta[2 * EMU_ROW];                                                                            \
        const uint32_t *pa = src(w, &o->at[1], ta);                                                          \
        uint32_t *d = dst(w, o);                                                                             \
        LANES(i)                                                                                             \
        {                                                                                                    \
            double a = f64_of_lanes(pa, i);                                                                  \
            union lane r = {.member = (expression)};                                                         \
            d[i] = r.u;                                                                                      \
        }                                                                                                    \
        done(w, o, d, 1);                                                                                    \
    }
FROM_F64(f32_f64, f, (float)a)
FROM_F64(u32_f64, u, to_u32(a))
FROM_F64(i32_f64, i, to_i32(a))

static const struct entry entries[] = {
    {"v_cvt_f32_u32", "fu", f32_u32, 0, 0},          {"v_cvt_f32_i32", "fu", f32_i32, 0, 0},
    {"v_cvt_u32_f32", "uf", u32_f32, 0, 0},          {"v_cvt_i32_f32", "uf", i32_f32, 0, 0},
    {"v_cvt_rpi_i32_f32", "uf", rpi_i32_f32, 0, 0},  {"v_cvt_nearest_i32_f32", "uf", rpi_i32_f32, 0, 0},
    {"v_cvt_flr_i32_f32", "uf", flr_i32_f32, 0, 0},  {"v_cvt_floor_i32_f32", "uf", flr_i32_f32, 0, 0},
    {"v_cvt_f32_f16", "fh", f32_f16, 0, 0},          {"v_cvt_f16_f32", "hf", f16_f32, E_HALF, 0},
    {"v_cvt_f16_u16", "hw", f16_u16, E_HALF, 0},     {"v_cvt_f16_i16", "hw", f16_i16, E_HALF, 0},
    {"v_cvt_u16_f16", "wh", u16_f16, E_HALF, 0},     {"v_cvt_i16_f16", "wh", i16_f16, E_HALF, 0},
    {"v_cvt_f32_ubyte0", "fu", f32_ubyte0, 0, 0},    {"v_cvt_f32_ubyte1", "fu", f32_ubyte1, 0, 0},
    {"v_cvt_f32_ubyte2", "fu", f32_ubyte2, 0, 0},    {"v_cvt_f32_ubyte3", "fu", f32_ubyte3, 0, 0},
    {"v_cvt_f32_bf16", "fh", f32_bf16, 0, 0},        {"v_cvt_bf16_f32", "hf", bf16_f32, 0, 0},
    {"v_cvt_pk_f16_f32", "uff", pk_f16_f32, 0, 0},   {"v_cvt_pkrtz_f16_f32", "uff", pkrtz_f16_f32, 0, 0},
    {"v_cvt_pk_bf16_f32", "uff", pk_bf16_f32, 0, 0}, {"v_cvt_pk_u16_u32", "uuu", pk_u16_u32, 0, 0},
    {"v_pack_b32_f16", "uhh", pack_f16, 0, 0},       {"v_cvt_f64_u32", "du", f64_u32, 0, 0},
    {"v_cvt_f64_i32", "du", f64_i32, 0, 0},          {"v_cvt_f64_f32", "df", f64_f32, 0, 0},
    {"v_cvt_f32_f64", "fd", f32_f64, 0, 0},          {"v_cvt_u32_f64", "ud", u32_f64, 0, 0},
    {"v_cvt_i32_f64", "ud", i32_f64, 0, 0},
};

const struct entry_list EMU_NAME(vcvt) = {entries, sizeof entries / sizeof *entries};
