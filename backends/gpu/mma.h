/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The matrix kernels that there are, for whoever compiles or launches them. */
#ifndef ATTN_GPU_MMA_H
#define ATTN_GPU_MMA_H

/* Bytes of shared memory beside queries and tiles, a multiple of 128. */
#define GPU_MMA_FIXED(rows, mi, stages)                                                                      \
    ((1024 + 2048 + 512 * (mi) + 96 * (rows) + 1536 * ((stages) + 1) + 127) / 128 * 128)
/* Of the whole kernel; `size`: bytes of a key's or value's element. */
#define GPU_MMA_SHARED(rows, mi, stages, dk, dv, size)                                                       \
    (GPU_MMA_FIXED(rows, mi, stages) + (rows) * (dk)*2 + (stages)*64 * ((dk) + (dv)) * (size))

/* Tiles of keys under way: enough bytes for the memory with two CTAs on a multiprocessor, or one. */
#define GPU_MMA_STAGES(rows, dk, dv, size)                                                                   \
    ((dk) + (dv) > 256   ? 4 / (size)                                                                        \
     : (dk) + (dv) > 128 ? ((rows) > 16 ? 4 : 6) / (size)                                                    \
                         : ((rows) > 16 ? 4 : 6))

#define GPU_LOG2E 1.4426950408889634f

#define GPU_MMA_JOIN(name, tag, rest) name##tag##rest
#define GPU_MMA_NAME(name, tag, rest) GPU_MMA_JOIN(name, tag, rest)

#endif
