/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Advances arrays in host memory by one decode step, in place. attn_metadata_advance_step uses it for host
 * copies, and advance_step of a plugin's table where kernels read host memory.
 */
#ifndef ATTN_SERVING_ADVANCE_H
#define ATTN_SERVING_ADVANCE_H

#include "attn/types.h"
#include "visible.h"

/* Sequence i has query tokens [query_starts[i], query_starts[i + 1]). All arrays but seq_lens may be NULL. */
struct attn_advance {
    uint32_t seqs;       /* padding included */
    uint32_t queries;    /* sequences that advance, the first ones */
    uint32_t num_tokens; /* of tokens, positions and slots, padding included */
    uint32_t block;
    uint32_t keep_padding; /* 0: padding is written as token 0, position 0, slot -1 */
    uint32_t table_width;
    uint32_t index_size;         /* bytes of an element of table and csr_indices: 4 or 8 */
    int64_t table_stride;        /* bytes */
    const void *table;           /* [seqs, table_width]; needed for slots and csr */
    const int32_t *query_starts; /* [queries + 1]; NULL: one token each */
    const int32_t *accepted;     /* [queries] by how many tokens each sequence grows; NULL: by 1 */
    const int64_t *sampled;      /* [query_starts[queries]], may be `tokens`; NULL: tokens are not written */
    int64_t *tokens;
    int64_t *positions;
    int64_t *slots;
    int32_t *seq_lens;     /* [seqs] */
    int32_t *context_lens; /* [queries] */
    int32_t *seq_starts;   /* [seqs + 1] */
    uint64_t csr_capacity; /* of csr_indices */
    int32_t *csr_indptr;   /* [seqs + 1]; needs the three arrays below */
    void *csr_indices;
    int32_t *csr_last_page_lens; /* [seqs] */
    int32_t *csr_pages;          /* [seqs] pages in use */
    uint32_t windowed;           /* sequences, the first ones, of which the last `window` tokens have slots */
    uint32_t window;
    struct attn_cp_shard shard; /* of the keys; rows of `table` and slots are this rank's */
    int32_t *rank_lens;         /* [seqs] keys of this rank, with ranks */
};

/* The arrays of a plugin's call, where its buffers are addresses of the host. */
struct attn_advance attn__advance_arrays(const struct attn_kv_advance_step_args *args);
/* Checks everything and writes nothing. Messages name the arguments of the public calls. */
int32_t attn__advance_check(const struct attn_advance *advance, struct attn_error *err);
/* Writes the arrays, which have been checked. */
void attn__advance_write(const struct attn_advance *advance);

#endif
