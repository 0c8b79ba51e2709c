/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The one argument of every attention kernel on a GPU: a run resolved to device addresses, a struct that is
 * passed by value.
 *
 * Addresses are device addresses as integers, 0 = not there; strides are bytes. The host fills it once per
 * run (device side: read only). Members follow docs/definition.md and the public structs of the same names.
 */
#ifndef ATTN_GPU_RUN_H
#define ATTN_GPU_RUN_H

#ifndef __cplusplus
#include <stdalign.h>
#endif

#include "attn/types.h"
#include "caps.h"
#include "divisor.h"

/* Scales, f32. base 0: every value is `value` (1 for types without scales and for unit scales). */
struct gpu_scale {
    uint64_t base;        /* value of (outer, token, head) at base + the strides times these */
    int64_t outer_stride; /* sequence, or page of a cache */
    int64_t token_stride; /* row of a tensor, or token of a page */
    int64_t head_stride;  /* q with one value per kv head: per kv head */
    float value;          /* the host's, or 1 */
    uint32_t host;        /* 1: base is host memory, which the host replaces before the launch */
};

/* A tensor [row, head, dim], innermost dimension contiguous. */
struct gpu_tensor {
    uint64_t base;
    int64_t token_stride;
    int64_t head_stride;
};

/*
 * Keys or values: of a cache, or new rows as a cache of one page. Element d of vector (page, token, head) is
 * at base + page * page_stride + token * token_stride + head * head_stride + its column: byte b = d * size
 * of the vector lies at b / x_bytes * x_stride + b % x_bytes (backends/common/kv-view.h).
 */
struct gpu_cache {
    uint64_t base;
    int64_t page_stride;
    int64_t token_stride;
    int64_t head_stride;
    int64_t x_stride; /* 0: vectors are contiguous */
    uint32_t x_bytes; /* of x elements; of a whole vector unless the layout is paged-x */
    uint32_t size;    /* bytes of an element */
    uint32_t dim;     /* elements of a vector; MLA values: the first head_dim_vo columns of the keys */
    uint32_t dtype;   /* enum attn_dtype */
    struct gpu_scale scale;
};

/*
 * Keys or values of a cache as a tensor [page, head, token, column], of which a chip with a copy engine for
 * tensors (TMA) copies boxes of 64 columns and some tokens of a page. Queries are a tensor [KV head, token,
 * head of its group, column]; a box has the rows of a work tile. The driver makes it.
 */
struct gpu_tensor_map {
    alignas(64) uint64_t words[16];
};

/* Where the queries and keys of the step are. */
struct gpu_batch {
    uint32_t seqs;
    uint32_t num_tokens;     /* upper bound; query tokens from q_offsets[seqs] on are not touched */
    uint32_t max_q;          /* upper bounds of the step */
    uint32_t max_kv;         /*                          */
    uint64_t q_offsets;      /* i32 [seqs + 1] */
    uint64_t kv_lens;        /* i32 [seqs], or 0: differences of kv_starts if given, else of q_offsets */
    uint64_t kv_starts;      /* i32 [seqs + 1], first token of a sequence in page 0; 0 = it begins at page i.
                                Dense: kv_offsets. kv_source new: kv_offsets, or else q_offsets */
    uint64_t table;          /* i32 */
    int64_t table_stride;    /* bytes between rows */
    uint32_t table_width;    /* entries of a row */
    uint32_t addressing;     /* enum attn_addressing; kv_source new: dense */
    uint64_t indptr;         /* csr: i32 [seqs + 1] */
    uint64_t indices;        /* csr: i32 or i64 */
    uint32_t index_dtype;    /* ATTN_INT32 or ATTN_INT64 */
    uint32_t block;          /* tokens per page */
    uint32_t block_shift;    /* log2 of block, or 32 if it is no power of two */
    uint32_t position_dtype; /* ATTN_INT32 or ATTN_INT64 */
    uint64_t positions;      /* q_positions [num_tokens], or 0 */
    uint64_t seq_causal;     /* u8 [seqs], or 0: the problem's causal for all */
    uint64_t global_lens;    /* i32 [seqs]: Lk of sequences whose keys are sharded over ranks, or 0 */
    uint32_t cp_rank;        /* cp_world 0 = all keys are here */
    uint32_t cp_world;
    uint32_t cp_interleave;
    uint32_t reserved;
};

/* An explicit mask. */
struct gpu_mask {
    uint64_t base;   /* 0 = none */
    uint64_t starts; /* i64 [seqs] byte starts, negative = this sequence has none; 0 = by seq_stride */
    int64_t seq_stride;
    int64_t head_stride;
    int64_t row_stride;
    uint32_t dtype;  /* ATTN_F16, ATTN_BF16 or ATTN_F32; 0 = bits */
    uint32_t packed; /* bits: row i begins at bit i * columns of its sequence */
};

/* Keys [lo, hi) of a sequence. */
struct gpu_key_range {
    uint32_t lo, hi;
};

/* What the masks of a step are, and for which of these a part of a plan is. */
enum gpu_masks {
    GPU_MASKS_ANY,    /* not looked at */
    GPU_MASKS_RANGES, /* each shows a query token one range of keys, and adds nothing to their scores */
    GPU_MASKS_OTHER
};

/*
 * Where masks may be ranges: what gpu_mask_ranges (mask-ranges.h) finds for a step. Two launches follow it,
 * one without the mask, one with it, of which the result lets one run.
 */
struct gpu_mask_ranges {
    uint64_t ranges; /* struct gpu_key_range [num_tokens] for sequences of prefill; 0: they are not used */
    uint64_t result; /* u32, enum gpu_masks; 0: nothing is looked at, and all launches run */
    uint64_t counts; /* u32 [2], zero before and after: CTAs that have ended; whether a mask is no range */
    uint32_t wanted; /* the result for which the launch is */
    uint32_t reserved;
};

#define GPU_MASK_THREADS 256u

struct gpu_run {
    struct attn_problem problem; /* resolved, with its maxima: every key */
    struct gpu_batch batch;

    float softmax_scale;
    uint32_t group; /* query heads per kv head */
    struct gpu_divisor by_group;
    struct gpu_tensor q;
    struct gpu_tensor q_rope; /* base 0: columns from head_dim_vo on are in q too */
    struct gpu_tensor out;
    struct gpu_tensor lse; /* f32; base 0 = not wanted */
    struct gpu_scale q_scale;
    struct gpu_scale out_scale;
    uint32_t q_scale_group; /* query heads per value of q_scale: group with one value per kv head, else 1 */
    uint32_t sinks_dtype;   /* ATTN_F32 or ATTN_BF16 */
    uint64_t slopes;        /* f32 [heads], or 0 */
    uint64_t sinks;         /* [heads], or 0; 0 too on ranks other than the first */

    struct gpu_cache k, v;         /* kv_source new: the new rows. mla: v is k, with head_dim_vo columns */
    struct gpu_cache k_new, v_new; /* kv_source cache+new: the last q_len keys of a sequence; else base 0 */
    struct gpu_mask mask;
    struct gpu_mask_ranges masks;

    uint64_t schedule; /* what prepare wrote, or 0 where the kernel takes none */
    uint64_t schedule_bytes;
    uint64_t scratch;
    uint64_t scratch_bytes;
    uint64_t counters; /* zero before and after a run */
    uint64_t counters_bytes;
    uint64_t partial_out; /* split workspace in scratch: partial O of each split, f32, not normalised */
    uint64_t partial_lse; /* for each row of it the row max, in base 2, and the row sum, f32 */

    uint32_t rows;       /* of an MLA row tile whose splits are combined */
    uint32_t units;      /* multiprocessors of the device */
    uint32_t phase;      /* which sequences the launch takes: GPU_ALL_PHASES, or enum attn__phase */
    uint32_t stages;     /* tiles in shared memory, where the family has a choice */
    uint32_t kv_aligned; /* 1: keys and values are contiguous, aligned to 16 bytes, and whole 16 bytes */
    uint32_t p_parts;    /* numbers that P is the sum of in a product of matrices: 1, or 2 for more digits */
    uint32_t box_tokens; /* of a box of these, 8 to 64; 0: there are no maps */
    uint32_t query_buffers;  /* of a CTA that takes work tile after work tile: 1 or 2 */
    uint32_t query_box;      /* 1: there is q_map, of the queries of a KV head as rows of a work tile. MLA: or
                                of heads of a token */
    uint32_t combines_apart; /* 1: splits of decode are combined by a kernel of their own */
    struct gpu_tensor_map k_map, v_map, q_map;
    uint64_t marks; /* struct gpu_marks of the pages of a workspace in e4m3 (convert.h) */
    uint64_t aside; /* e4m3: what each CTA sets aside of results, where shared memory is too small */
};

/* The phase of a launch that takes all sequences; others take those of one enum attn__phase. */
enum { GPU_ALL_PHASES = 0 };

/* Sequences with at most so many query rows (tokens times heads of a group) go to the decode kernel. */
#define GPU_DECODE_MAX_ROWS 64u

/* Whether a launch without a schedule takes a sequence, by its query tokens and the group. */
#define GPU_TAKES(phase, q_len, group)                                                                       \
    ((phase) == GPU_ALL_PHASES ||                                                                            \
     ((uint64_t)(q_len) * (group) <= GPU_DECODE_MAX_ROWS) == ((phase) == ATTN__DECODE))

#ifdef __cplusplus
static_assert(sizeof(struct gpu_run) < 4000, "the argument block of a launch");
#else
_Static_assert(sizeof(struct gpu_run) < 4000, "the argument block of a launch");
#endif

#endif
