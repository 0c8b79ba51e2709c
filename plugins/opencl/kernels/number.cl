/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Elements of every type to and from f32 (docs/definition.md, section 2). */

/*
 * On a GPU functions are parts of their kernels, and loops over a work-item's own arrays are unrolled:
 * otherwise arguments and arrays are kept in memory. A CPU gains nothing, and its compilers take many times
 * as long.
 */
#ifdef ON_GPU
#define INLINE       static inline __attribute__((always_inline))
#define UNROLL       _Pragma("unroll")
#define UNROLL_TWO   _Pragma("unroll 2")
#define UNROLL_LOADS _Pragma("unroll 4") /* loads that are under way at a time */
#else
#define INLINE
#define UNROLL
#define UNROLL_TWO
#define UNROLL_LOADS
#endif

/*
 * What a sum lost of a value when it became `after` (Kahan): less of the next value. A long sum is then as
 * exact as a short one, be its values ever so alike. Infinities lose nothing.
 */
INLINE float lost_of(float before, float value, float after)
{
    const float lost = (after - before) - value;

    return (as_uint(lost) & 0x7f800000u) == 0x7f800000u ? 0 : lost;
}

INLINE float4 lost_of4(float4 before, float4 value, float4 after)
{
    const float4 lost = (after - before) - value;

    return select(lost, (float4)(0), (as_uint4(lost) & 0x7f800000u) == 0x7f800000u);
}

/* Bytes of an element. */
#define SIZE(dtype) ((dtype) >> 11 & 31)

INLINE bool is_fnuz(uint dtype)
{
    return dtype == OPENCL_E4M3FNUZ || dtype == OPENCL_E5M2FNUZ;
}

/* Bits of the fraction. */
INLINE uint fraction_of(uint dtype)
{
    return dtype == OPENCL_E4M3 || dtype == OPENCL_E4M3FNUZ ? 3 : 2;
}

INLINE uint bias_of(uint dtype)
{
    return (fraction_of(dtype) == 3 ? 7u : 15u) + (is_fnuz(dtype) ? 1u : 0u);
}

/* Code of the largest number; NaN and infinity lie above it in the OCP types. */
INLINE uint largest_of(uint dtype)
{
    return is_fnuz(dtype) ? 0x7fu : dtype == OPENCL_E4M3 ? 0x7eu : 0x7bu;
}

/* No subnormal of f32 is used: devices may take them for zero. */
INLINE float decode8(uint dtype, uchar code)
{
    const uint rest = code & 0x7fu, fraction = fraction_of(dtype), exponent = rest >> fraction;
    const uint sign = (code & 0x80u) << 24;

    if (dtype == OPENCL_INT8)
        return (float)as_char(code);
    if (is_fnuz(dtype) && code == 0x80)
        return NAN;
    if (rest > largest_of(dtype))
        return dtype == OPENCL_E5M2 && rest == 0x7c ? as_float(sign | 0x7f800000u) : NAN;
    if (exponent > 0)
        return as_float(sign | ((exponent + 127 - bias_of(dtype)) << 23) |
                        ((rest & ((1u << fraction) - 1)) << (23 - fraction)));
    const float size = (float)rest * as_float((128 - bias_of(dtype) - fraction) << 23);
    return as_float(sign | as_uint(size));
}

/* Nearest whole number of a value from 0 to 2^22, ties to even. */
INLINE uint round_whole(float value)
{
    return as_uint(value + 8388608.0f) & 0x7fffffu;
}

INLINE uchar encode8(uint dtype, float value)
{
    const uint bits = as_uint(value), rest = bits & 0x7fffffffu, sign = bits >> 31 << 7;
    const float size = as_float(rest);
    const bool nan = rest > 0x7f800000u;

    if (dtype == OPENCL_INT8) {
        const uint whole = nan ? 0 : size >= 127 ? 127 : round_whole(size);
        return (uchar)(sign != 0 ? 0 - whole : whole);
    }
    if (nan)
        return is_fnuz(dtype) ? 0x80 : 0x7f;
    const uint bias = bias_of(dtype), fraction = fraction_of(dtype), largest = largest_of(dtype);
    uint code = largest;
    if (size < 65536) { /* beyond the largest of all types */
        /* Exponent, counted from that of the subnormals. A carry out of the fraction raises the exponent. */
        const int field = (int)(rest >> 23), least = (int)(128 - bias);
        const uint step = (uint)max(field - least, 0);
        code = (step << fraction) + round_whole(size * as_float((126 + bias + fraction - step) << 23));
        code = min(code, largest);
    }
    return (uchar)(sign != 0 && (code != 0 || !is_fnuz(dtype)) ? code | 0x80u : code);
}

INLINE float load_element(uint dtype, __global const uchar *at)
{
    switch (dtype) {
    case OPENCL_F32:
        return *(__global const float *)at;
    case OPENCL_F16:
        return vload_half(0, (__global const half *)at);
    case OPENCL_BF16:
        return as_float((uint) * (__global const ushort *)at << 16);
    default:
        return decode8(dtype, *at);
    }
}

INLINE ushort round_to_bf16(float value)
{
    const uint bits = as_uint(value);

    if (isnan(value))
        return (ushort)(bits >> 16 | 0x40u);
    return (ushort)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

INLINE void store_element(uint dtype, __global uchar *at, float value)
{
    switch (dtype) {
    case OPENCL_F32:
        *(__global float *)at = value;
        break;
    case OPENCL_F16:
        vstore_half_rte(value, 0, (__global half *)at);
        break;
    case OPENCL_BF16:
        *(__global ushort *)at = round_to_bf16(value);
        break;
    default:
        *at = encode8(dtype, value);
    }
}

/* Eight elements as they are stored, aligned to their size or to 16 bytes. */
struct eight {
    uint4 low, high;
};

INLINE struct eight fetch_eight(uint dtype, __global const uchar *at)
{
    struct eight eight;

    eight.low = eight.high = (uint4)(0);
    if (SIZE(dtype) == 1) {
        eight.low.xy = *(__global const uint2 *)at;
        return eight;
    }
    eight.low = *(__global const uint4 *)at;
    if (SIZE(dtype) == 4)
        eight.high = ((__global const uint4 *)at)[1];
    return eight;
}

/* decode8 of eight codes, without a branch for each. */
INLINE float8 expand_codes(uint dtype, uint8 code)
{
    const uint fraction = fraction_of(dtype), bias = bias_of(dtype);
    const uint8 rest = code & 0x7fu, sign = (code & 0x80u) << 24;
    const uint8 normal = (rest << (23 - fraction)) + ((127 - bias) << 23);
    const uint8 small = as_uint8(convert_float8(rest) * as_float((128 - bias - fraction) << 23));
    uint8 bits = select(small, normal, (rest >> fraction) > 0u) | sign;

    if (is_fnuz(dtype))
        return as_float8(select(bits, (uint8)(0x7fc00000u), code == 0x80u));
    if (dtype == OPENCL_E5M2)
        bits = select(bits, sign | 0x7f800000u, rest == 0x7cu);
    return as_float8(
        select(bits, (uint8)(0x7fc00000u), rest > max(largest_of(dtype), dtype == OPENCL_E5M2 ? 0x7cu : 0u)));
}

/* Two halves in a word. */
INLINE float2 expand_halves(uint word)
{
    const ushort2 halves = as_ushort2(word);

    return vload_half2(0, (const half *)&halves);
}

/* Words stay words until they are loaded: of elements of 16 bits compilers make loads of 8 bytes. */
INLINE float8 expand_eight(uint dtype, struct eight eight)
{
    const uint4 low = eight.low;

    switch (dtype) {
    case OPENCL_F32:
        return as_float8((uint8)(low, eight.high));
    case OPENCL_F16:
        return (float8)(expand_halves(low.x), expand_halves(low.y), expand_halves(low.z),
                        expand_halves(low.w));
    case OPENCL_BF16:
        return as_float8((uint8)(low.x << 16, low.x & 0xffff0000u, low.y << 16, low.y & 0xffff0000u,
                                 low.z << 16, low.z & 0xffff0000u, low.w << 16, low.w & 0xffff0000u));
    case OPENCL_INT8:
        return convert_float8(as_char8(low.xy));
    default:
        return expand_codes(dtype, convert_uint8(as_uchar8(low.xy)));
    }
}

INLINE float8 load_eight(uint dtype, __global const uchar *at)
{
    return expand_eight(dtype, fetch_eight(dtype, at));
}
