/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The best CPU level of this machine that the operating system lets programs use. */
#define _GNU_SOURCE
#include "plugin/loader.h"

#if defined(__x86_64__)
#include <sys/platform/x86.h>

static bool has_all(const unsigned *features, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!x86_cpu_active(features[i]))
            return false;
    return true;
}

uint32_t attn__cpu_level(void)
{
    static const unsigned v2[] = {x86_cpu_SSE3,   x86_cpu_SSSE3,      x86_cpu_SSE4_1,       x86_cpu_SSE4_2,
                                  x86_cpu_POPCNT, x86_cpu_CMPXCHG16B, x86_cpu_LAHF64_SAHF64};
    static const unsigned v3[] = {x86_cpu_AVX,  x86_cpu_AVX2, x86_cpu_BMI1,  x86_cpu_BMI2,
                                  x86_cpu_F16C, x86_cpu_FMA,  x86_cpu_LZCNT, x86_cpu_MOVBE};
    static const unsigned v4[] = {x86_cpu_AVX512F, x86_cpu_AVX512BW, x86_cpu_AVX512CD, x86_cpu_AVX512DQ};
    if (!has_all(v2, sizeof v2 / sizeof v2[0]))
        return ATTN_CPU_BASELINE;
    if (!has_all(v3, sizeof v3 / sizeof v3[0]))
        return ATTN_CPU_X86_64_V2;
    /* AVX512VL is bit 31, which the macros of the header cannot shift to without overflow. */
    if (!has_all(v4, sizeof v4 / sizeof v4[0]) || !__builtin_cpu_supports("avx512vl"))
        return ATTN_CPU_X86_64_V3;
    return ATTN_CPU_X86_64_V4;
}
#else
uint32_t attn__cpu_level(void)
{
    return ATTN_CPU_BASELINE;
}
#endif
