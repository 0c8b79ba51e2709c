/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The argument blocks of operations on caches, of merges and of decode steps, for the host and for OpenCL C,
 * as that of arguments.h. Offsets and strides are bytes; an offset is negative where its buffer is not given.
 */
#ifndef ATTN_OPENCL_OPERATIONS_H
#define ATTN_OPENCL_OPERATIONS_H

#ifndef __OPENCL_VERSION__
#include "arguments.h"
#endif

/* ---------------------------------------------------------------- moves */

/* Keys and values with their scales. */
#define OPENCL_PLANES 4
/* Units that a work-item holds at once. */
#define OPENCL_HELD 8

/* Pages, or tokens: number / block at the page's stride plus number % block at the token's. */
struct opencl_places {
    opencl_i64 at;
    opencl_i64 page, token;
    opencl_i64 outer, inner; /* strides of the units of a place */
    opencl_i64 count;        /* of the cache; a pair with a place beyond them is skipped */
    opencl_i32 block;
    opencl_i32 reserved;
};

/* What is copied from place to place: [outer, inner, run] units, of which those of a run lie together. */
struct opencl_plane {
    struct opencl_places from, to;
    opencl_i64 inner, run;
    opencl_i64 units; /* outer * inner * run */
    opencl_i32 unit;  /* bytes: 1, 2, 4, 8 or 16 */
    opencl_i32 reserved;
};

/* Buffers: those of sources and targets, plane by plane; pairs, i64 [count, 2]. */
enum opencl_move_buffer {
    OPENCL_MOVE_FROM,
    OPENCL_MOVE_TO = OPENCL_PLANES,
    OPENCL_MOVE_PAIRS = 2 * OPENCL_PLANES
};

struct opencl_move {
    struct opencl_plane planes[OPENCL_PLANES];
    opencl_i64 pairs;
    opencl_i32 count; /* pairs */
    opencl_i32 slice; /* units that a work-group moves; a power of two up to OPENCL_ITEMS */
};

/* ---------------------------------------------------------------- conversion */

/* Keys or values of a cache. */
struct opencl_side {
    opencl_i64 at, scale_at;
    struct opencl_strides strides;
    struct opencl_scale scale; /* scale_at < 0: its value */
    opencl_i32 dtype;
    opencl_i32 own;         /* vectors have scales of their own, which are written with them */
    opencl_i32 x, x_stride; /* layout paged-x, as in arguments.h */
    opencl_i32 dim;
    opencl_i32 pages;
};

enum opencl_convert_buffer {
    OPENCL_CONVERT_FROM,
    OPENCL_CONVERT_FROM_SCALE,
    OPENCL_CONVERT_TO,
    OPENCL_CONVERT_TO_SCALE,
    OPENCL_CONVERT_PAIRS
};

struct opencl_convert {
    struct opencl_side from, to;
    opencl_i64 pairs; /* i64 [count, 2]; not given: every page to its number */
    opencl_i32 count;
    opencl_i32 block;
    opencl_i32 heads;
    opencl_i32 moved; /* elements and scales are copied, not converted */
};

/* ---------------------------------------------------------------- merge */

/* Different buffers of the parts. */
#define OPENCL_PART_BUFFERS 20

struct opencl_part {
    opencl_i64 out_at, lse_at;
    struct opencl_rows out, lse;
    opencl_i32 out_buffer, lse_buffer; /* numbers among the buffers of the parts */
};

/* Buffers: those of the parts; out; lse, which is the rank's own in a rescaling; a list of parts. */
enum opencl_merge_buffer { OPENCL_MERGE_OUT = OPENCL_PART_BUFFERS, OPENCL_MERGE_LSE, OPENCL_MERGE_PARTS };

struct opencl_merge {
    opencl_i64 out_at, lse_at;
    struct opencl_rows out, lse;
    opencl_i32 count; /* parts */
    opencl_i32 heads;
    opencl_i32 head_dim;
    opencl_i32 dtype;
    opencl_i32 base2; /* logarithms of parts are of base 2 */
    opencl_i32 reserved;
};

/* ---------------------------------------------------------------- decode step */

/* Buffers, in the order of the kernels' arguments: members of struct attn_kv_advance_step_args. */
#define OPENCL_FOR_STEP_BUFFERS(X)                                                                           \
    X(table)                                                                                                 \
    X(query_starts)                                                                                          \
    X(accepted)                                                                                              \
    X(sampled)                                                                                               \
    X(tokens)                                                                                                \
    X(positions)                                                                                             \
    X(slots)                                                                                                 \
    X(seq_lens)                                                                                              \
    X(context_lens)                                                                                          \
    X(seq_starts)                                                                                            \
    X(csr_indptr)                                                                                            \
    X(csr_indices)                                                                                           \
    X(last_page_lens)                                                                                        \
    X(csr_pages)

enum opencl_step_buffer {
#define OPENCL_BUFFER(name) OPENCL_STEP_##name,
    OPENCL_FOR_STEP_BUFFERS(OPENCL_BUFFER)
#undef OPENCL_BUFFER
        OPENCL_STEP_BUFFERS
};

struct opencl_step {
    opencl_i64 at[OPENCL_STEP_BUFFERS];
    opencl_i64 table_stride;
    opencl_i64 csr_capacity;
    opencl_i64 window;
    opencl_i32 block;
    opencl_i32 seqs;
    opencl_i32 queries;
    opencl_i32 num_tokens;
    opencl_i32 keep_padding;
    opencl_i32 wide_index;
    opencl_i32 table_width;
    opencl_i32 windowed;
};

#endif
