/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Looks at the first pages of the sequences of a step. */
#include "cascade.h"

/* Keys that a step has to read less often: what two more launches and a merge of results cost on an H100 in
 * the time of keys of 8 heads, 128 columns and 16 bits. */
enum { WORTH_KEYS = 3 << 16 };

/* The first entries of a sequence in the host copies, and the bytes of `pages` of them. */
static const void *entries_of(const struct attn_problem *problem, const struct attn_batch *batch,
                              const struct attn_batch_host *host, uint32_t i, uint64_t pages,
                              size_t *out_bytes)
{
    const size_t size = problem->addressing == ATTN_CSR && problem->index_dtype == ATTN_INT64 ? 8 : 4;

    *out_bytes = (size_t)pages * size;
    if (problem->addressing == ATTN_CSR)
        return (const char *)host->csr_indices + (size_t)host->csr_indptr[i] * size;
    return (const char *)host->table + (int64_t)i * batch->table_stride;
}

uint32_t attn__batch_has_cascade(const struct attn_problem *problem, const struct attn_batch *batch,
                                 const struct attn_batch_host *host)
{
    const uint32_t seqs = batch->seqs;
    size_t bytes;

    if (problem->cascade == 0 || batch->num_tokens > problem->cascade || seqs < 2 ||
        (batch->table.data == NULL && batch->csr_indices.data == NULL))
        return 0;
    if (host == NULL || host->kv_lens == NULL)
        return 1;
    const uint64_t keys = (WORTH_KEYS + seqs - 2) / (seqs - 1),
                   pages = (keys + problem->block - 1) / problem->block;
    for (uint32_t i = 0; i < seqs; i++) {
        if ((uint64_t)host->kv_lens[i] < pages * problem->block + batch->max_q)
            return 0;
        const void *own = entries_of(problem, batch, host, i, pages, &bytes);
        if (memcmp(own, entries_of(problem, batch, host, 0, pages, &bytes), bytes) != 0)
            return 0;
    }
    return 1;
}
