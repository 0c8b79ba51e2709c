/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the levels of SVE have in common: they differ in VEC_LANES alone, which the level's header defines.
 * Nothing here goes beyond the SVE of ARMv8.2-A.
 *
 * Kernels keep vectors in arrays, which takes types whose size the compiler knows: a level is compiled for
 * vectors of exactly so many bits and runs nowhere else. Included only by a file that is compiled for these
 * instructions; every function is static inline, so that no other file can end up with them.
 */
#ifndef ATTN_CPU_SIMD_SVE_H
#define ATTN_CPU_SIMD_SVE_H

#include <arm_sve.h>

#include "base.h"

/* Vectors that a kernel may hold. */
#define VEC_REGISTERS 32u

_Static_assert(VEC_LANES * 32 == __ARM_FEATURE_SVE_BITS, "compiled for the width of the level");

typedef svfloat32_t vec __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS)));
typedef svint32_t vec_int __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS)));
typedef svbool_t vec_bool; /* a predicate of 32-bit lanes */
typedef vec vec4;          /* four lanes, whatever a vector has: the first ones */

INLINE svbool_t every_lane(void)
{
    return svptrue_b32();
}

INLINE vec vec_set(float x)
{
    return svdup_n_f32(x);
}

INLINE vec vec_zero(void)
{
    return vec_set(0);
}

INLINE vec vec_broadcast(const float *p)
{
    return svdup_n_f32(*p);
}

/* Addresses need no alignment, here and below. */
INLINE vec vec_load_f32(const float *p)
{
    return svld1_f32(every_lane(), p);
}

INLINE void vec_store(float *p, vec x)
{
    svst1_f32(every_lane(), p, x);
}

/* f16 in the low halves of lanes, whatever is in the high ones, as f32. */
INLINE vec vec_from_f16(svuint32_t x)
{
    return svcvt_f32_f16_x(every_lane(), svreinterpret_f16_u32(x));
}

/* Codes of e4m3 or e4m3fnuz by way of the f16 with the same bits of exponent and fraction; NaN for NaN. */
INLINE vec vec_from_e4m3(enum vec_type type, svint32_t codes)
{
    const svbool_t all = every_lane();
    const svint32_t x = svand_n_s32_x(all, svlsl_n_s32_x(all, codes, 7), ~0x4000); /* bit 14 was the sign */
    if (type == VEC_E4M3_FINITE)
        return vec_from_f16(svreinterpret_u32_s32(x));
    const svuint32_t size = svreinterpret_u32_s32(svand_n_s32_x(all, codes, 0x7f));
    const svbool_t nan = type == VEC_E4M3 ? svcmpge_n_u32(all, size, 0x7f) : svcmpeq_n_s32(all, codes, -128);
    return vec_from_f16(svreinterpret_u32_s32(svdup_n_s32_m(x, nan, -1)));
}

/* Codes of e5m2fnuz, whose largest numbers f16 does not have. */
INLINE vec vec_from_e5m2fnuz(svint32_t codes)
{
    const svbool_t all = every_lane();
    const svint32_t size = svand_n_s32_x(all, codes, 0x7f);
    const svint32_t whole = svadd_n_s32_x(all, svlsl_n_s32_x(all, size, 21), 111 << 23);
    const svfloat32_t small = svmul_n_f32_x(all, svcvt_f32_s32_x(all, size), 0x1p-17f);
    const svfloat32_t x = svsel_f32(svcmplt_n_s32(all, size, 4), small, svreinterpret_f32_s32(whole));
    const svint32_t sign = svand_n_s32_x(all, codes, INT32_MIN);
    const svint32_t signed_x = svorr_s32_x(all, svreinterpret_s32_f32(x), sign);
    const svbool_t nan = svcmpeq_n_s32(all, codes, -128);
    return svreinterpret_f32_s32(svdup_n_s32_m(signed_x, nan, -1));
}

INLINE vec vec_load8(enum vec_type type, const char *p)
{
    const svbool_t all = every_lane();
    if (type == VEC_E5M2)
        return vec_from_f16(svlsl_n_u32_x(all, svld1ub_u32(all, (const uint8_t *)p), 8));
    const svint32_t codes = svld1sb_s32(all, (const int8_t *)p);
    if (type == VEC_INT8)
        return svcvt_f32_s32_x(all, codes);
    if (type == VEC_E5M2FNUZ)
        return vec_from_e5m2fnuz(codes);
    return vec_from_e4m3(type, codes);
}

/* VEC_LANES elements at p as f32, divided by the gain of the type. */
INLINE vec vec_load(enum vec_type type, const char *p)
{
    const svbool_t all = every_lane();
    if (type == VEC_F32)
        return vec_load_f32((const float *)(const void *)p);
    if (vec_size(type) == 1)
        return vec_load8(type, p);
    const svuint32_t x = svld1uh_u32(all, (const uint16_t *)(const void *)p);
    if (type == VEC_F16)
        return vec_from_f16(x);
    return svreinterpret_f32_u32(svlsl_n_u32_x(all, x, 16));
}

/* bf16 in the low halves of lanes, rounded to nearest even; a NaN is made quiet. */
INLINE svuint32_t vec_to_bf16(vec x)
{
    const svbool_t all = every_lane();
    const svuint32_t bits = svreinterpret_u32_f32(x), whole = svlsr_n_u32_x(all, bits, 16);
    const svuint32_t half = svadd_n_u32_x(all, svand_n_u32_x(all, whole, 1), 0x7fff);
    const svuint32_t rounded = svlsr_n_u32_x(all, svadd_u32_x(all, bits, half), 16);
    return svsel_u32(svcmpuo_f32(all, x, x), svorr_n_u32_x(all, whole, 0x40), rounded);
}

/* Stores f16 or bf16, rounded to nearest even; a NaN is made quiet. */
INLINE void vec_store_half(enum vec_type type, void *p, vec x)
{
    const svbool_t all = every_lane();
    if (type == VEC_F16)
        svst1h_u32(all, p, svreinterpret_u32_f16(svcvt_f16_f32_x(all, x)));
    else
        svst1h_u32(all, p, vec_to_bf16(x));
}

INLINE vec vec_add(vec a, vec b)
{
    return svadd_f32_x(every_lane(), a, b);
}

INLINE vec vec_sub(vec a, vec b)
{
    return svsub_f32_x(every_lane(), a, b);
}

INLINE vec vec_mul(vec a, vec b)
{
    return svmul_f32_x(every_lane(), a, b);
}

INLINE vec vec_div(vec a, vec b)
{
    return svdiv_f32_x(every_lane(), a, b);
}

/* a * b + c, rounded once. */
INLINE vec vec_fma(vec a, vec b, vec c)
{
    return svmla_f32_x(every_lane(), c, a, b);
}

INLINE vec_bool vec_less(vec a, vec b)
{
    return svcmplt_f32(every_lane(), a, b);
}

INLINE vec_bool vec_equal(vec a, vec b)
{
    return svcmpeq_f32(every_lane(), a, b);
}

INLINE vec vec_select(vec_bool which, vec yes, vec no)
{
    return svsel_f32(which, yes, no);
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
    return svabs_f32_x(every_lane(), a);
}

/* `a`, which is not negative, with the sign of b. */
INLINE vec vec_signed(vec a, vec b)
{
    const svuint32_t sign = svand_n_u32_x(every_lane(), svreinterpret_u32_f32(b), UINT32_C(1) << 31);
    return svreinterpret_f32_u32(svorr_u32_x(every_lane(), svreinterpret_u32_f32(a), sign));
}

/* 2^n for n in [-127, 127] in the low bits of a float's mantissa; 0 for -127. */
INLINE vec vec_power(vec n)
{
    const svuint32_t shifted = svlsl_n_u32_x(every_lane(), svreinterpret_u32_f32(n), 23);
    return svreinterpret_f32_u32(svadd_n_u32_x(every_lane(), shifted, UINT32_C(127) << 23));
}

INLINE int vec_any_nan(vec a)
{
    return svptest_any(every_lane(), svcmpuo_f32(every_lane(), a, a));
}

/* Lanes whose bit is set. */
INLINE vec_bool vec_lanes(uint32_t bits)
{
    const svbool_t all = every_lane();
    const svuint32_t lane = svlsl_u32_x(all, svdup_n_u32(1), svindex_u32(0, 1));
    return svcmpne_n_u32(all, svand_n_u32_x(all, lane, bits), 0);
}

/* A bit for each lane: the inverse. */
INLINE uint32_t vec_bits(vec_bool lanes)
{
    const svuint32_t lane = svlsl_u32_x(every_lane(), svdup_n_u32(1), svindex_u32(0, 1));
    return (uint32_t)svorv_u32(lanes, lane);
}

INLINE vec_int vec_load_int(const int32_t *p)
{
    return svld1_s32(every_lane(), p);
}

/* Lanes in which bit i is set. */
INLINE vec_bool vec_bit(vec_int words, uint32_t i)
{
    const svbool_t all = every_lane();
    return svcmpne_n_s32(all, svand_n_s32_x(all, words, (int32_t)(UINT32_C(1) << i)), 0);
}

/* The sums of pairs of lanes, those of a and then those of b. */
INLINE vec vec_add_pairs(vec a, vec b)
{
    return vec_add(svuzp1_f32(a, b), svuzp2_f32(a, b));
}

/* The sums of four vectors, each ((0+1)+(2+3)) + ((4+5)+(6+7)), and this again for lanes 8 to 15. */
INLINE vec4 vec_sum4(vec a, vec b, vec c, vec d)
{
    vec s = vec_add_pairs(vec_add_pairs(a, b), vec_add_pairs(c, d));
    UNROLL
    for (uint32_t n = 4; n < VEC_LANES; n *= 2)
        s = vec_add_pairs(s, s);
    return s;
}

INLINE void vec4_store(float *p, vec4 x)
{
    svst1_f32(svptrue_pat_b32(SV_VL4), p, x);
}

/* Lanes 0 and 1 to p, 2 and 3 to q. */
INLINE void vec4_store_pairs(float *p, float *q, vec4 x)
{
    svst1_f32(svptrue_pat_b32(SV_VL2), p, x);
    svst1_f32(svptrue_pat_b32(SV_VL2), q, svext_f32(x, x, 2));
}

INLINE float vec_first(vec a)
{
    return svlasta_f32(svpfalse_b(), a); /* the lane behind no lane */
}

/* In the order of vec_sum4. */
INLINE float vec_reduce_add(vec a)
{
    return svaddv_f32(every_lane(), a);
}

/* The largest lane; no lane is NaN. */
INLINE float vec_reduce_max(vec a)
{
    return svmaxv_f32(every_lane(), a);
}

/* The lanes of vectors i and i + VEC_LANES / 2 in turns. */
INLINE void vec_zip_rows(const vec *a, vec *b)
{
    UNROLL
    for (uint32_t i = 0; i < VEC_LANES / 2; i++) {
        b[2 * i] = svzip1_f32(a[i], a[i + VEC_LANES / 2]);
        b[2 * i + 1] = svzip2_f32(a[i], a[i + VEC_LANES / 2]);
    }
}

/*
 * VEC_LANES rows to as many columns. The place of an element is the bits of its row and those of its column;
 * vec_zip_rows rotates them by one, so that as many times as a column has bits swaps both.
 */
INLINE void vec_transpose(vec *a)
{
    vec b[VEC_LANES];
    vec_zip_rows(a, b);
    vec_zip_rows(b, a);
    vec_zip_rows(a, b);
    if (VEC_LANES == 16) {
        vec_zip_rows(b, a);
        return;
    }
    UNROLL
    for (uint32_t i = 0; i < VEC_LANES; i++)
        a[i] = b[i];
}

#endif
