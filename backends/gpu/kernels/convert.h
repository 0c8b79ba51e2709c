/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * 8-bit keys and values that prefill of many query rows converts to 16 bits, or for products of e4m3 puts in
 * another order, once for all row tiles of a step: which sequences have that, and the workspace that holds
 * the result, for host and device.
 *
 * The workspace is a cache of pages of the step's own, with CSR addressing: a sequence that is converted has
 * its pages one behind the other, and entry i of the page list is i, or -1 for an invalid block.
 */
#ifndef ATTN_GPU_CONVERT_H
#define ATTN_GPU_CONVERT_H

#include <assert.h>

#include "constexpr.h"
#include "divisor.h"
#include "run.h"

/* Sequences with fewer query rows read each key too seldom. */
#define GPU_CONVERTED_MIN_ROWS 257u
/* Most bytes of a workspace: so many, or of a larger device this part of its memory. A step whose keys it
 * does not hold is not converted. */
#define GPU_CONVERTED_BYTES (UINT64_C(256) << 20)
#define GPU_CONVERTED_SHARE 128u
/* Tokens of a page of the workspace where the step has no pages. */
#define GPU_CONVERTED_BLOCK   64u
#define GPU_CONVERT_THREADS   256u
#define GPU_CONVERT_CTAS      8u /* of a multiprocessor */
#define GPU_CONVERTED_COLUMNS 8u /* converted at once: dimensions are multiples of it */

/* Which sequences a part of a plan takes, of those whose numbers of rows it takes. */
enum gpu_conversion {
    GPU_AS_CACHED,    /* all */
    GPU_CONVERTED,    /* with GPU_CONVERTED_MIN_ROWS rows, if the workspace holds them all */
    GPU_NOT_CONVERTED /* the others */
};

/*
 * Of products in e4m3: a page of the workspace is a KV iteration, and vectors have as many columns as their
 * kernel, behind the last one zeros. Keys are [page, token, kv head, column]; values are [page, kv head,
 * column, token], as their products take them, and tokens in the order in which a lane has P of them. Rows of
 * these have 128 bytes: where a page has fewer tokens, those of a column of each half. What does not exist is
 * zeros.
 */
#define GPU_E4M3_THREADS 256u
#define GPU_E4M3_SHARED  20480u /* bytes of a CTA's shared memory */
#define GPU_E4M3_ROW     128u   /* bytes of a row of values */
#define GPU_E4M3_MAX_DIM 256u

/* Columns of the kernel for vectors of so many. */
GPU_CONSTEXPR uint32_t gpu_e4m3_columns(uint32_t dim)
{
    return dim <= 128 ? 128 : GPU_E4M3_MAX_DIM;
}

/* Tokens of a page of as many columns. */
GPU_CONSTEXPR uint32_t gpu_e4m3_block(uint32_t columns)
{
    return columns <= 128 ? 128 : 64;
}

/* What a kernel has to know of a page and kv head. */
struct gpu_marks {
    uint64_t present[2]; /* which keys exist, a bit for each */
    uint64_t values;     /* address: which values are NaN, a bit for each: [token, column]. They are zeros */
    uint32_t nonfinite;  /* 1: some are */
    uint32_t reserved;
};

/* What the kernel needs beside the run, whose schedule has the first page of each sequence: i32 [seqs + 1].
 */
struct gpu_convert {
    struct gpu_run run;
    uint64_t k, v;    /* written: [page, token, kv head, column], of 16 bits */
    uint64_t entries; /* written: i32 [pages] */
    /* Written: f32, one that is finite and positive, or [kv head, page, token] where every key has a scale,
     * and values are multiplied by theirs. e4m3: nothing is, kernels look scales up where they are. */
    uint64_t k_scale;
    int64_t k_scale_stride;       /* bytes between heads; 0: one for all */
    struct gpu_divisor vector[2]; /* by the units of eight columns of a key and of a value, */
    struct gpu_divisor row[2];    /* and of all heads */
    uint32_t bf16;                /* 1: bf16, 0: f16 */
    uint32_t reserved;
    uint64_t marks; /* e4m3, written: struct gpu_marks [page, kv head], and */
    uint64_t bits;  /* those of values: [page, kv head, token, column / 8] */
};

static_assert(sizeof(struct gpu_convert) < 4000, "the argument block of a launch");

#endif
