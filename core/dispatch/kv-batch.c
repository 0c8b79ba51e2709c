/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks the batch by which a call on a cache finds keys. */
#include "dispatch/call.h"
#include "select/problem.h"

/* A problem with the members that decide how sequences find their pages. */
static struct attn_problem problem_of(const struct attn__kv_find *find, const struct attn_batch *batch)
{
    struct attn_problem problem;
    ATTN_INIT(&problem);
    problem.heads = problem.kv_heads = problem.head_dim = 1;
    problem.addressing = find->addressing;
    problem.index_dtype = find->index_dtype;
    problem.block = find->block;
    problem.kv_source = ATTN_KV_CACHE;
    problem.max_seqs = problem.max_q = problem.max_kv = problem.max_rows = ATTN__COUNT_MAX;
    if (find->queries) {
        problem.positions = batch->q_positions.data != NULL;
        problem.seq_causal = batch->seq_causal.data != NULL;
        problem.cp = batch->kv_global_lens.data != NULL;
    }
    attn__problem_fill(&problem);
    return problem;
}

/* Checks one sequence against the cache; its arrays have been checked. */
static int32_t check_place(const struct attn__kv_find *find, const struct attn_batch_host *host, uint32_t i,
                           struct attn_error *err)
{
    const int32_t keys = host->kv_lens[i];
    if (find->queries && host->q_offsets[i + 1] - host->q_offsets[i] > keys) {
        return attn__fail(err, ATTN_E_INVALID, 0, "kv_lens",
                          "batch.kv_lens[%u] is %d; accepted: at least the sequence's %d new tokens", i, keys,
                          host->q_offsets[i + 1] - host->q_offsets[i]);
    }
    if (find->addressing != ATTN_DENSE || keys == 0 || find->pages == 0)
        return ATTN_OK;
    if (host->kv_offsets != NULL) {
        const int64_t end = (int64_t)host->kv_offsets[i] + keys;
        return end <= (int64_t)find->block
                   ? ATTN_OK
                   : attn__fail(err, ATTN_E_INVALID, 0, "kv_offsets",
                                "batch.kv_offsets[%u] is %d with %d keys; the cache has %u tokens", i,
                                host->kv_offsets[i], keys, find->block);
    }
    if (i >= find->pages) {
        return attn__fail(err, ATTN_E_INVALID, 0, "seqs", "sequence %u has keys; the cache has %u pages", i,
                          find->pages);
    }
    return (uint32_t)keys <= find->block
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "kv_lens",
                            "batch.kv_lens[%u] is %d; a page of the cache has %u tokens", i, keys,
                            find->block);
}

static int32_t check_host(const struct attn_problem *problem, const struct attn_batch *batch,
                          const struct attn__kv_find *find, struct attn_error *err)
{
    struct attn_batch known = *batch;
    struct attn_batch_host host;
    if (find->pages != 0 && (known.pages == 0 || known.pages > find->pages))
        known.pages = find->pages;
    int32_t status = attn__batch_check_host(problem, &known, err);
    if (status != ATTN_OK || !(batch->given & ATTN_GIVEN_HOST_COPIES))
        return status;
    status = attn__take(&host, sizeof host, batch->host, sizeof host, "host", err);
    for (uint32_t i = 0; i < batch->seqs && status == ATTN_OK; i++)
        status = check_place(find, &host, i, err);
    return status;
}

int32_t attn__kv_batch(const struct attn_backend *backend, const struct attn_batch *given,
                       const struct attn__kv_find *find, struct attn_batch *copy,
                       const struct attn_batch **out, struct attn_error *err)
{
    const void *known = NULL;
    int32_t status = attn__argument(backend, given, copy, sizeof *copy,
                                    backend->entry->plugin->table.batch_size, "batch", &known, err);
    if (status != ATTN_OK)
        return status;
    const struct attn_batch *batch = *out = known;
    if (find->addressing < ATTN_DENSE || find->addressing > ATTN_CSR) {
        return attn__fail(err, ATTN_E_INVALID, 0, "addressing",
                          "addressing is %u; accepted: ATTN_DENSE, ATTN_TABLE or ATTN_CSR", find->addressing);
    }
    if (find->index_dtype != 0 && find->index_dtype != ATTN_INT32 && find->index_dtype != ATTN_INT64) {
        return attn__fail(err, ATTN_E_INVALID, 0, "index_dtype",
                          "index_dtype is 0x%x; accepted: ATTN_INT32 or ATTN_INT64", find->index_dtype);
    }
    const struct attn_problem problem = problem_of(find, batch);
    status = find->queries ? attn__batch_check(&problem, batch, err)
                           : attn__batch_check_keys(&problem, batch, err);
    return status == ATTN_OK ? check_host(&problem, batch, find, err) : status;
}
