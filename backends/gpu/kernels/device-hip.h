/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The device intrinsics (device.h) that every target has, for AMD from gfx906 to gfx1201: by clang alone,
 * without a header or library of the vendor. A warp of 32 is a wave where waves have 32 lanes, and half of
 * one where they have 64.
 */
#ifndef ATTN_GPU_DEVICE_HIP_H
#define ATTN_GPU_DEVICE_HIP_H

#include <stddef.h>

#include "device-hip-math.h"

#define GPU_INLINE static __attribute__((device, always_inline)) inline
/* For headers that the host reads as well (backends/common). */
#define ATTN__DEVICE            __attribute__((device))
#define GPU_ARGUMENT(type, arg) const type arg
#define GPU_SHARED              __attribute__((shared))
#define GPU_UNROLL              _Pragma("unroll")
#define GPU_LOOP                _Pragma("nounroll")
#define GPU_WARP                32u
/* With their code the reference kernel is longer than branches reach. */
constexpr bool GPU_READS_BLOCKS = false;

/* Lanes of a wave. */
#if defined(__GFX9__)
#define GPU_WAVE 64u
#else
#define GPU_WAVE 32u
#endif

/* A compute unit, or two where waves have 32 lanes, has four places where waves share registers. */
#define GPU__CTAS(ctas) ((ctas) > 2 ? 2 : (ctas))
#define GPU__WAVES(threads, ctas)                                                                            \
    ((threads)*GPU__CTAS(ctas) > 4 * GPU_WAVE ? (threads)*GPU__CTAS(ctas) / (4 * GPU_WAVE) : 1)
#define GPU_KERNEL(name, threads, ctas)                                                                      \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads),                         \
                              amdgpu_waves_per_eu(GPU__WAVES(threads, ctas)))) void name

#define GPU__GLOBAL __attribute__((address_space(1)))

struct gpu_u128 {
    uint32_t x[4];
};
struct gpu_u64 {
    uint32_t x[2];
};

/* ---------------------------------------------------------------- threads */

GPU_INLINE uint32_t gpu_thread(void)
{
    return __builtin_amdgcn_workitem_id_x();
}
GPU_INLINE uint32_t gpu_threads(void)
{
    return __builtin_amdgcn_workgroup_size_x();
}
GPU_INLINE uint32_t gpu_cta(void)
{
    return __builtin_amdgcn_workgroup_id_x();
}
GPU_INLINE uint32_t gpu_cta_y(void)
{
    return __builtin_amdgcn_workgroup_id_y();
}
GPU_INLINE uint32_t gpu_cta_z(void)
{
    return __builtin_amdgcn_workgroup_id_z();
}
/* The first of the hidden arguments: hidden_block_count_x in a kernel's notes. */
GPU_INLINE uint32_t gpu_ctas(void)
{
    return *(const __attribute__((address_space(4))) uint32_t *)__builtin_amdgcn_implicitarg_ptr();
}

GPU_INLINE unsigned char *gpu_shared(void)
{
    extern __attribute__((shared, aligned(128))) unsigned char gpu_shared_bytes[];
    return gpu_shared_bytes;
}

GPU_INLINE void gpu_barrier(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
/* Lanes of a wave run in lockstep: a warp sees what it wrote, if the compiler does not reorder. */
GPU_INLINE void gpu_warp_barrier(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
GPU_INLINE void gpu_fence(void)
{
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
}
GPU_INLINE uint32_t gpu_atomic_add(uint32_t *at, uint32_t value)
{
    return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
GPU_INLINE uint32_t gpu_atomic_or(uint32_t *at, uint32_t bits)
{
    return __hip_atomic_fetch_or(at, bits, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

/* Taking the address of the argument itself would copy it to the stack of every thread. */
GPU_INLINE const void *gpu_argument(const void *argument)
{
    (void)argument;
    return (const void *)__builtin_amdgcn_kernarg_segment_ptr();
}
/* Without this the compiler loads every member that it reads at once, and there are only 102 scalar
 * registers. */
GPU_INLINE const void *gpu_again(const void *part)
{
    const uint64_t all = (uint64_t)part;
    const uint32_t low = __builtin_amdgcn_readfirstlane((uint32_t)all);
    uint64_t at = (uint64_t)__builtin_amdgcn_readfirstlane((uint32_t)(all >> 32)) << 32 | low;

    __asm__ volatile("" : "+s"(at));
    return (const void *)(const __attribute__((address_space(4))) void *)at;
}

/* Without this, values that are equal in all lanes, and comparisons made of them, would take scalar
 * registers. */
GPU_INLINE uint32_t gpu_own_u32(uint32_t x)
{
    __asm__ volatile("" : "+v"(x));
    return x;
}
GPU_INLINE uint64_t gpu_own_u64(uint64_t x)
{
    __asm__ volatile("" : "+v"(x));
    return x;
}

/* ---------------------------------------------------------------- lanes of a warp */

GPU_INLINE uint32_t gpu_f32_bits(float x)
{
    return __builtin_bit_cast(uint32_t, x);
}
GPU_INLINE float gpu_f32_of_bits(uint32_t x)
{
    return __builtin_bit_cast(float, x);
}

GPU_INLINE uint32_t gpu_shuffle_u32(uint32_t value, uint32_t lane)
{
    const uint32_t own = gpu_thread() & (GPU_WAVE - GPU_WARP);

    return (uint32_t)__builtin_amdgcn_ds_bpermute((int)((own | (lane & (GPU_WARP - 1))) << 2), (int)value);
}
GPU_INLINE float gpu_shuffle_f32(float value, uint32_t lane)
{
    return gpu_f32_of_bits(gpu_shuffle_u32(gpu_f32_bits(value), lane));
}
GPU_INLINE uint64_t gpu_shuffle_u64(uint64_t value, uint32_t lane)
{
    return (uint64_t)gpu_shuffle_u32((uint32_t)(value >> 32), lane) << 32 |
           gpu_shuffle_u32((uint32_t)value, lane);
}

/* A mask that is known takes one instruction: within 4 lanes, within 16, or an exchange of 32. */
#define GPU__DPP(value, control)  ((uint32_t)__builtin_amdgcn_mov_dpp((int)(value), control, 0xf, 0xf, true))
#define GPU__SWAP(value, control) ((uint32_t)__builtin_amdgcn_ds_swizzle((int)(value), control))
GPU_INLINE uint32_t gpu_shuffle_xor_u32(uint32_t value, uint32_t mask)
{
    if (__builtin_constant_p(mask)) {
        switch (mask) {
        case 1:
            return GPU__DPP(value, 0xb1);
        case 2:
            return GPU__DPP(value, 0x4e);
        case 4:
            return GPU__SWAP(value, 4 << 10 | 0x1f);
        case 8:
            return GPU__DPP(value, 0x128);
        case 16:
            return GPU__SWAP(value, 16 << 10 | 0x1f);
        }
    }
    return gpu_shuffle_u32(value, gpu_thread() ^ mask);
}
GPU_INLINE float gpu_shuffle_xor_f32(float value, uint32_t mask)
{
    return gpu_f32_of_bits(gpu_shuffle_xor_u32(gpu_f32_bits(value), mask));
}
GPU_INLINE double gpu_shuffle_xor_f64(double value, uint32_t mask)
{
    const uint64_t bits = __builtin_bit_cast(uint64_t, value);
    const uint64_t low = gpu_shuffle_xor_u32((uint32_t)bits, mask);

    return __builtin_bit_cast(double,
                              (uint64_t)gpu_shuffle_xor_u32((uint32_t)(bits >> 32), mask) << 32 | low);
}
GPU_INLINE uint32_t gpu_ballot(bool predicate)
{
#if defined(__GFX9__)
    return (uint32_t)(__builtin_amdgcn_ballot_w64(predicate) >> (gpu_thread() & 32));
#else
    return __builtin_amdgcn_ballot_w32(predicate);
#endif
}

/* ---------------------------------------------------------------- numbers */

/* The compiler uses v_exp_f32, and adds instructions for subnormal numbers. */
GPU_INLINE float gpu_exp2(float x)
{
    return __builtin_exp2f(x);
}
GPU_INLINE float gpu_exp(float x)
{
    return __builtin_expf(x);
}
GPU_INLINE float gpu_exp2_fast(float x)
{
    return __builtin_amdgcn_exp2f(x);
}
GPU_INLINE float gpu_tanh(float x)
{
    return gpu_math_tanh(x);
}
GPU_INLINE float gpu_fma(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
GPU_INLINE float gpu_divide(float a, float b)
{
    return a / b;
}
GPU_INLINE double gpu_exp_f64(double x)
{
    return gpu_math_exp_f64(x);
}
GPU_INLINE double gpu_log_f64(double x)
{
    return gpu_math_log_f64(x);
}
GPU_INLINE double gpu_tanh_f64(double x)
{
    return gpu_math_tanh_f64(x);
}
GPU_INLINE uint32_t gpu_first_bit(uint32_t x)
{
    return (uint32_t)__builtin_ctz(x);
}

GPU_INLINE float gpu_f16_to_f32(uint16_t x)
{
    return (float)__builtin_bit_cast(_Float16, x);
}
GPU_INLINE uint16_t gpu_f32_to_f16(float x)
{
    return __builtin_bit_cast(uint16_t, (_Float16)x);
}
GPU_INLINE float gpu_bf16_to_f32(uint16_t x)
{
    return gpu_f32_of_bits((uint32_t)x << 16);
}
GPU_INLINE uint16_t gpu_f32_to_bf16(float x)
{
    const uint32_t bits = gpu_f32_bits(x);

    return (uint16_t)((x != x ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
GPU_INLINE uint32_t gpu_pack_f16(float low, float high)
{
    return gpu_f32_to_f16(low) | (uint32_t)gpu_f32_to_f16(high) << 16;
}
GPU_INLINE uint32_t gpu_pack_bf16(float low, float high)
{
    return gpu_f32_to_bf16(low) | (uint32_t)gpu_f32_to_bf16(high) << 16;
}

typedef _Float16 gpu__half2 __attribute__((ext_vector_type(2)));
GPU_INLINE uint32_t gpu_fma_f16(uint32_t a, uint32_t b, uint32_t c)
{
    return __builtin_bit_cast(uint32_t, __builtin_elementwise_fma(__builtin_bit_cast(gpu__half2, a),
                                                                  __builtin_bit_cast(gpu__half2, b),
                                                                  __builtin_bit_cast(gpu__half2, c)));
}
/* Most of these GPUs have no such instruction; f32 is exact for the numbers that codec8.h needs it for. */
GPU_INLINE uint32_t gpu_fma_bf16(uint32_t a, uint32_t b, uint32_t c)
{
    const float low = gpu_fma(gpu_f32_of_bits(a << 16), gpu_f32_of_bits(b << 16), gpu_f32_of_bits(c << 16));
    const float high = gpu_fma(gpu_f32_of_bits(a & 0xffff0000u), gpu_f32_of_bits(b & 0xffff0000u),
                               gpu_f32_of_bits(c & 0xffff0000u));

    return gpu_pack_bf16(low, high);
}
GPU_INLINE uint32_t gpu_permute(uint32_t low, uint32_t high, uint32_t selector)
{
    const uint32_t bytes =
        (selector & 7) | (selector & 0x70) << 4 | (selector & 0x700) << 8 | (selector & 0x7000) << 12;

    return __builtin_amdgcn_perm(high, low, bytes);
}
/* f16 has the same fields with another bias; the highest code is NaN. */
GPU_INLINE void gpu_e4m3_to_f16(uint32_t codes, uint32_t out[2])
{
    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t pair = gpu_permute(codes, 0, i == 0 ? 0x4140 : 0x4342), rest = pair & 0x007f007fu;
        const uint32_t nan = (rest + 0x00010001u) & 0x00800080u;
        const uint32_t number = (pair & 0x00800080u) << 8 | rest << 7;
        out[i] = gpu_fma_f16(number, 0x5c005c00u, 0x80008000u) | ((nan << 8) - (nan >> 7));
    }
}

/* ---------------------------------------------------------------- memory */

typedef uint32_t gpu__four __attribute__((ext_vector_type(4)));
GPU_INLINE struct gpu_u128 gpu_load_u128(const void *at)
{
    return __builtin_bit_cast(struct gpu_u128, *(const gpu__four *)at);
}
GPU_INLINE void gpu_store_u128(void *at, struct gpu_u128 from)
{
    *(gpu__four *)at = __builtin_bit_cast(gpu__four, from);
}
/* The compiler itself keeps the order of accesses that may be to the same address. */
GPU_INLINE struct gpu_u128 gpu_load_global_u128(uint64_t at)
{
    return __builtin_bit_cast(struct gpu_u128, *(const GPU__GLOBAL gpu__four *)at);
}
GPU_INLINE void gpu_store_global_u128(uint64_t at, struct gpu_u128 from)
{
    *(GPU__GLOBAL gpu__four *)at = __builtin_bit_cast(gpu__four, from);
}
GPU_INLINE uint64_t gpu__load_volatile(uint64_t at)
{
    return __hip_atomic_load((const GPU__GLOBAL uint64_t *)at, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
GPU_INLINE struct gpu_u64 gpu_load_volatile_u64(uint64_t at)
{
    return __builtin_bit_cast(struct gpu_u64, gpu__load_volatile(at));
}
GPU_INLINE struct gpu_u128 gpu_load_volatile_u128(uint64_t at)
{
    const uint64_t low = gpu__load_volatile(at), high = gpu__load_volatile(at + 8);
    struct gpu_u128 to;

    to.x[0] = (uint32_t)low, to.x[1] = (uint32_t)(low >> 32);
    to.x[2] = (uint32_t)high, to.x[3] = (uint32_t)(high >> 32);
    return to;
}

#endif
