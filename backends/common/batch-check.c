/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Checks what the arrays of a batch hold: libattn those of which it has host copies, a plugin those that it
 * reads in host memory anyway.
 */
#include "check.h"

/* The sequence that is being checked. */
struct sequence {
    const struct attn_problem *problem;
    const struct attn_batch *batch;
    const struct attn_batch_host *host;
    uint32_t index;
    int32_t queries;
    int64_t keys;
    int64_t pages;              /* of its keys */
    struct attn_extent *extent; /* or NULL */
};

static void extend(const struct sequence *sequence, int64_t last_key)
{
    struct attn_extent *extent = sequence->extent;

    if (extent == NULL)
        return;
    extent->last_key = last_key > extent->last_key ? last_key : extent->last_key;
    extent->max_kv = sequence->keys > extent->max_kv ? (uint32_t)sequence->keys : extent->max_kv;
}

/* Fails with ATTN_E_INVALID and a message with array, index, value and accepted range. */
static int32_t out_of_range(struct attn_error *err, const char *array, uint64_t index, int64_t value,
                            const char *what, int64_t limit)
{
    return attn__fail(err, ATTN_E_INVALID, 0, array, "batch.%s[%llu] is %lld; accepted: %s %lld", array,
                      (unsigned long long)index, (long long)value, what, (long long)limit);
}

static int32_t check_queries(struct sequence *sequence, struct attn_error *err)
{
    const int32_t *offsets = sequence->host->q_offsets;
    const uint32_t i = sequence->index;
    if (i == 0 && offsets[0] != 0)
        return out_of_range(err, "q_offsets", 0, offsets[0], "exactly", 0);
    if (offsets[i + 1] < offsets[i])
        return out_of_range(err, "q_offsets", (uint64_t)i + 1, offsets[i + 1], "not falling, at least",
                            offsets[i]);
    sequence->queries = offsets[i + 1] - offsets[i];
    if ((uint32_t)sequence->queries > sequence->batch->max_q)
        return out_of_range(err, "q_offsets", (uint64_t)i + 1, offsets[i + 1],
                            "at most max_q above the one before,",
                            (int64_t)offsets[i] + sequence->batch->max_q);
    return ATTN_OK;
}

/* Dense: checks the starts, and takes the length from them if no array has it. */
static int32_t check_starts(struct sequence *sequence, struct attn_error *err)
{
    const int32_t *starts = sequence->host->kv_offsets;
    const uint32_t i = sequence->index;
    if (starts[i] < 0)
        return out_of_range(err, "kv_offsets", i, starts[i], "at least", 0);
    if (starts[i + 1] < starts[i])
        return out_of_range(err, "kv_offsets", (uint64_t)i + 1, starts[i + 1], "not falling, at least",
                            starts[i]);
    const int64_t room = (int64_t)starts[i + 1] - starts[i];
    if (sequence->host->kv_lens == NULL) {
        sequence->keys = room;
        return ATTN_OK;
    }
    if (sequence->keys > room)
        return out_of_range(err, "kv_lens", i, sequence->keys, "up to the next of kv_offsets,", room);
    return ATTN_OK;
}

static int32_t check_keys(struct sequence *sequence, struct attn_error *err)
{
    const struct attn_batch *batch = sequence->batch;
    const uint32_t source = sequence->problem->kv_source;
    const uint32_t i = sequence->index;
    sequence->keys = sequence->host->kv_lens != NULL ? sequence->host->kv_lens[i] : sequence->queries;
    if (sequence->keys < 0)
        return out_of_range(err, "kv_lens", i, sequence->keys, "at least", 0);
    const bool by_starts = sequence->host->kv_offsets != NULL &&
                           (source == ATTN_KV_NEW || sequence->problem->addressing == ATTN_DENSE);
    if (by_starts) {
        const int32_t status = check_starts(sequence, err);
        if (status != ATTN_OK)
            return status;
    } else if (source == ATTN_KV_NEW && sequence->keys != sequence->queries) {
        return out_of_range(err, "kv_lens", i, sequence->keys, "without kv_offsets the number of queries,",
                            sequence->queries);
    }
    if (source == ATTN_KV_CACHE_NEW && sequence->keys < sequence->queries)
        return out_of_range(err, "kv_lens", i, sequence->keys,
                            "with kv_source=cache+new at least the queries,", sequence->queries);
    if (sequence->keys > batch->max_kv)
        return out_of_range(err, sequence->host->kv_lens != NULL ? "kv_lens" : "kv_offsets", i,
                            sequence->keys, "keys up to max_kv,", batch->max_kv);
    /* Both fit 32 bits, which divide faster. */
    if (sequence->keys > 0 && (by_starts || source == ATTN_KV_NEW))
        extend(sequence,
               (by_starts ? sequence->host->kv_offsets : sequence->host->q_offsets)[i] + sequence->keys - 1);
    else if (sequence->keys > 0 && sequence->problem->addressing == ATTN_DENSE)
        extend(sequence, i); /* a page is a sequence */
    sequence->pages =
        sequence->keys > 0 ? ((uint32_t)sequence->keys - 1) / sequence->problem->block + INT64_C(1) : 0;
    return ATTN_OK;
}

/* The highest of `count` entries, -1 if all are invalid blocks. */
static int64_t highest(const void *entries, uint32_t dtype, int64_t first, int64_t count)
{
    int64_t wide_max = -1;

    if (dtype == ATTN_INT64) {
        const int64_t *wide = (const int64_t *)entries + first;
        for (int64_t i = 0; i < count; i++)
            wide_max = wide[i] > wide_max ? wide[i] : wide_max;
        return wide_max;
    }
    const int32_t *narrow = (const int32_t *)entries + first;
    int32_t max = -1;
    for (int64_t i = 0; i < count; i++)
        max = narrow[i] > max ? narrow[i] : max;
    return max;
}

/* Checks the pages of a sequence: `count` entries from `first` on. Negative ones are invalid blocks. */
static int32_t check_pages(const struct sequence *sequence, const char *array, uint64_t index,
                           const void *entries, uint32_t dtype, int64_t first, struct attn_error *err)
{
    const uint32_t limit = sequence->batch->pages; /* 0: not known, so that any page is accepted */
    int64_t i = 0;

    if (limit == 0 && sequence->extent == NULL)
        return ATTN_OK;
    const int64_t max = highest(entries, dtype, first, sequence->pages);
    extend(sequence, max);
    if (limit == 0 || max < (int64_t)limit)
        return ATTN_OK;
    while (highest(entries, dtype, first + i, 1) < (int64_t)limit)
        i++;
    return out_of_range(err, array, index + (uint64_t)i, highest(entries, dtype, first + i, 1),
                        "below the number of pages,", limit);
}

static int32_t check_table(const struct sequence *sequence, struct attn_error *err)
{
    const uint32_t width = sequence->batch->table_width;

    if (sequence->pages > width)
        return attn__fail(err, ATTN_E_INVALID, 0, "table_width",
                          "batch.table_width is %u, but kv_lens[%u]=%lld takes %lld pages of %u tokens; "
                          "accepted: that many and more",
                          width, sequence->index, (long long)sequence->keys, (long long)sequence->pages,
                          sequence->problem->block);
    const char *row =
        (const char *)sequence->host->table + (int64_t)sequence->index * sequence->batch->table_stride;
    return check_pages(sequence, "table", (uint64_t)sequence->index * width, row, ATTN_INT32, 0, err);
}

static int32_t check_csr(const struct sequence *sequence, struct attn_error *err)
{
    const int32_t *indptr = sequence->host->csr_indptr;
    const uint32_t i = sequence->index;

    if (indptr[i] < 0)
        return out_of_range(err, "csr_indptr", i, indptr[i], "at least", 0);
    if (indptr[i + 1] < indptr[i])
        return out_of_range(err, "csr_indptr", (uint64_t)i + 1, indptr[i + 1], "not falling, at least",
                            indptr[i]);
    if (indptr[i + 1] - indptr[i] < sequence->pages)
        return out_of_range(err, "csr_indptr", (uint64_t)i + 1, indptr[i + 1],
                            "room for the pages of kv_lens, at least", indptr[i] + sequence->pages);
    return sequence->pages == 0
               ? ATTN_OK
               : check_pages(sequence, "csr_indices", (uint64_t)indptr[i], sequence->host->csr_indices,
                             sequence->problem->index_dtype, indptr[i], err);
}

static int32_t check_last_page(const struct sequence *sequence, struct attn_error *err)
{
    const int32_t len = sequence->host->last_page_lens[sequence->index];
    const int64_t block = sequence->problem->block;
    if (sequence->keys == 0) { /* builders write 0 or a full page */
        return len >= 0 && len <= block ? ATTN_OK
                                        : out_of_range(err, "last_page_lens", sequence->index, len,
                                                       "of an empty sequence 0 to", block);
    }
    const int64_t expected = (sequence->keys - 1) % block + 1;
    return len == expected ? ATTN_OK
                           : out_of_range(err, "last_page_lens", sequence->index, len,
                                          "what follows from kv_lens,", expected);
}

/* Checks the number of keys of this rank against that of all ranks (docs/definition.md, section 4). */
static int32_t check_rank_keys(const struct sequence *sequence, struct attn_error *err)
{
    const struct attn_cp_shard shard = attn__cp_shard_of(sequence->problem, sequence->batch);
    const int64_t all = sequence->host->kv_global_lens[sequence->index];

    if (all < 0)
        return out_of_range(err, "kv_global_lens", sequence->index, all, "at least", 0);
    const int64_t own = attn__cp_count(&shard, all);
    return sequence->keys == own ? ATTN_OK
                                 : out_of_range(err, "kv_lens", sequence->index, sequence->keys,
                                                "what this rank holds of kv_global_lens,", own);
}

static int32_t check_sequence(struct sequence *sequence, struct attn_error *err)
{
    const struct attn_batch_host *host = sequence->host;
    const bool cached = sequence->problem->kv_source != ATTN_KV_NEW;
    int32_t status = host->q_offsets != NULL ? check_queries(sequence, err) : (int32_t)ATTN_OK;
    if (status == ATTN_OK)
        status = check_keys(sequence, err);
    if (status == ATTN_OK && cached && sequence->problem->addressing == ATTN_TABLE && sequence->pages > 0)
        status = check_table(sequence, err);
    if (status == ATTN_OK && cached && sequence->problem->addressing == ATTN_CSR)
        status = check_csr(sequence, err);
    if (status == ATTN_OK && host->last_page_lens != NULL)
        status = check_last_page(sequence, err);
    if (status == ATTN_OK && host->seq_causal != NULL && host->seq_causal[sequence->index] > 1)
        status =
            out_of_range(err, "seq_causal", sequence->index, host->seq_causal[sequence->index], "0 or", 1);
    if (status == ATTN_OK && sequence->problem->cp)
        status = check_rank_keys(sequence, err);
    return status;
}

struct attn_cp_shard attn__cp_shard_of(const struct attn_problem *problem, const struct attn_batch *batch)
{
    if (problem->cp == 0)
        return (struct attn_cp_shard){0};
    return (struct attn_cp_shard){batch->cp_rank, batch->cp_world, batch->cp_interleave};
}

int32_t attn__batch_check_arrays(const struct attn_problem *problem, const struct attn_batch *batch,
                                 const struct attn_batch_host *arrays, struct attn_extent *out,
                                 struct attn_error *err)
{
    struct sequence sequence = {.problem = problem, .batch = batch, .host = arrays, .extent = out};
    int32_t status = ATTN_OK;

    if (out != NULL)
        *out = (struct attn_extent){.last_key = -1};
    if (batch->seqs == 0)
        return ATTN_OK;
    for (; sequence.index < batch->seqs && status == ATTN_OK; sequence.index++)
        status = check_sequence(&sequence, err);
    if (status != ATTN_OK || arrays->q_offsets == NULL)
        return status;
    const int32_t end = arrays->q_offsets[batch->seqs];
    const bool mixed = problem->graph == ATTN_GRAPH_ALWAYS; /* a graph has rows that a step does not have */
    if ((uint32_t)end == batch->num_tokens || (mixed && (uint32_t)end < batch->num_tokens))
        return ATTN_OK;
    return out_of_range(err, "q_offsets", batch->seqs, end,
                        mixed ? "up to the number of rows," : "the number of rows,", batch->num_tokens);
}
