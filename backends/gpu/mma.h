/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The matrix kernels that there are, for whoever compiles or launches them. */
#ifndef ATTN_GPU_MMA_H
#define ATTN_GPU_MMA_H

/*
 * Keys and values of a tile are fetched one after the other, each into one half of a ring in shared memory.
 * This many halves: with all CTAs of a multiprocessor, about 96 KB are under way. `half`: bytes of one.
 */
#define GPU_MMA_HALF(dk, dv, size) (64u * ((dk) > (dv) ? (dk) : (dv)) * (size))
#define GPU_MMA_HALVES(dk, dv, size)                                                                         \
    (GPU_MMA_HALF(dk, dv, size) > 12288  ? 3u                                                                \
     : GPU_MMA_HALF(dk, dv, size) > 8192 ? 4u                                                                \
     : GPU_MMA_HALF(dk, dv, size) > 4096 ? 5u                                                                \
                                         : 8u)
/* Tiles whose places are noted: those of all halves, and one more. */
#define GPU_MMA_RING(halves) ((halves) / 2u + 2u)

/* Bytes of shared memory beside queries and halves, a multiple of 128. */
#define GPU_MMA_FIXED(rows, halves)                                                                          \
    ((2560u + 112u * (rows) + 1536u * GPU_MMA_RING(halves) + 127u) / 128u * 128u)
/* Of the whole kernel; `size`: bytes of a key's or value's element. */
#define GPU_MMA_SHARED(rows, dk, dv, size)                                                                   \
    (GPU_MMA_FIXED(rows, GPU_MMA_HALVES(dk, dv, size)) + (rows) * (dk)*2u +                                  \
     GPU_MMA_HALVES(dk, dv, size) * GPU_MMA_HALF(dk, dv, size))

/* CTAs that fit a multiprocessor of 227 KB. */
#define GPU_MMA_CTAS(rows, dk, dv, size)                                                                     \
    ((rows) == 16 ? ((dk) > 192   ? ((size) == 1 ? 2 : 1)                                                    \
                     : (dk) > 128 ? 2                                                                        \
                     : (dk) > 64  ? 3                                                                        \
                                  : 4)                                                                        \
                  : ((dk) > 192 && (size) == 2 ? 1 : 2))

#define GPU_LOG2E 1.4426950408889634f

#define GPU_MMA_JOIN(name, tag, rest) name##tag##rest
#define GPU_MMA_NAME(name, tag, rest) GPU_MMA_JOIN(name, tag, rest)

#endif
