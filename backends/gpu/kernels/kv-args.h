/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The arguments of the kernels that work on caches, passed by value. Addresses are device
 * addresses as integers, 0 = not there; strides are bytes.
 */
#ifndef ATTN_GPU_KV_ARGS_H
#define ATTN_GPU_KV_ARGS_H

#include <assert.h>

#include "divisor.h"
#include "run.h"

/* Threads of a CTA of all these kernels. */
#define GPU_KV_THREADS 256u
/* Heads of one launch, limited because host scales are passed in the arguments. */
#define GPU_KV_HEADS 128u

/* Keys or values of a cache. A tensor is described as a cache of one page. */
struct gpu_kv_side {
    struct gpu_cache cache; /* scale.base 0: `value`, or `values` */
    uint32_t x_shift;       /* log2 of x_bytes, or 31 if vectors are contiguous */
    uint32_t token_head;    /* 1: a vector has a scale of its own, which is written with it */
    uint32_t by_head;       /* 1: scales are `values` */
    uint32_t reserved;
    float values[GPU_KV_HEADS]; /* of the heads of the launch */
};

/* Source or target of rows: the vectors of all heads of a row, from the address of the first. */
struct gpu_kv_end {
    int64_t head_stride;
    int64_t x_stride;
    uint32_t x_shift; /* as in a side */
    uint32_t dtype;
    uint32_t size; /* bytes of an element */
    uint32_t reserved;
};

/*
 * How whole rows are copied or converted. A unit is 16 bytes in a copy, 8 elements in a conversion; a row has
 * `lanes` places for units of each head, of which the first `units` are used.
 */
enum { GPU_KV_NO_ROWS, GPU_KV_BY_VECTOR, GPU_KV_MOVED, GPU_KV_CONVERTED };

struct gpu_kv_rows {
    struct gpu_kv_end from, to;
    struct gpu_divisor row;    /* divides by the places of a row */
    struct gpu_divisor vector; /* divides by `lanes` */
    uint32_t method;           /* one of these; BY_VECTOR: a warp per vector; NO_ROWS: nothing to do */
    uint32_t units;
    uint32_t split; /* units from here on have another source; 0 = none */
};

/* Largest number of rows that a warp takes at once, a power of two. */
#define GPU_KV_ROWS_MAX 32u

/* Writes the keys and values of rows that have a slot. */
struct gpu_kv_write {
    struct gpu_kv_rows by_row[2];
    struct gpu_kv_side to[2];
    struct gpu_tensor from[2];
    struct gpu_tensor rope; /* columns of keys from `split` on, or base 0 */
    uint32_t from_dtype[2];
    uint32_t wide[2]; /* elements that are contiguous and aligned on both sides: 4 or 1 */
    uint32_t split;
    uint32_t sides;
    uint32_t heads;
    uint32_t rows;
    uint32_t each;   /* rows of a warp at once */
    uint32_t shares; /* warps that share them */
    uint32_t block;
    uint32_t pages;
    int64_t page; /* rows of other pages and tokens are skipped; -1: none are */
    int64_t token;
    uint64_t slots; /* i64 [rows], or 0: the batch */
    struct gpu_batch batch;
};

struct gpu_kv_slots {
    uint64_t slots; /* written: i64 [rows] */
    uint32_t block;
    uint32_t reserved;
    struct gpu_batch batch;
};

/* Gathers rows of a cache into tensors. Scales of `to` are tensors of one element, base 0 = not wanted. */
struct gpu_kv_gather {
    struct gpu_kv_rows by_row[2];
    struct gpu_kv_side from[2];
    struct gpu_tensor to[2]; /* base 0 = not wanted */
    struct gpu_tensor scales[2];
    uint32_t to_dtype[2];
    uint32_t wide[2];
    uint32_t moved[2]; /* 1: elements are copied, not converted */
    uint32_t heads;
    uint32_t tokens;
    uint32_t each;   /* rows of a warp at once */
    uint32_t shares; /* warps that share them */
    uint64_t offsets;
    uint64_t starts; /* or 0 */
    struct gpu_batch batch;
};

struct gpu_kv_convert {
    struct gpu_kv_rows by_row[2];
    struct gpu_kv_side from[2];
    struct gpu_kv_side to[2];
    uint32_t wide[2];
    uint32_t moved[2]; /* 1: elements and scales are copied, not converted */
    uint32_t sides;
    uint32_t heads;
    uint32_t block;
    uint32_t count; /* pairs, or pages if there are no pairs */
    uint32_t from_pages;
    uint32_t to_pages;
    uint32_t parts; /* shares of a page; the y extent of the grid has as many for keys and for values */
    uint32_t each;  /* tokens of a warp at once */
    uint64_t pairs; /* or 0: every page to the page of the same number */
};

/*
 * What is copied from place to place of two caches: units (n2, n1, n0), each at the address of its place plus
 * the strides of its side; along n0 units lie together. A place is slot / block at the page's stride plus
 * slot % block at the token's; block 1 for pages.
 */
struct gpu_kv_places {
    uint64_t base;
    int64_t page_stride;
    int64_t token_stride;
    int64_t stride2;
    int64_t stride1;
    uint64_t places; /* of the cache; a pair with a place beyond them is skipped */
    uint32_t block;
    uint32_t reserved;
};

/* Keys, values or scales of a pair of caches. Slices [first, first of the next plane) are its own. */
struct gpu_kv_plane {
    struct gpu_kv_places from, to;
    uint64_t n1, n0;
    uint64_t units; /* n2 * n1 * n0 */
    uint64_t first;
    uint32_t unit;         /* bytes: 1, 2, 4, 8 or 16 */
    uint32_t same_address; /* 1: a place has the same address on both sides */
};

/* Smallest slice, in units, and largest number of pairs that are moved at once; larger slices move fewer.
 */
#define GPU_KV_SLICE 8u
#define GPU_KV_CHUNK 256u

#define GPU_KV_PLANES 12u
/* Pairs that the argument of a launch holds. */
#define GPU_KV_PAIRS 96u

struct gpu_kv_move {
    struct gpu_kv_plane planes[GPU_KV_PLANES];
    uint64_t slices;
    uint32_t slice_shift; /* log2 of the units of a slice */
    uint32_t plane_count;
    uint32_t count; /* pairs */
    uint32_t reserved;
    uint64_t pairs; /* device memory, or 0: `here` */
    int64_t here[2 * GPU_KV_PAIRS];
};

/* One step of decoding; members as in struct attn_kv_advance_step_args. */
struct gpu_step {
    uint32_t block;
    uint32_t seqs;
    uint32_t queries;
    uint32_t num_tokens;
    uint32_t keep_padding;
    uint32_t index_size;
    uint32_t table_width;
    uint32_t windowed;
    int64_t table_stride;
    uint64_t csr_capacity;
    uint64_t table;
    uint64_t query_starts;
    uint64_t accepted;
    uint64_t sampled;
    uint64_t tokens;
    uint64_t positions;
    uint64_t slots;
    uint64_t seq_lens;
    uint64_t context_lens;
    uint64_t seq_starts;
    uint64_t csr_indptr;
    uint64_t csr_indices;
    uint64_t last_page_lens;
    uint64_t csr_pages;
    int64_t window;
};

/* Partial results of a merge. More than GPU_MERGE_PARTS must lie at equal distances. */
#define GPU_MERGE_PARTS 68u

struct gpu_merge_part {
    struct gpu_tensor out;
    struct gpu_tensor lse;
};

struct gpu_merge {
    struct gpu_merge_part parts[GPU_MERGE_PARTS]; /* rescale: `lse` of the ranks alone */
    int64_t out_step;                             /* from part to part, if `stepped` */
    int64_t lse_step;
    struct gpu_tensor out;
    struct gpu_tensor lse; /* base 0 = not wanted; rescale: the rank's own */
    uint32_t stepped;
    uint32_t count;
    uint32_t dtype;
    uint32_t part_dtype;
    uint32_t base2; /* 1: logarithms of the parts are of base 2 */
    uint32_t rows;
    uint64_t rows_at; /* i32: how many of them there are, or 0: all */
    uint32_t heads;
    uint32_t head_dim;
    uint32_t wide;
    uint32_t reserved;
};

/* The argument block of a launch. */
static_assert(sizeof(struct gpu_kv_write) < 4000, "too large for a launch");
static_assert(sizeof(struct gpu_kv_gather) < 4000, "too large for a launch");
static_assert(sizeof(struct gpu_kv_convert) < 4000, "too large for a launch");
static_assert(sizeof(struct gpu_kv_move) < 4000, "too large for a launch");
static_assert(sizeof(struct gpu_merge) < 4000, "too large for a launch");

#endif
