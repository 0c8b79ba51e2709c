/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * One step of decoding in place, on arrays in host memory: what advance_step of metadata does to host copies,
 * and what the entry of the same name does where the memory of a device is the host's.
 */
#ifndef ATTN_COMMON_ADVANCE_H
#define ATTN_COMMON_ADVANCE_H

#include "attn/types.h"

/* Sequence i has rows [query_starts[i], query_starts[i + 1]). All arrays but seq_lens may be NULL. */
struct attn_advance {
    uint32_t seqs;    /* padding included */
    uint32_t queries; /* sequences that advance, the first ones */
    uint32_t rows;    /* of tokens, positions and slots; those beyond the last query's are padding */
    uint32_t block;
    uint32_t keep_padding; /* leave rows of padding alone, else token 0, position 0, slot -1 */
    uint32_t table_width;
    uint32_t index_size;         /* bytes of an element of table and csr_indices: 4 or 8 */
    int64_t table_stride;        /* bytes */
    const void *table;           /* [seqs, table_width]; needed for slots and csr */
    const int32_t *query_starts; /* [queries + 1]; NULL = one row each */
    const int32_t *accepted;     /* [queries] by how many tokens each grows; NULL = 1 */
    const int64_t *sampled;      /* [query_starts[queries]], may be tokens; NULL: tokens are left alone */
    int64_t *tokens;
    int64_t *positions;
    int64_t *slots;
    int32_t *seq_lens;     /* [seqs] */
    int32_t *context_lens; /* [queries] */
    int32_t *seq_starts;   /* [seqs + 1] */
    uint64_t csr_capacity; /* of csr_indices */
    int32_t *csr_indptr;   /* [seqs + 1]; wants the three others */
    void *csr_indices;
    int32_t *csr_last_page_lens; /* [seqs] */
    int32_t *csr_pages;          /* [seqs] pages in use */
};

/* Checks everything; the text names the argument of the public calls. Writes nothing. */
int32_t attn__advance_check(const struct attn_advance *advance, struct attn_error *err);
/* What was checked. */
void attn__advance_write(const struct attn_advance *advance);

#endif
