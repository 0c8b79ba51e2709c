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

/* ---------------------------------------------------------------- decoding */

/* Which query heads a rank brings and gets. */
enum attn_cp_heads {
    ATTN_CP_HEADS_SPLIT = 1, /* heads / size of them, those of rank 0 first: all ranks gather the queries, and
                                each gets the parts of its own heads (all-to-all) */
    ATTN_CP_HEADS_ALL = 2    /* all of them, the same on every rank, as is the result (all-gather) */
};

/* What a rank is made for. */
struct attn_cp_params {
    uint32_t struct_size;
    uint32_t heads;                     /* enum attn_cp_heads */
    const struct attn_problem *problem; /* of the plans: all heads, cp=1, lse=1, out f32, f16 or bf16 */
    const struct attn_collectives *collectives; /* copied */
};

/* What one rank exchanges partial results with: buffers for problem.max_rows query tokens. */
struct attn_cp;

/*
 * ATTN_E_INVALID names a parameter, ATTN_E_UNSUPPORTED what cannot be spread; nothing is sent. `backend` is
 * that of the plans.
 */
ATTN_API int32_t attn_cp_create(struct attn_backend *backend, const struct attn_cp_params *params,
                                struct attn_cp **out, struct attn_error *err);
/* After the work that was put on streams is done, and after graphs that captured it. */
ATTN_API void attn_cp_destroy(struct attn_cp *cp);

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

#endif

#ifdef __cplusplus
}
#endif
#endif
