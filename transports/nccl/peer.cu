/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of calls over peer memory in CUDA C++, for sm_80 and newer. */
#include <stddef.h>
#include <stdint.h>

#include "device-cuda.h"

GPU_INLINE void peer_store_line(uint64_t at, uint64_t a, uint64_t b)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(a), "l"(b) : "memory");
}
GPU_INLINE void peer_load_line(uint64_t at, uint64_t *a, uint64_t *b)
{
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(*a), "=l"(*b) : "l"(at) : "memory");
}
GPU_INLINE uint32_t peer_load_host(uint64_t at)
{
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
GPU_INLINE void peer_store_host(uint64_t at, uint32_t value)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
GPU_INLINE uint32_t peer_load_own(uint64_t at)
{
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
GPU_INLINE uint64_t peer_now_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
GPU_INLINE void peer_pause(void)
{
}

#include "peer-kernel.h"
