/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Device intrinsics that the matrix kernels for AMD use beside those of backends/gpu/kernels/device.h, and
 * their replacements on the host, where tests run the same source on fibers.
 */
#ifndef ATTN_HIP_INTRINSICS_H
#define ATTN_HIP_INTRINSICS_H

#include "device.h"

#include "address.h"

#if defined(__AMDGCN__)

/* The scheduler moves nothing across it, so that operands are not loaded long before they are multiplied and
 * take no registers meanwhile. */
GPU_INLINE void tile_sched_barrier(void)
{
    __builtin_amdgcn_sched_barrier(0);
}

/* The same value, of which the compiler knows nothing: addresses are computed again instead of kept. */
GPU_INLINE uint32_t tile_opaque(uint32_t x)
{
    __asm__ volatile("" : "+v"(x));
    return x;
}

/* A value that is equal in all lanes of the wave, as a scalar. */
GPU_INLINE uint32_t tile_uniform(uint32_t x)
{
    return (uint32_t)__builtin_amdgcn_readfirstlane((int)x);
}

/* The value of any lane of the wave; those of device.h stay within 32 lanes. */
template <uint32_t wave_size> GPU_INLINE uint32_t tile_read_lane(uint32_t value, uint32_t lane)
{
    return (uint32_t)__builtin_amdgcn_ds_bpermute((int)(lane * 4), (int)value);
}

/* sum + the products of two f16. */
GPU_INLINE float tile_dot_f16(uint32_t a, uint32_t b, float sum)
{
    typedef _Float16 half2 __attribute__((ext_vector_type(2)));
    half2 x, y;

    __builtin_memcpy(&x, &a, 4);
    __builtin_memcpy(&y, &b, 4);
    return __builtin_amdgcn_fdot2(x, y, sum, false);
}

#else

GPU_INLINE void tile_sched_barrier(void)
{
}
GPU_INLINE uint32_t tile_opaque(uint32_t x)
{
    return x;
}
GPU_INLINE uint32_t tile_uniform(uint32_t x)
{
    return x;
}

template <uint32_t wave_size> GPU_INLINE uint32_t tile_read_lane(uint32_t value, uint32_t lane)
{
    static uint32_t shown[8][wave_size];
    const uint32_t wave = gpu_thread() / wave_size;

    shown[wave][gpu_thread() % wave_size] = value;
    gpu_barrier_part(1 + wave, wave_size);
    value = shown[wave][lane];
    gpu_barrier_part(1 + wave, wave_size);
    return value;
}

GPU_INLINE float tile_dot_f16(uint32_t a, uint32_t b, float sum)
{
    sum = gpu_fma(gpu_f16_to_f32((uint16_t)a), gpu_f16_to_f32((uint16_t)b), sum);
    return gpu_fma(gpu_f16_to_f32((uint16_t)(a >> 16)), gpu_f16_to_f32((uint16_t)(b >> 16)), sum);
}

#endif

GPU_INLINE uint64_t tile_uniform_u64(uint64_t x)
{
    return (uint64_t)tile_uniform((uint32_t)(x >> 32)) << 32 | tile_uniform((uint32_t)x);
}
GPU_INLINE float tile_uniform_f32(float x)
{
    return gpu_f32_of_bits(tile_uniform(gpu_f32_bits(x)));
}

/* Words of shared memory at a multiple of 8 bytes. */
GPU_INLINE struct gpu_u64 tile_load_u64(const unsigned char *at)
{
    struct gpu_u64 to;

    __builtin_memcpy(&to, __builtin_assume_aligned(at, 8), 8);
    return to;
}
GPU_INLINE void tile_store_u64(unsigned char *at, struct gpu_u64 from)
{
    __builtin_memcpy(__builtin_assume_aligned(at, 8), &from, 8);
}

#endif
