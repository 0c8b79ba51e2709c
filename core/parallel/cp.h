/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One rank of context parallelism, and what decoding and prefill share. */
#ifndef ATTN_CP_H
#define ATTN_CP_H

#include "attn/parallel.h"
#include "dispatch/plan.h"

/* Of every vector and of every run of LSEs, as kernels load them best. */
#define ATTN__CP_ALIGNMENT 16u

struct attn__cp_call;
struct attn__prefill;

struct attn_cp {
    struct attn_backend *backend; /* held */
    struct attn_problem problem;  /* resolved */
    struct attn_collectives net;
    bool split;
    uint32_t heads; /* of this rank */
    struct attn_buffer memory;
    struct attn_buffer zero;        /* the LSE of vectors that a merge only moves */
    struct attn_buffer queries;     /* own ones, where the caller's lie otherwise; then those of all ranks */
    struct attn_buffer own_parts;   /* what the plan writes: all heads */
    struct attn_buffer parts;       /* of all ranks: own heads, or all */
    struct attn_merge_part *merged; /* [ranks] */
    void *event;
    struct attn__cp_call *calls;   /* of captured graphs */
    struct attn_error ended;       /* why calls in a graph do nothing any more; status 0 = they do */
    struct attn__prefill *prefill; /* of ATTN_CP_TOKENS, which uses no buffer above but zero */
};

static inline uint64_t attn__cp_round(uint64_t bytes)
{
    return (bytes + ATTN__CP_ALIGNMENT - 1) / ATTN__CP_ALIGNMENT * ATTN__CP_ALIGNMENT;
}

static inline uint64_t attn__cp_vector(uint32_t dtype, uint32_t dim)
{
    return attn__cp_round((uint64_t)dim * attn__element_size(dtype));
}

static inline struct attn_buffer attn__cp_at(const struct attn_buffer *buffer, uint64_t offset)
{
    return (struct attn_buffer){buffer->data, buffer->byte_offset + offset};
}

/* Copies vectors of queries: a merge of one part. */
int32_t attn__cp_move(const struct attn_cp *cp, const struct attn_tensor *from, const struct attn_tensor *to,
                      uint64_t tokens, uint32_t heads, uint32_t dim, void *stream, struct attn_error *err);
/* Merges the first `count` of cp->merged. */
int32_t attn__cp_merge(const struct attn_cp *cp, uint32_t count, const struct attn_tensor *out,
                       const struct attn_tensor *lse, uint64_t tokens, void *stream, struct attn_error *err);
/* The caller's q, out and, if given, lse. `rope`: columns of q that are in q_rope. */
int32_t attn__cp_check_tensors(const struct attn_cp *cp, const struct attn_tensors *tensors, uint64_t tokens,
                               uint32_t rope, struct attn_error *err);
/*
 * Ends a run: after a failure that others wait for, for the rank has `sent`, the connection. Returns
 * `status`.
 */
int32_t attn__cp_end(const struct attn_cp *cp, int32_t status, bool sent, const struct attn_error *own,
                     struct attn_error *err);

/* Buffers of cp->problem.max_rows query tokens, and what captures made. */
int32_t attn__decode_create(struct attn_cp *cp, struct attn_error *err);
void attn__decode_destroy(struct attn_cp *cp);
int32_t attn__prefill_create(struct attn_cp *cp, const struct attn_cp_params *params, struct attn_error *err);
void attn__prefill_destroy(struct attn_cp *cp);

#endif
