/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The matrix kernels that there are for AMD's GPUs, for whoever compiles or launches them. */
#ifndef ATTN_HIP_TILE_H
#define ATTN_HIP_TILE_H

/*
 * A CTA has four waves, whose lanes hold the results of 16 rows each; waves of 32 lanes that have 256 columns
 * of values share these by two.
 */
#define HIP_TILE_HALVES(dv, wave)  ((dv) > 128 && (wave) == 32 ? 2u : 1u)
#define HIP_TILE_THREADS(dv, wave) (4u * HIP_TILE_HALVES(dv, wave) * (wave))

/* Bytes between rows of queries and keys, and between columns of values, in shared memory: rows that follow
 * one another begin in other banks. */
#define HIP_TILE_PITCH(dk) ((dk)*2u + 16u)
#define HIP_TILE_COLUMN    136u
/* Results of 64 columns: floats of a row, and bytes of all rows of four waves. */
#define HIP_TILE_RESULT  68u
#define HIP_TILE_RESULTS (64u * HIP_TILE_RESULT * 4u)
/* Queries, keys, values and results take turns in one place. */
#define HIP_TILE_MORE(a, b) ((a) > (b) ? (a) : (b))
#define HIP_TILE_AREA(dk, dv)                                                                                \
    HIP_TILE_MORE(HIP_TILE_RESULTS, HIP_TILE_MORE(64u * HIP_TILE_PITCH(dk), (dv)*HIP_TILE_COLUMN))
/* Bytes of shared memory beside it, a multiple of 128. */
#define HIP_TILE_FIXED(rows, dv)      ((4608u + 16u * (dv) + 88u * (rows) + 127u) / 128u * 128u)
#define HIP_TILE_SHARED(rows, dk, dv) (HIP_TILE_FIXED(rows, dv) + HIP_TILE_AREA(dk, dv))

/*
 * How vectors lie, in gpu_run.whole: on 16 bytes in one piece (1, as for all kernels), or as in layout
 * paged-x, keys in pieces of 16 bytes, and elements of values next to those of the tokens before and behind
 * in pages of whole fours; all on 16 bytes, or four elements.
 */
#define HIP_TILE_PIECES 2u

#endif
