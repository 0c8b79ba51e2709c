/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A kernel for each instruction of programs.def, and for the matrix instructions that the GPU has. */
#define DEVICE __attribute__((device)) static inline
#define KERNEL extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, 64))) void
typedef unsigned int u32;
typedef unsigned long long u64;

struct arguments {
    const u32 *from; /* 6 words a lane; for matrices 8 of a, 8 of b, 16 of c */
    u32 *to;         /* 2 words a lane, or 16 */
};

DEVICE u32 lane(void)
{
    return __builtin_amdgcn_workitem_id_x();
}

#define WORD(name, text, result)                                                                             \
    KERNEL name(struct arguments g)                                                                          \
    {                                                                                                        \
        const u32 *in = g.from + 6 * lane();                                                                 \
        u32 a = in[0], b = in[2], c = in[4], r;                                                              \
        asm volatile(text : "=&v"(r) : "v"(a), "v"(b), "v"(c) : "vcc", "s20");                               \
        g.to[2 * lane()] = r;                                                                                \
    }
#define WIDE(name, text, result)                                                                             \
    KERNEL name(struct arguments g)                                                                          \
    {                                                                                                        \
        const u64 *in = (const u64 *)(g.from + 6 * lane());                                                  \
        u64 a = in[0], b = in[1], c = in[2], r;                                                              \
        asm volatile(text : "=&v"(r) : "v"(a), "v"(b), "v"(c));                                              \
        ((u64 *)g.to)[lane()] = r;                                                                           \
    }
#define LANE(name, text, from) WORD(name, text, from)
#if defined(__GFX9__)
#define MASK "vcc"
#else
#define MASK "vcc_lo"
#endif
#include "programs.def"

typedef u32 words2 __attribute__((ext_vector_type(2)));
typedef u32 words4 __attribute__((ext_vector_type(4)));
typedef u32 words8 __attribute__((ext_vector_type(8)));
typedef float sums4 __attribute__((ext_vector_type(4)));
typedef float sums8 __attribute__((ext_vector_type(8)));
typedef float sums16 __attribute__((ext_vector_type(16)));

#define MATRIX(name, text, words, sums, count)                                                               \
    KERNEL name(struct arguments g)                                                                          \
    {                                                                                                        \
        const u32 *in = g.from + 32 * lane();                                                                \
        words a, b;                                                                                          \
        sums c;                                                                                              \
        for (u32 i = 0; i < sizeof a / 4; i++) {                                                             \
            a[i] = in[i];                                                                                    \
            b[i] = in[8 + i];                                                                                \
        }                                                                                                    \
        for (u32 i = 0; i < count; i++)                                                                      \
            c[i] = ((const float *)in)[16 + i];                                                              \
        asm volatile(text " %0, %1, %2, %0" : "+v"(c) : "v"(a), "v"(b));                                     \
        for (u32 i = 0; i < count; i++)                                                                      \
            ((float *)g.to)[16 * lane() + i] = c[i];                                                         \
    }
#if defined(__GFX9__)
MATRIX(f16_16x16x16, "v_mfma_f32_16x16x16f16", words2, sums4, 4)
MATRIX(bf16_16x16x16, "v_mfma_f32_16x16x16bf16_1k", words2, sums4, 4)
MATRIX(f16_32x32x8, "v_mfma_f32_32x32x8f16", words2, sums16, 16)
#if defined(__gfx950__)
MATRIX(f16_16x16x32, "v_mfma_f32_16x16x32_f16", words4, sums4, 4)
MATRIX(bf16_16x16x32, "v_mfma_f32_16x16x32_bf16", words4, sums4, 4)
#endif
#elif defined(__GFX12__)
MATRIX(f16_16x16x16, "v_wmma_f32_16x16x16_f16", words4, sums8, 8)
MATRIX(bf16_16x16x16, "v_wmma_f32_16x16x16_bf16", words4, sums8, 8)
#else
MATRIX(f16_16x16x16, "v_wmma_f32_16x16x16_f16", words8, sums8, 8)
MATRIX(bf16_16x16x16, "v_wmma_f32_16x16x16_bf16", words8, sums8, 8)
#endif
