/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A batch against its problem: scalars against the maxima, the arrays that the problem demands, and what they
 * hold as far as there are host copies.
 */
#include "dispatch/call.h"
#include "select/problem.h"

static int32_t missing(const char *name, const char *why, struct attn_error *err)
{
    return attn__fail(err, ATTN_E_INVALID, 0, name, "batch.%s is not given, but %s needs it", name, why);
}

static int32_t too_many(const char *name, uint32_t value, uint32_t most, uint32_t reason,
                        struct attn_error *err)
{
    return attn__fail(err, ATTN_E_INVALID, reason, name,
                      "batch.%s is %u; accepted: up to the plan's maximum %u", name, value, most);
}

static int32_t check_maxima(const struct attn_problem *problem, const struct attn_batch *batch,
                            struct attn_error *err)
{
    if (batch->seqs > problem->max_seqs)
        return too_many("seqs", batch->seqs, problem->max_seqs, ATTN_REASON_MAX_SEQS, err);
    if (batch->num_tokens > problem->max_rows)
        return too_many("num_tokens", batch->num_tokens, problem->max_rows, ATTN_REASON_MAX_ROWS, err);
    if (batch->max_q > problem->max_q)
        return too_many("max_q", batch->max_q, problem->max_q, ATTN_REASON_MAX_Q, err);
    if (batch->max_kv > problem->max_kv)
        return too_many("max_kv", batch->max_kv, problem->max_kv, ATTN_REASON_MAX_KV, err);
    if (batch->num_tokens > (uint64_t)batch->seqs * batch->max_q) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, "num_tokens",
            "batch.num_tokens is %u; accepted: up to what %u sequences of at most max_q=%u have",
            batch->num_tokens, batch->seqs, batch->max_q);
    }
    if (batch->given & ~ATTN_GIVEN_HOST_COPIES) {
        return attn__fail(err, ATTN_E_INVALID, 0, "given",
                          "batch.given has the unknown bits 0x%x; accepted: ATTN_GIVEN_HOST_COPIES or 0",
                          batch->given & ~ATTN_GIVEN_HOST_COPIES);
    }
    return ATTN_OK;
}

/* Whether a prefix may be computed once, which the plan has to have room for. */
static int32_t check_cascade(const struct attn_problem *problem, const struct attn_batch *batch,
                             struct attn_error *err)
{
    if (batch->reserved != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "reserved", "batch.reserved is %u; accepted: 0",
                          batch->reserved);
    if (batch->cascade > 1)
        return attn__fail(err, ATTN_E_INVALID, 0, "cascade", "batch.cascade is %u; accepted: 0 or 1",
                          batch->cascade);
    if (batch->cascade == 0 || batch->num_tokens <= problem->cascade)
        return ATTN_OK;
    return attn__fail(err, ATTN_E_INVALID, 0, "cascade",
                      "batch.cascade is 1 and batch.num_tokens %u; accepted: up to cascade=%u of the problem",
                      batch->num_tokens, problem->cascade);
}

/* The arrays that tell where the keys of a sequence are. */
static int32_t check_addressing(const struct attn_problem *problem, const struct attn_batch *batch,
                                struct attn_error *err)
{
    if (problem->kv_source == ATTN_KV_NEW)
        return ATTN_OK; /* no cache is read, and lengths may be those of the queries */
    if (batch->kv_lens.data == NULL)
        return missing("kv_lens", "reading a cache", err);
    if (problem->addressing == ATTN_TABLE) {
        if (batch->table.data == NULL && batch->max_kv > 0)
            return missing("table", "addr=table", err);
        if (batch->table_stride & 3) {
            return attn__fail(err, ATTN_E_INVALID, 0, "table_stride",
                              "batch.table_stride is %lld; accepted: multiples of 4 bytes",
                              (long long)batch->table_stride);
        }
    }
    if (problem->addressing == ATTN_CSR) {
        if (batch->csr_indptr.data == NULL)
            return missing("csr_indptr", "addr=csr", err);
        if (batch->csr_indices.data == NULL && batch->max_kv > 0)
            return missing("csr_indices", "addr=csr", err);
    }
    return ATTN_OK;
}

/* An array that changes results has to be given if the problem says so, and must not be otherwise. */
static int32_t check_optional(const struct attn_buffer *buffer, uint32_t wanted, const char *name,
                              const char *key, struct attn_error *err)
{
    if ((buffer->data != NULL) == (wanted != 0))
        return ATTN_OK;
    if (wanted) {
        return attn__fail(err, ATTN_E_INVALID, 0, name, "batch.%s is not given, but %s=1 needs it", name,
                          key);
    }
    return attn__fail(err, ATTN_E_INVALID, 0, name,
                      "batch.%s is given, but the problem says %s=0; leave it out", name, key);
}

static int32_t check_ranks(const struct attn_problem *problem, const struct attn_batch *batch,
                           struct attn_error *err)
{
    int64_t all;
    if (batch->cp_world == 0 || batch->cp_rank >= batch->cp_world) {
        return attn__fail(err, ATTN_E_INVALID, 0, "cp_rank",
                          "batch.cp_rank is %u of cp_world %u; accepted: rank < world", batch->cp_rank,
                          batch->cp_world);
    }
    if (batch->cp_interleave == 0) {
        return attn__fail(err, ATTN_E_INVALID, 0, "cp_interleave",
                          "batch.cp_interleave is 0; accepted: 1 or more");
    }
    if (__builtin_mul_overflow((int64_t)batch->cp_interleave, batch->cp_world, &all)) {
        return attn__fail(err, ATTN_E_INVALID, 0, "cp_interleave",
                          "batch.cp_interleave is %u; accepted: what times cp_world=%u fits 63 bits",
                          batch->cp_interleave, batch->cp_world);
    }
    if (problem->addressing != ATTN_DENSE && problem->block % batch->cp_interleave != 0) {
        return attn__fail(err, ATTN_E_INVALID, 0, "cp_interleave",
                          "batch.cp_interleave is %u; accepted: a divisor of block=%u", batch->cp_interleave,
                          problem->block);
    }
    return ATTN_OK;
}

int32_t attn__batch_check(const struct attn_problem *problem, const struct attn_batch *batch,
                          struct attn_error *err)
{
    int32_t status = check_maxima(problem, batch, err);
    if (status != ATTN_OK || batch->seqs == 0)
        return status;
    if (batch->q_offsets.data == NULL)
        return missing("q_offsets", "every batch with sequences", err);
    status = check_cascade(problem, batch, err);
    if (status == ATTN_OK)
        status = check_addressing(problem, batch, err);
    if (status == ATTN_OK && batch->num_tokens > 0)
        status = check_optional(&batch->q_positions, problem->positions, "q_positions", "positions", err);
    if (status == ATTN_OK && batch->position_dtype != 0 && batch->position_dtype != ATTN_INT32 &&
        batch->position_dtype != ATTN_INT64) {
        status = attn__fail(err, ATTN_E_INVALID, 0, "position_dtype",
                            "batch.position_dtype is 0x%x; accepted: ATTN_INT32 or ATTN_INT64",
                            batch->position_dtype);
    }
    if (status == ATTN_OK)
        status = check_optional(&batch->seq_causal, problem->seq_causal, "seq_causal", "seq_causal", err);
    if (status == ATTN_OK)
        status = check_optional(&batch->kv_global_lens, problem->cp, "kv_global_lens", "cp", err);
    return status == ATTN_OK && problem->cp ? check_ranks(problem, batch, err) : status;
}

int32_t attn__batch_check_keys(const struct attn_problem *problem, const struct attn_batch *batch,
                               struct attn_error *err)
{
    struct attn_batch keys = *batch;
    keys.num_tokens = keys.max_q = 0;
    const int32_t status = check_maxima(problem, &keys, err);
    return status == ATTN_OK && batch->seqs > 0 ? check_addressing(problem, batch, err) : status;
}

/* ---------------------------------------------------------------- host copies */

/* Either all arrays of the batch have host copies or none: checking only some would be misleading. */
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
    if (!(batch->given & ATTN_GIVEN_HOST_COPIES))
        return ATTN_OK;
    struct attn_batch_host host;
    int32_t status = attn__take(&host, sizeof host, batch->host, sizeof host, "host", err);
    if (status == ATTN_OK)
        status = check_complete(batch, &host, err);
    if (status != ATTN_OK)
        return status;
    return attn__batch_check_arrays(problem, batch, &host, NULL, err);
}
