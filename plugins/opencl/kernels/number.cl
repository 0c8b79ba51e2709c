/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Elements of every type to and from f32 (docs/definition.md, section 2). */

/* Bytes of an element. */
#define SIZE(dtype) ((dtype) >> 11 & 31)

float load_element(uint dtype, __global const uchar *at)
{
    switch (dtype) {
    case OPENCL_F32:
        return *(__global const float *)at;
    case OPENCL_F16:
        return vload_half(0, (__global const half *)at);
    default:
        return as_float((uint) * (__global const ushort *)at << 16);
    }
}

ushort round_to_bf16(float value)
{
    const uint bits = as_uint(value);

    if (isnan(value))
        return (ushort)(bits >> 16 | 0x40u);
    return (ushort)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

void store_element(uint dtype, __global uchar *at, float value)
{
    switch (dtype) {
    case OPENCL_F32:
        *(__global float *)at = value;
        break;
    case OPENCL_F16:
        vstore_half_rte(value, 0, (__global half *)at);
        break;
    default:
        *(__global ushort *)at = round_to_bf16(value);
    }
}
