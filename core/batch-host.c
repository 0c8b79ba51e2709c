/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks what the arrays of a batch hold, where the caller gave host copies of them. */
#include "call.h"

/* What is known of the sequence under check. */
struct sequence {
    const struct attn_problem *problem;
    const struct attn_batch *batch;
    const struct attn_batch_host *host;
    uint32_t index;
    int32_t queries;
    int64_t keys;
    int64_t pages; /* that hold its keys */
};

/* ATTN_E_INVALID naming array, index, value and range. */
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
    if (i == 0 && offsets[0] != 0) {
        return out_of_range(err, "q_offsets", 0, offsets[0], "exactly", 0);
    }
    if (offsets[i + 1] < offsets[i]) {
        return out_of_range(err, "q_offsets", (uint64_t)i + 1, offsets[i + 1], "not falling, at least",
                            offsets[i]);
    }
    sequence->queries = offsets[i + 1] - offsets[i];
    if ((uint32_t)sequence->queries > sequence->batch->max_q) {
        return out_of_range(err, "q_offsets", (uint64_t)i + 1, offsets[i + 1],
                            "at most max_q above the one before,",
                            (int64_t)offsets[i] + sequence->batch->max_q);
    }
    return ATTN_OK;
}

/* Dense: room between the starts, and the length where no array gives it. */
static int32_t check_starts(struct sequence *sequence, struct attn_error *err)
{
    const int32_t *starts = sequence->host->kv_offsets;
    const uint32_t i = sequence->index;
    if (starts[i] < 0) {
        return out_of_range(err, "kv_offsets", i, starts[i], "at least", 0);
    }
    if (starts[i + 1] < starts[i]) {
        return out_of_range(err, "kv_offsets", (uint64_t)i + 1, starts[i + 1], "not falling, at least",
                            starts[i]);
    }
    const int64_t room = (int64_t)starts[i + 1] - starts[i];
    if (sequence->host->kv_lens == NULL) {
        sequence->keys = room;
        return ATTN_OK;
    }
    if (sequence->keys > room) {
        return out_of_range(err, "kv_lens", i, sequence->keys, "up to the next of kv_offsets,", room);
    }
    return ATTN_OK;
}

static int32_t check_keys(struct sequence *sequence, struct attn_error *err)
{
    const struct attn_batch *batch = sequence->batch;
    const uint32_t source = sequence->problem->kv_source;
    const uint32_t i = sequence->index;
    sequence->keys = sequence->host->kv_lens != NULL ? sequence->host->kv_lens[i] : sequence->queries;
    if (sequence->keys < 0) {
        return out_of_range(err, "kv_lens", i, sequence->keys, "at least", 0);
    }
    const bool by_starts = sequence->host->kv_offsets != NULL &&
                           (source == ATTN_KV_NEW || sequence->problem->addressing == ATTN_DENSE);
    if (by_starts) {
        const int32_t status = check_starts(sequence, err);
        if (status != ATTN_OK) {
            return status;
        }
    } else if (source == ATTN_KV_NEW && sequence->keys != sequence->queries) {
        return out_of_range(err, "kv_lens", i, sequence->keys, "without kv_offsets the number of queries,",
                            sequence->queries);
    }
    if (source == ATTN_KV_CACHE_NEW && sequence->keys < sequence->queries) {
        return out_of_range(err, "kv_lens", i, sequence->keys,
                            "with kv_source=cache+new at least the queries,", sequence->queries);
    }
    if (sequence->keys > batch->max_kv) {
        return out_of_range(err, sequence->host->kv_lens != NULL ? "kv_lens" : "kv_offsets", i,
                            sequence->keys, "keys up to max_kv,", batch->max_kv);
    }
    /* 32 bits hold both, and divide faster. */
    sequence->pages =
        sequence->keys > 0 ? ((uint32_t)sequence->keys - 1) / sequence->problem->block + INT64_C(1) : 0;
    return ATTN_OK;
}

/* A page number; negative ones are holes. */
static int32_t check_page(const struct sequence *sequence, const char *array, uint64_t index, int64_t page,
                          struct attn_error *err)
{
    const uint32_t pages = sequence->batch->pages;
    return pages == 0 || page < (int64_t)pages
               ? ATTN_OK
               : out_of_range(err, array, index, page, "below the number of pages,", pages);
}

static int32_t check_table(const struct sequence *sequence, struct attn_error *err)
{
    const uint32_t width = sequence->batch->table_width;
    if (sequence->pages > width) {
        return attn__fail(err, ATTN_E_INVALID, 0, "table_width",
                          "batch.table_width is %u, but kv_lens[%u]=%lld takes %lld pages of %u tokens; "
                          "accepted: that many and more",
                          width, sequence->index, (long long)sequence->keys, (long long)sequence->pages,
                          sequence->problem->block);
    }
    if (sequence->batch->pages == 0) /* not said, so that any is right */
        return ATTN_OK;
    const char *row =
        (const char *)sequence->host->table + (int64_t)sequence->index * sequence->batch->table_stride;
    int32_t status = ATTN_OK;
    for (int64_t j = 0; j < sequence->pages && status == ATTN_OK; j++) {
        status = check_page(sequence, "table", (uint64_t)sequence->index * width + (uint64_t)j,
                            ((const int32_t *)(const void *)row)[j], err);
    }
    return status;
}

static int32_t check_csr(const struct sequence *sequence, struct attn_error *err)
{
    const int32_t *indptr = sequence->host->csr_indptr;
    const uint32_t i = sequence->index;
    if (indptr[i] < 0) {
        return out_of_range(err, "csr_indptr", i, indptr[i], "at least", 0);
    }
    if (indptr[i + 1] < indptr[i]) {
        return out_of_range(err, "csr_indptr", (uint64_t)i + 1, indptr[i + 1], "not falling, at least",
                            indptr[i]);
    }
    if (indptr[i + 1] - indptr[i] < sequence->pages) {
        return out_of_range(err, "csr_indptr", (uint64_t)i + 1, indptr[i + 1],
                            "room for the pages of kv_lens, at least", indptr[i] + sequence->pages);
    }
    int32_t status = ATTN_OK;
    for (int64_t j = indptr[i]; j < indptr[i] + sequence->pages && status == ATTN_OK; j++) {
        const int64_t page = sequence->problem->index_dtype == ATTN_INT64
                                 ? ((const int64_t *)sequence->host->csr_indices)[j]
                                 : ((const int32_t *)sequence->host->csr_indices)[j];
        status = check_page(sequence, "csr_indices", (uint64_t)j, page, err);
    }
    return status;
}

static int32_t check_last_page(const struct sequence *sequence, struct attn_error *err)
{
    const int32_t given = sequence->host->last_page_lens[sequence->index];
    const int64_t block = sequence->problem->block;
    if (sequence->keys == 0) { /* builders write 0 or a whole page */
        return given >= 0 && given <= block ? ATTN_OK
                                            : out_of_range(err, "last_page_lens", sequence->index, given,
                                                           "of an empty sequence 0 to", block);
    }
    const int64_t expected = (sequence->keys - 1) % block + 1;
    return given == expected ? ATTN_OK
                             : out_of_range(err, "last_page_lens", sequence->index, given,
                                            "what follows from kv_lens,", expected);
}

/* The keys that this rank holds of all (docs/definition.md, section 4). */
static int32_t check_rank_keys(const struct sequence *sequence, struct attn_error *err)
{
    const struct attn_batch *batch = sequence->batch;
    const int64_t all = sequence->host->kv_global_lens[sequence->index];
    if (all < 0) {
        return out_of_range(err, "kv_global_lens", sequence->index, all, "at least", 0);
    }
    const int64_t share = batch->cp_interleave;
    const int64_t round = share * batch->cp_world; /* fits, attn__batch_check says */
    const int64_t rest = all % round - batch->cp_rank * share;
    const int64_t own = all / round * share + (rest < 0 ? 0 : rest > share ? share : rest);
    return sequence->keys == own ? ATTN_OK
                                 : out_of_range(err, "kv_lens", sequence->index, sequence->keys,
                                                "what this rank holds of kv_global_lens,", own);
}

static int32_t check_sequence(struct sequence *sequence, struct attn_error *err)
{
    const struct attn_batch_host *host = sequence->host;
    const bool cached = sequence->problem->kv_source != ATTN_KV_NEW;
    int32_t status = host->q_offsets != NULL ? check_queries(sequence, err) : (int32_t)ATTN_OK;
    if (status == ATTN_OK) {
        status = check_keys(sequence, err);
    }
    if (status == ATTN_OK && cached && sequence->problem->addressing == ATTN_TABLE && sequence->pages > 0) {
        status = check_table(sequence, err);
    }
    if (status == ATTN_OK && cached && sequence->problem->addressing == ATTN_CSR) {
        status = check_csr(sequence, err);
    }
    if (status == ATTN_OK && host->last_page_lens != NULL) {
        status = check_last_page(sequence, err);
    }
    if (status == ATTN_OK && host->seq_causal != NULL && host->seq_causal[sequence->index] > 1) {
        status =
            out_of_range(err, "seq_causal", sequence->index, host->seq_causal[sequence->index], "0 or", 1);
    }
    if (status == ATTN_OK && sequence->problem->cp) {
        status = check_rank_keys(sequence, err);
    }
    return status;
}

/* Each array that is given on the device has its copy: half a set would be half a check. */
static int32_t check_complete(const struct attn_batch *batch, const struct attn_batch_host *host,
                              struct attn_error *err)
{
    const struct {
        const char *name;
        const void *device;
        const void *copy;
    } arrays[] = {{"q_offsets", batch->q_offsets.data, host->q_offsets},
                  {"kv_lens", batch->kv_lens.data, host->kv_lens},
                  {"kv_offsets", batch->kv_offsets.data, host->kv_offsets},
                  {"table", batch->table.data, host->table},
                  {"csr_indptr", batch->csr_indptr.data, host->csr_indptr},
                  {"csr_indices", batch->csr_indices.data, host->csr_indices},
                  {"last_page_lens", batch->last_page_lens.data, host->last_page_lens},
                  {"q_positions", batch->q_positions.data, host->q_positions},
                  {"seq_causal", batch->seq_causal.data, host->seq_causal},
                  {"kv_global_lens", batch->kv_global_lens.data, host->kv_global_lens}};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        if ((arrays[i].device != NULL) != (arrays[i].copy != NULL)) {
            return attn__fail(
                err, ATTN_E_INVALID, 0, arrays[i].name,
                "batch.%s is given %s; host copies are of every array that is given, or of none",
                arrays[i].name, arrays[i].copy != NULL ? "as a host copy alone" : "without a host copy");
        }
    }
    return ATTN_OK;
}

int32_t attn__batch_check_host(const struct attn_problem *problem, const struct attn_batch *batch,
                               struct attn_error *err)
{
    if (!(batch->given & ATTN_GIVEN_HOST_COPIES)) {
        return ATTN_OK;
    }
    struct attn_batch_host host;
    int32_t status = attn__take(&host, sizeof host, batch->host, sizeof host, "host", err);
    if (status == ATTN_OK) {
        status = check_complete(batch, &host, err);
    }
    if (status != ATTN_OK || batch->seqs == 0) {
        return status;
    }
    struct sequence sequence = {.problem = problem, .batch = batch, .host = &host};
    for (; sequence.index < batch->seqs && status == ATTN_OK; sequence.index++) {
        status = check_sequence(&sequence, err);
    }
    if (status == ATTN_OK && host.q_offsets != NULL && (uint32_t)host.q_offsets[batch->seqs] != batch->rows) {
        status = out_of_range(err, "q_offsets", batch->seqs, host.q_offsets[batch->seqs],
                              "the number of rows,", batch->rows);
    }
    return status;
}
