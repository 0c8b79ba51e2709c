/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The matrix kernels for latent caches that there are, for whoever compiles or launches them. */
#ifndef ATTN_GPU_LATENT_H
#define ATTN_GPU_LATENT_H

/* Columns of queries and keys, and the first of them that are values; smaller ones are padded with zeros. */
#define GPU_LATENT_DIM 576u
#define GPU_LATENT_VO  512u

#define GPU_LATENT_THREADS 256u

/* Bytes of a tile of 64 keys in shared memory. */
#define GPU_LATENT_STAGE (64u * GPU_LATENT_DIM * 2u)
/* Bytes beside the tiles, a multiple of 128. */
#define GPU_LATENT_FIXED(rows) (((rows)*88u + ((rows) > 32 ? 8192u : 4096u) + 3584u + 127u) / 128u * 128u)
/* Of the whole kernel. */
#define GPU_LATENT_SHARED(rows, stages) (GPU_LATENT_FIXED(rows) + (stages)*GPU_LATENT_STAGE)

#endif
