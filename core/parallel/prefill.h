/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Prefill whose query tokens are spread over ranks: what its step and its runs share. */
#ifndef ATTN_PREFILL_H
#define ATTN_PREFILL_H

#include "parallel/cp.h"

/* A step at hand. */
struct attn__prefill_step {
    bool begun;
    uint32_t count;           /* batches: one for the keys of each rank, or one for the queries of all */
    uint64_t tokens;          /* query tokens of this rank */
    uint64_t block;           /* of the rank that has most: what queries and parts are exchanged in */
    uint64_t slab;            /* keys that are exchanged, whole pages of each sequence */
    uint32_t plan;            /* of the two */
    struct attn_batch packed; /* whole pages of this rank's keys, which go into a slab ... */
    struct attn_batch_host packed_host;
    struct attn_buffer offsets; /* ... i32 [seqs + 1] there */
    struct attn_cp_prefill_info info;
};

/* What runs: of all heads over keys of one rank, or of this rank's heads over all keys. */
struct attn__prefill_plan {
    struct attn_problem problem;
    struct attn_plan *plan; /* NULL: it is not wanted */
    struct attn_plan_sizes sizes;
    struct attn_span *schedules; /* [ranks] */
    struct attn_scratch scratch;
};

struct attn__prefill {
    struct attn_problem problem; /* of the first plan */
    struct attn__prefill_plan plans[2];
    uint32_t interleave, pass;
    uint32_t max_seqs, max_q, max_kv; /* of steps, on all ranks */
    uint64_t max_rows, max_keys;
    uint64_t block, slab; /* largest of steps */
    uint32_t width;       /* pages of the longest sequence on a rank */
    struct attn_buffer memory;
    struct attn_buffer arrays; /* of batches, as in `host` */
    int32_t *host;
    void *pinned;               /* of host and staging; NULL: `host` is to be freed */
    struct attn_buffer staging; /* of each batch, so many bytes apart */
    uint64_t staging_step;
    uint64_t capacity, used;             /* of arrays, in elements */
    struct attn_buffer queries;          /* own ones, [block]; then what arrives */
    struct attn_buffer own_parts, parts; /* [ranks * block] each; the first is not for ATTN_CP_PASS_KEYS */
    struct attn_buffer slabs[2];
    struct attn_batch *batches; /* [ranks] */
    struct attn_batch_host *hosts;
    void *copied; /* event: arrays and schedules of the step are on the device */
    struct attn__prefill_step step;
};

/* Bytes of a query token's vectors, and of its partial results: those of all heads, then their LSEs. */
static inline uint64_t attn__prefill_query_bytes(const struct attn_problem *p)
{
    return p->heads * attn__cp_vector(p->q_dtype, p->head_dim);
}

static inline uint64_t attn__prefill_part_bytes(const struct attn_problem *p)
{
    return p->heads * attn__cp_vector(p->out_dtype, p->head_dim_vo) +
           attn__cp_round(p->heads * sizeof(float));
}

/* How keys are sharded. */
struct attn__sharding {
    const struct attn_problem *problem;
    uint32_t size, interleave;
};

static inline struct attn__sharding attn__sharding_of(const struct attn_cp *cp)
{
    return (struct attn__sharding){&cp->prefill->problem, cp->net.size, cp->prefill->interleave};
}

/* Keys of a sequence that a rank has, and pages of them. */
static inline int32_t attn__keys_of(const struct attn__sharding *by, const struct attn_cp_step *step,
                                    uint32_t rank, uint32_t seq)
{
    return (int32_t)attn_cp_count(rank, by->size, by->interleave, step->kv_lens[seq]);
}

static inline uint32_t attn__pages_of(const struct attn__sharding *by, const struct attn_cp_step *step,
                                      uint32_t rank, uint32_t seq)
{
    return ((uint32_t)attn__keys_of(by, step, rank, seq) + by->problem->block - 1) / by->problem->block;
}

/* Refuses a NULL handle, a rank without prefill, and if `begun` one without a step. */
int32_t attn__prefill_take(const struct attn_cp *cp, const char *what, bool begun, struct attn_error *err);

/* Where members of a slab of `keys` keys begin, and its size. */
struct attn__slab {
    uint64_t v, k_scales, v_scales, bytes;
};
struct attn__slab attn__slab_of(const struct attn_problem *p, uint64_t keys);

/* Whether keys can be passed: a slab is strided, and blocks of types that have them are only read. */
static inline bool attn__keys_can_be(const struct attn_problem *p)
{
    return p->layout == ATTN_STRIDED && attn_block_bytes(p->k_dtype) == 0 &&
           attn_block_bytes(p->v_dtype) == 0;
}

/* Whether ranks can have a share of the heads each. */
bool attn__heads_can_be(const struct attn_problem *p, uint32_t size);

/* One layer of the step. */
struct attn__prefill_run {
    struct attn_cp *cp;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;          /* of the caller's cache */
    const struct attn_kv_desc *bare; /* NULL: it was given as a handle */
    void *stream;
    bool sent; /* others wait for this rank, or will */
};

static inline struct attn_tensor attn__rows_of(const struct attn_buffer *buffer, int64_t token, int64_t head)
{
    return (struct attn_tensor){.buffer = *buffer, .token_stride = token, .head_stride = head};
}

/* How a slab lies: heads and keys of a page that it has as a cache, and whether its vectors are those of one
 * head after the other, or of one key. */
struct attn__slab_order {
    uint32_t heads, page;
    bool by_head;
};

/* A slab as a cache; scales that are not of tokens are the caller's. */
struct attn_kv_desc attn__slab_desc(const struct attn__prefill_run *run, const struct attn_buffer *memory,
                                    const struct attn__slab_order *order);

/* Makes the batches of the step, and that which packs, in own->arrays. */
void attn__prefill_make_batches(struct attn_cp *cp, const struct attn_cp_step *step);
/* Runs the step's plan on batch `number`. */
int32_t attn__prefill_attend(struct attn__prefill_run *run, uint32_t number,
                             const struct attn_tensors *tensors, struct attn_error *err);
/* This rank's keys of the step's sequences, page after page, to where `to` has its first pages; scales of
 * tokens with them. */
int32_t attn__prefill_pack(struct attn__prefill_run *run, const struct attn_kv_desc *to,
                           struct attn_error *err);
/* ATTN_CP_PASS_HEADS */
int32_t attn__pass_heads(struct attn__prefill_run *run, struct attn_error *err);

#endif
