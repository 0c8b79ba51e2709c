/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The matrix kernels that there are, for whoever compiles or launches them. */
#ifndef ATTN_GPU_MMA_H
#define ATTN_GPU_MMA_H

/* Keys that a CTA takes in one turn: one tile, or two. */
#define GPU_MMA_STEP(rows, dk, size) ((rows) == 8 && (size) == 1 && (dk) <= 192 ? 128u : 64u)

/*
 * Keys and values of a turn are fetched one after the other, each into one half of a ring in shared memory.
 * This many halves: with all CTAs of a multiprocessor, about 96 KB are under way. `half`: bytes of one.
 */
#define GPU_MMA_HALF(rows, dk, dv, size) (GPU_MMA_STEP(rows, dk, size) * ((dk) > (dv) ? (dk) : (dv)) * (size))
#define GPU_MMA_HALVES(rows, dk, dv, size)                                                                   \
    ((rows) > 16 && (dk) > 192 && (size) == 2                                       ? 2u                     \
     : GPU_MMA_HALF(rows, dk, dv, size) > 12288                                     ? 3u                     \
     : GPU_MMA_HALF(rows, dk, dv, size) > 8192 || GPU_MMA_STEP(rows, dk, size) > 64 ? 4u                     \
     : GPU_MMA_HALF(rows, dk, dv, size) > 4096                                      ? 5u                     \
                                                                                    : 8u)
/* Turns whose places are noted: those of all halves, and one more. */
#define GPU_MMA_RING(halves) ((halves) / 2u + 2u)

/*
 * Bytes between rows of queries, keys and values in shared memory: an odd number of 16, so that neighbours
 * begin in other banks. Kernels of 16 rows and fewer turn the chunks of a row instead.
 */
#define GPU_MMA_SPARE(rows) ((rows) <= 16 ? 0u : 16u)

/* Bytes of shared memory beside queries and halves, a multiple of 128. */
#define GPU_MMA_FIXED(rows, step, halves)                                                                    \
    ((2944u + 80u * (rows) + 24u * (step)*GPU_MMA_RING(halves) + 127u) / 128u * 128u)
/* Results of all teams, which take the place of queries and halves. */
#define GPU_MMA_PITCH(dv)         ((dv) + 8u) /* floats of a row */
#define GPU_MMA_RESULTS(rows, dv) (((rows) <= 16 ? 4u : 1u) * (rows)*GPU_MMA_PITCH(dv) * 4u)
#define GPU_MMA_INPUTS(rows, dk, dv, size)                                                                   \
    ((rows) * ((dk)*2u + GPU_MMA_SPARE(rows)) +                                                              \
     GPU_MMA_HALVES(rows, dk, dv, size) * (GPU_MMA_HALF(rows, dk, dv, size) + 64u * GPU_MMA_SPARE(rows)))
/* Of the whole kernel; `size`: bytes of a key's or value's element. */
#define GPU_MMA_SHARED(rows, dk, dv, size)                                                                   \
    (GPU_MMA_FIXED(rows, GPU_MMA_STEP(rows, dk, size), GPU_MMA_HALVES(rows, dk, dv, size)) +                 \
     (GPU_MMA_INPUTS(rows, dk, dv, size) > GPU_MMA_RESULTS(rows, dv) ? GPU_MMA_INPUTS(rows, dk, dv, size)    \
                                                                     : GPU_MMA_RESULTS(rows, dv)))

/* CTAs that fit a multiprocessor of 227 KB. */
#define GPU_MMA_CTAS(rows, dk, dv, size)                                                                     \
    ((rows) <= 16 ? ((dk) > 192 ? ((size) == 1 ? 2 : 1) : (dk) > 128 ? 2 : (dk) > 64 ? 3 : 4) : 2)

#define GPU_LOG2E 1.4426950408889634f

#define GPU_MMA_JOIN(name, tag, rest) name##tag##rest
#define GPU_MMA_NAME(name, tag, rest) GPU_MMA_JOIN(name, tag, rest)

#endif
