/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Context parallelism: attention over keys that several ranks hold. Each rank computes partial attention over
 * its own keys, partial results are exchanged, and each rank merges what it needs by LSE (docs/definition.md,
 * sections 3 and 4). What is sent, and what it can give: docs/parallel.md.
 *
 *   once         the program starts its ranks, connects them, and fills struct attn_collectives: with its own
 *                functions, or from a transport, as attn_local_ranks_get below
 *   once         attn_cp_create, on each rank
 *   each layer   attn_cp_run in place of attn_plan_run, by all ranks in the same order
 *
 * or, on the serving layer (attn/layer.h): a builder with cp_rank and cp_world, a state with collectives, and
 * attn_layer_forward as ever, by all ranks in the same order.
 *
 * libattn starts no processes and looks for no peers. Ranks see the same sequences and the same query tokens
 * in a step. Slots of new keys: attn_slot_mapping with cp_rank; keys that a rank holds: attn_cp_count.
 *
 * Experimental: may change in any release. Programs define ATTN_EXPERIMENTAL before they include it. Errors,
 * ownership and handles are as in attn.h.
 */
#ifndef ATTN_PARALLEL_H
#define ATTN_PARALLEL_H

#include "attn/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef ATTN_EXPERIMENTAL

/* ---------------------------------------------------------------- collectives */

/*
 * What connects ranks. All ranks make the same calls in the same order; blocks have `bytes` bytes and
 * lie one behind the other, that of rank 0 first. Nothing is computed on the way, so that
 * results do not depend on the transport. Functions return a status, and fill `err`; after a failure, every
 * later call fails. A struct is copied by attn_cp_create; what `arg` points to must outlive that object.
 */
struct attn_collectives {
    uint32_t struct_size;
    uint32_t rank;
    uint32_t size;       /* ranks, 1 at least */
    uint32_t device;     /* 1: memory is the backend's, and a call is work of `stream`, which graphs capture;
                            0: memory is the host's, and a call has completed when it returns */
    uint64_t timeout_ns; /* longest wait for other ranks, 1 at least */
    void *arg;           /* passed to the functions */
    /* receive[i] on every rank becomes send of rank i: `bytes` are sent, size * bytes received. */
    int32_t (*all_gather)(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                          uint64_t bytes, void *stream, struct attn_error *err);
    /* receive[i] becomes send[own rank] of rank i: size * bytes are sent, and as many received. */
    int32_t (*all_to_all)(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                          uint64_t bytes, void *stream, struct attn_error *err);
    /* receive on every rank becomes send of the rank before it, on rank 0 that of the last: `bytes` each.
     * Wanted by ATTN_CP_PASS_KEYS and ATTN_CP_PASS_CHEAPER; else NULL is accepted. */
    int32_t (*shift)(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                     uint64_t bytes, void *stream, struct attn_error *err);
    /* The failure of a call that was put on a stream; never waits. NULL if calls have completed at once. */
    int32_t (*check)(void *arg, struct attn_error *err);
    /* Ends the connection: calls under way fail, on all ranks where the transport can. Any thread; `why` is a
     * sentence for the others. */
    void (*abort)(void *arg, const char *why);
};

/* ---------------------------------------------------------------- ranks as threads */

/* Ranks that are threads of one process, in host memory. For tests, and for hosts with several CPUs. */
struct attn_local_ranks;

/*
 * Makes the connection of `size` ranks, 1 to 1,024; a call waits at most `timeout_ns`, 1 at least, for the
 * others. Ranks that call different functions, or with different sizes, all get ATTN_E_PEER.
 */
ATTN_API int32_t attn_local_ranks_create(uint32_t size, uint64_t timeout_ns, struct attn_local_ranks **out,
                                         struct attn_error *err);
/* After all calls have returned. */
ATTN_API void attn_local_ranks_destroy(struct attn_local_ranks *ranks);
/* Fills the collectives of one rank, which one thread at a time uses. ATTN_E_INVALID names what is wrong. */
ATTN_API int32_t attn_local_ranks_get(struct attn_local_ranks *ranks, uint32_t rank,
                                      struct attn_collectives *out, struct attn_error *err);

/* ---------------------------------------------------------------- sharded keys */

/*
 * Of `keys` keys of a sequence, those that rank `rank` of `size` holds, `interleave` at a time in turn
 * (docs/definition.md, section 4); -1 if a number is out of range.
 */
ATTN_API int64_t attn_cp_count(uint32_t rank, uint32_t size, uint32_t interleave, int64_t keys);

/* ---------------------------------------------------------------- a rank */

/* Which of a step's queries a rank brings, and whose results it gets. */
enum attn_cp_queries {
    ATTN_CP_HEADS_SPLIT = 1, /* heads / size of the heads, those of rank 0 first: all ranks gather the
                                queries, and each gets the parts of its own heads (all-to-all) */
    ATTN_CP_HEADS_ALL = 2,   /* all, the same on every rank, as is the result (all-gather) */
    ATTN_CP_TOKENS = 3       /* all heads of the tokens whose keys it holds: attn_cp_prefill_run */
};

/* How queries of ATTN_CP_TOKENS meet the keys of other ranks. */
enum attn_cp_pass {
    ATTN_CP_PASS_CHEAPER = 0, /* each step what moves less: struct attn_cp_prefill_info */
    ATTN_CP_PASS_KEYS = 1,    /* keys go round a ring, so that every rank sees those of one after the other */
    ATTN_CP_PASS_QUERIES = 2, /* all ranks gather the queries, and parts come back (all-to-all) */
    ATTN_CP_PASS_HEADS = 3 /* each rank gets queries and keys of its share of the heads, and results go back
                              (all-to-all); size divides kv_heads */
};

/* What a rank is made for. */
struct attn_cp_params {
    uint32_t struct_size;
    uint32_t queries;                           /* enum attn_cp_queries */
    const struct attn_problem *problem;         /* all heads, cp=1, lse=1, out f32, f16 or bf16 */
    const struct attn_collectives *collectives; /* copied */
    /* ATTN_CP_TOKENS alone, whose problem has positions=1, addr=table and the maxima of whole steps: */
    uint32_t interleave; /* of the keys */
    uint32_t pass;       /* enum attn_cp_pass */
    uint64_t max_keys;   /* of all sequences of a step together, on all ranks; 0: max_seqs * max_kv */
};

/* What one rank exchanges queries, keys and partial results with: buffers for problem.max_rows query tokens.
 */
struct attn_cp;

/*
 * ATTN_E_INVALID names a parameter, ATTN_E_UNSUPPORTED what cannot be spread; nothing is sent. `backend` is
 * that of the plans.
 */
ATTN_API int32_t attn_cp_create(struct attn_backend *backend, const struct attn_cp_params *params,
                                struct attn_cp **out, struct attn_error *err);
/* After the work that was put on streams is done, and after graphs that captured it. */
ATTN_API void attn_cp_destroy(struct attn_cp *cp);

/* ---------------------------------------------------------------- decoding, and queries on all ranks */

/* One run of one layer; members are those of attn_plan_run. */
struct attn_cp_run_args {
    uint32_t struct_size;
    uint32_t reserved;
    const struct attn_plan *plan;   /* of the problem that `cp` was made for; maxima may differ */
    const struct attn_batch *batch; /* with cp_rank, cp_world and cp_interleave */
    /*
     * q [num_tokens, own heads, head_dim], out [num_tokens, own heads, head_dim_vo] and, if wanted, lse
     * [num_tokens, own heads] of the merged result. Queries of 8 bits that are split lie head after head:
     * token_stride is the size of a vector, head_stride num_tokens of them. alibi_slopes, sinks, masks and
     * scales are those of all heads.
     */
    const struct attn_tensors *tensors;
    const struct attn_span *schedule;
    const struct attn_scratch *scratch;
    struct attn_graph *graph; /* that is captured on `stream`, or NULL */
};

/*
 * attn_plan_run over the keys of all ranks. Results are bit-equal on all ranks that get them; rows from
 * q_offsets[n] on hold anything. Allocates nothing but in captures. Not on a team of threads.
 *
 * What is wrong with the members and with q and out is found before anything is sent: then the others wait
 * until this rank calls again, or their limit has passed. After any other failure the connection is ended on
 * all ranks. ATTN_E_PEER: another rank failed, or did not come within the limit. Caches are as they were; out
 * and lse hold anything.
 */
ATTN_API int32_t attn_cp_run(struct attn_cp *cp, const struct attn_cp_run_args *args, void *stream,
                             struct attn_error *err);

/*
 * Waits for the work of `stream`, at most the limit of the collectives, and answers how it ended: on GPUs and
 * after the launch of a graph failures of collectives are known here first. ATTN_E_PEER as above.
 */
ATTN_API int32_t attn_cp_wait(struct attn_cp *cp, void *stream, struct attn_error *err);

struct attn_state; /* attn/layer.h */

/*
 * The same for the layers of a state with collectives. ATTN_E_INVALID: a state without; ATTN_E_UNSUPPORTED: a
 * plugin whose state has none.
 */
ATTN_API int32_t attn_state_wait(struct attn_state *state, void *stream, struct attn_error *err);

/* ---------------------------------------------------------------- prompts, with queries spread as keys */

/*
 * Query tokens of a sequence that rank `rank` of `size` has under ATTN_CP_TOKENS: of `kv_len` keys, of which
 * ranks have `interleave` at a time in turn, the last `q_len` are of this step, and those of them that the
 * rank holds are its queries. Fills `positions`, which may be NULL, with the first `capacity` of their
 * positions, and returns how many there are; -1 if a number is out of range.
 */
ATTN_API int64_t attn_cp_tokens(uint32_t rank, uint32_t size, uint32_t interleave, int32_t q_len,
                                int32_t kv_len, int32_t *positions, int64_t capacity);

/* One step; arrays are the host's, and may change after the call. All ranks have the same but for `table`. */
struct attn_cp_step {
    uint32_t struct_size;
    uint32_t seqs;
    const int32_t *q_lens;  /* [seqs] query tokens on all ranks */
    const int32_t *kv_lens; /* [seqs] keys on all ranks, those of this step included */
    const int32_t *table;   /* [seqs, table_width] pages of this rank's cache, none of them invalid */
    uint32_t table_width;   /* pages of the keys that this rank holds, at least */
    uint32_t reserved;
};

/* What attn_cp_prefill_begin decided. Bytes are what a rank receives in each layer. */
struct attn_cp_prefill_info {
    uint32_t struct_size;
    uint32_t pass;          /* enum attn_cp_pass, not ATTN_CP_PASS_CHEAPER */
    uint64_t tokens;        /* rows of q and out on this rank: sequence after sequence, as attn_cp_tokens */
    uint64_t keys_bytes;    /* of ATTN_CP_PASS_KEYS, in size - 1 calls; 0 too if layout or types exclude it */
    uint64_t queries_bytes; /* of ATTN_CP_PASS_QUERIES, in 2 calls */
    uint64_t
        heads_bytes; /* of ATTN_CP_PASS_HEADS, in 4 calls and one for each scale of tokens; 0: it cannot be */
    uint64_t call_bytes; /* a call counts as so many bytes */
};

/*
 * What `size` ranks would move for a step in each layer, of which neither table nor maxima of the problem are
 * looked at, and what ATTN_CP_PASS_CHEAPER would take. Ranks have `interleave` tokens at a time in turn, as
 * in struct attn_cp_params. `tokens` are those of rank 0. Sends nothing, and wants no backend.
 */
ATTN_API int32_t attn_cp_estimate(const struct attn_problem *problem, uint32_t size, uint32_t interleave,
                                  const struct attn_cp_step *step, struct attn_cp_prefill_info *out,
                                  struct attn_error *err);

/*
 * Begins a step of ATTN_CP_TOKENS: plans it for all layers, with copies in order of `stream`. It may wait for
 * those of the step before. ATTN_E_INVALID and ATTN_E_SIZE name a member or what the rank was not made for;
 * nothing is sent.
 */
ATTN_API int32_t attn_cp_prefill_begin(struct attn_cp *cp, const struct attn_cp_step *step, void *stream,
                                       struct attn_error *err);
/* What the step that was begun does. ATTN_E_STATE without one. */
ATTN_API int32_t attn_cp_prefill_get_info(const struct attn_cp *cp, struct attn_cp_prefill_info *out,
                                          struct attn_error *err);
/*
 * One layer of the step: q [tokens, heads, head_dim], out [tokens, heads, head_dim_vo] and, if wanted, lse
 * [tokens, heads] of this rank's query tokens, and the cache, which has the keys of this step. Scales of a
 * cache that are not of tokens are the same on all ranks. Allocates nothing. Not on a team of threads, and
 * not in a capture. Failures are those of attn_cp_run.
 */
ATTN_API int32_t attn_cp_prefill_run(struct attn_cp *cp, const struct attn_tensors *tensors, void *stream,
                                     struct attn_error *err);

#endif

#ifdef __cplusplus
}
#endif
#endif
