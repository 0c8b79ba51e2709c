/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Level neon: eight f32 lanes in two registers. Nothing here goes beyond ARMv8.0-A, which every aarch64
 * machine has.
 */
#ifndef ATTN_CPU_SIMD_NEON_H
#define ATTN_CPU_SIMD_NEON_H

#include <arm_neon.h>

#include "base.h"

/* f32 lanes of a vector, and vectors that a kernel may hold. */
#define VEC_LANES     8u
#define VEC_REGISTERS 16u

typedef struct {
    float32x4_t lo, hi;
} vec;
typedef struct {
    int32x4_t lo, hi;
} vec_int;
typedef struct {
    uint32x4_t lo, hi;
} vec_bool;               /* lanes of ones or zeros */
typedef float32x4_t vec4; /* four lanes */

INLINE vec vec_set(float x)
{
    return (vec){vdupq_n_f32(x), vdupq_n_f32(x)};
}

INLINE vec vec_zero(void)
{
    return vec_set(0);
}

INLINE vec vec_broadcast(const float *p)
{
    const float32x4_t x = vld1q_dup_f32(p);
    return (vec){x, x};
}

INLINE vec vec_load_f32(const float *p)
{
    return (vec){vld1q_f32(p), vld1q_f32(p + 4)};
}

INLINE void vec_store(float *p, vec x)
{
    vst1q_f32(p, x.lo);
    vst1q_f32(p + 4, x.hi);
}

/* f16 as f32. */
INLINE vec vec_from_f16(uint16x8_t x)
{
    const float16x8_t h = vreinterpretq_f16_u16(x);
    return (vec){vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}

/* Eight codes of e4m3 or e4m3fnuz as f16 with the same bits of exponent and fraction; NaN for NaN. */
INLINE uint16x8_t vec_e4m3_as_f16(enum vec_type type, int8x8_t codes)
{
    const int16x8_t wide = vmovl_s8(codes);
    const uint16x8_t x = vandq_u16(vreinterpretq_u16_s16(vshlq_n_s16(wide, 7)), vdupq_n_u16(0xbf80));
    if (type == VEC_E4M3FNUZ)
        return vorrq_u16(x, vceqq_s16(wide, vdupq_n_s16(-128)));
    if (type == VEC_E4M3_FINITE)
        return x;
    const uint16x8_t largest = vdupq_n_u16(0x3f80);
    return vorrq_u16(x, vceqq_u16(vandq_u16(x, largest), largest));
}

/* Four codes of e5m2fnuz, whose largest numbers f16 does not have. */
INLINE float32x4_t vec4_from_e5m2fnuz(int32x4_t wide)
{
    const int32x4_t size = vandq_s32(wide, vdupq_n_s32(0x7f));
    const float32x4_t whole = vreinterpretq_f32_s32(vaddq_s32(vshlq_n_s32(size, 21), vdupq_n_s32(111 << 23)));
    const float32x4_t small = vmulq_f32(vcvtq_f32_s32(size), vdupq_n_f32(0x1p-17f));
    const float32x4_t x = vbslq_f32(vcltq_s32(size, vdupq_n_s32(4)), small, whole);
    const uint32x4_t nan = vceqq_s32(wide, vdupq_n_s32(-128));
    const uint32x4_t sign = vandq_u32(vreinterpretq_u32_s32(wide), vdupq_n_u32(UINT32_C(1) << 31));
    return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(x), vorrq_u32(sign, nan)));
}

INLINE vec vec_load8(enum vec_type type, const char *p)
{
    const int8x8_t codes = vld1_s8((const int8_t *)p);
    if (type == VEC_E4M3 || type == VEC_E4M3_FINITE || type == VEC_E4M3FNUZ)
        return vec_from_f16(vec_e4m3_as_f16(type, codes));
    if (type == VEC_E5M2)
        return vec_from_f16(vshlq_n_u16(vmovl_u8(vreinterpret_u8_s8(codes)), 8));
    const int16x8_t wide = vmovl_s8(codes);
    const int32x4_t lo = vmovl_s16(vget_low_s16(wide)), hi = vmovl_high_s16(wide);
    if (type == VEC_INT8)
        return (vec){vcvtq_f32_s32(lo), vcvtq_f32_s32(hi)};
    return (vec){vec4_from_e5m2fnuz(lo), vec4_from_e5m2fnuz(hi)};
}

/* VEC_LANES elements at p, which needs no alignment, as f32, divided by the gain of the type. */
INLINE vec vec_load(enum vec_type type, const char *p)
{
    if (vec_size(type) == 1)
        return vec_load8(type, p);
    if (type == VEC_F32) {
        const uint8_t *bytes = (const uint8_t *)p;
        return (vec){vreinterpretq_f32_u8(vld1q_u8(bytes)), vreinterpretq_f32_u8(vld1q_u8(bytes + 16))};
    }
    const uint16x8_t x = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)p));
    if (type == VEC_F16)
        return vec_from_f16(x);
    return (vec){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(x), 16)),
                 vreinterpretq_f32_u32(vshll_high_n_u16(x, 16))};
}

/* Four f32 as bf16, rounded to nearest even; a NaN is made quiet. */
INLINE uint16x4_t vec4_to_bf16(float32x4_t x)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(x), whole = vshrq_n_u32(bits, 16);
    const uint32x4_t half = vaddq_u32(vandq_u32(whole, vdupq_n_u32(1)), vdupq_n_u32(0x7fff));
    const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(bits, half), 16);
    return vmovn_u32(vbslq_u32(vceqq_f32(x, x), rounded, vorrq_u32(whole, vdupq_n_u32(0x40))));
}

/* Stores f16 or bf16, rounded to nearest even; a NaN is made quiet. */
INLINE void vec_store_half(enum vec_type type, void *p, vec x)
{
    if (type == VEC_F16)
        vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.lo), x.hi)));
    else
        vst1q_u16(p, vcombine_u16(vec4_to_bf16(x.lo), vec4_to_bf16(x.hi)));
}

INLINE vec vec_add(vec a, vec b)
{
    return (vec){vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)};
}

INLINE vec vec_sub(vec a, vec b)
{
    return (vec){vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)};
}

INLINE vec vec_mul(vec a, vec b)
{
    return (vec){vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)};
}

INLINE vec vec_div(vec a, vec b)
{
    return (vec){vdivq_f32(a.lo, b.lo), vdivq_f32(a.hi, b.hi)};
}

/* a * b + c, rounded once. */
INLINE vec vec_fma(vec a, vec b, vec c)
{
    return (vec){vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}

INLINE vec_bool vec_less(vec a, vec b)
{
    return (vec_bool){vcltq_f32(a.lo, b.lo), vcltq_f32(a.hi, b.hi)};
}

INLINE vec_bool vec_equal(vec a, vec b)
{
    return (vec_bool){vceqq_f32(a.lo, b.lo), vceqq_f32(a.hi, b.hi)};
}

INLINE vec vec_select(vec_bool which, vec yes, vec no)
{
    return (vec){vbslq_f32(which.lo, yes.lo, no.lo), vbslq_f32(which.hi, yes.hi, no.hi)};
}

/* a > b ? a : b; so b where either is NaN, which the instruction for the maximum would not give. */
INLINE vec vec_max(vec a, vec b)
{
    return vec_select(vec_less(b, a), a, b);
}

/* a < b ? a : b; so b where either is NaN. */
INLINE vec vec_min(vec a, vec b)
{
    return vec_select(vec_less(a, b), a, b);
}

INLINE vec vec_abs(vec a)
{
    return (vec){vabsq_f32(a.lo), vabsq_f32(a.hi)};
}

/* `a`, which is not negative, with the sign of b. */
INLINE vec vec_signed(vec a, vec b)
{
    const uint32x4_t sign = vdupq_n_u32(UINT32_C(1) << 31);
    return (vec){vbslq_f32(sign, b.lo, a.lo), vbslq_f32(sign, b.hi, a.hi)};
}

/* 2^n for n in [-127, 127] in the low bits of a float's mantissa; 0 for -127. */
INLINE vec vec_power(vec n)
{
    const uint32x4_t bias = vdupq_n_u32(UINT32_C(127) << 23);
    const uint32x4_t lo = vshlq_n_u32(vreinterpretq_u32_f32(n.lo), 23);
    const uint32x4_t hi = vshlq_n_u32(vreinterpretq_u32_f32(n.hi), 23);
    return (vec){vreinterpretq_f32_u32(vaddq_u32(lo, bias)), vreinterpretq_f32_u32(vaddq_u32(hi, bias))};
}

INLINE int vec_any_nan(vec a)
{
    const vec_bool same = vec_equal(a, a);
    return vminvq_u32(vandq_u32(same.lo, same.hi)) == 0;
}

/* Lanes whose bit is set. */
INLINE vec_bool vec_lanes(uint32_t bits)
{
    static const uint32_t lane[VEC_LANES] = {1, 2, 4, 8, 16, 32, 64, 128};
    const uint32x4_t b = vdupq_n_u32(bits);
    return (vec_bool){vtstq_u32(b, vld1q_u32(lane)), vtstq_u32(b, vld1q_u32(lane + 4))};
}

/* A bit for each lane: the inverse. */
INLINE uint32_t vec_bits(vec_bool lanes)
{
    static const uint32_t lane[VEC_LANES] = {1, 2, 4, 8, 16, 32, 64, 128};
    return vaddvq_u32(
        vorrq_u32(vandq_u32(lanes.lo, vld1q_u32(lane)), vandq_u32(lanes.hi, vld1q_u32(lane + 4))));
}

INLINE vec_int vec_load_int(const int32_t *p)
{
    return (vec_int){vld1q_s32(p), vld1q_s32(p + 4)};
}

/* Lanes in which bit i is set. */
INLINE vec_bool vec_bit(vec_int words, uint32_t i)
{
    const int32x4_t bit = vdupq_n_s32((int32_t)(UINT32_C(1) << i));
    return (vec_bool){vtstq_s32(words.lo, bit), vtstq_s32(words.hi, bit)};
}

/* The sums of four vectors, each ((0+1)+(2+3)) + ((4+5)+(6+7)). */
INLINE vec4 vec_sum4(vec a, vec b, vec c, vec d)
{
    const float32x4_t lo = vpaddq_f32(vpaddq_f32(a.lo, b.lo), vpaddq_f32(c.lo, d.lo));
    const float32x4_t hi = vpaddq_f32(vpaddq_f32(a.hi, b.hi), vpaddq_f32(c.hi, d.hi));
    return vaddq_f32(lo, hi);
}

INLINE void vec4_store(float *p, vec4 x)
{
    vst1q_f32(p, x);
}

/* Lanes 0 and 1 to p, 2 and 3 to q. */
INLINE void vec4_store_pairs(float *p, float *q, vec4 x)
{
    vst1_f32(p, vget_low_f32(x));
    vst1_f32(q, vget_high_f32(x));
}

INLINE float vec_first(vec a)
{
    return vgetq_lane_f32(a.lo, 0);
}

INLINE float vec_reduce_add(vec a)
{
    return vgetq_lane_f32(vec_sum4(a, a, a, a), 0);
}

/* The largest lane; no lane is NaN. */
INLINE float vec_reduce_max(vec a)
{
    return vmaxvq_f32(vmaxq_f32(a.lo, a.hi));
}

/* Rows to columns, four lanes of four rows. */
INLINE void vec_transpose4(float32x4_t *a)
{
    const float64x2_t x = vreinterpretq_f64_f32(vtrn1q_f32(a[0], a[1]));
    const float64x2_t y = vreinterpretq_f64_f32(vtrn2q_f32(a[0], a[1]));
    const float64x2_t z = vreinterpretq_f64_f32(vtrn1q_f32(a[2], a[3]));
    const float64x2_t w = vreinterpretq_f64_f32(vtrn2q_f32(a[2], a[3]));
    a[0] = vreinterpretq_f32_f64(vtrn1q_f64(x, z));
    a[1] = vreinterpretq_f32_f64(vtrn1q_f64(y, w));
    a[2] = vreinterpretq_f32_f64(vtrn2q_f64(x, z));
    a[3] = vreinterpretq_f32_f64(vtrn2q_f64(y, w));
}

/* VEC_LANES rows to as many columns. */
INLINE void vec_transpose(vec *a)
{
    float32x4_t top[8], bottom[8]; /* columns of rows 0 to 3, and of rows 4 to 7 */
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        top[i] = a[i].lo;
        top[4 + i] = a[i].hi;
        bottom[i] = a[4 + i].lo;
        bottom[4 + i] = a[4 + i].hi;
    }
    vec_transpose4(top);
    vec_transpose4(top + 4);
    vec_transpose4(bottom);
    vec_transpose4(bottom + 4);
    UNROLL
    for (uint32_t i = 0; i < 8; i++)
        a[i] = (vec){top[i], bottom[i]};
}

/* Products of int8: see madd.h. */
#define DOT_CODES 16u
#define DOT_KEYS  1u

typedef int8_t dot_code;
typedef int8x16_t dot_operand;
typedef int32x4_t dots;

INLINE dots dot_begin(int32_t query)
{
    (void)query;
    return vdupq_n_s32(0);
}

INLINE dot_operand dot_query(const dot_code *q)
{
    return vld1q_s8(q);
}

INLINE dot_operand dot_keys(const char *const *keys, size_t at)
{
    return vld1q_s8((const int8_t *)keys[0] + at);
}

INLINE dots dot_add(dots sum, dot_operand keys, dot_operand query)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, keys, query);
#else
    sum = vpadalq_s16(sum, vmull_s8(vget_low_s8(keys), vget_low_s8(query)));
    return vpadalq_s16(sum, vmull_high_s8(keys, query));
#endif
}

INLINE vec4 dot_sum4(dots a, dots b, dots c, dots d)
{
    return vcvtq_f32_s32(vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d)));
}

#endif
