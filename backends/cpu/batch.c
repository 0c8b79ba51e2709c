/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks the arrays of a batch, which for a CPU are in host memory, and finds the sequence of a row. */
#include "cpu.h"

static const int32_t *array(const struct attn_buffer *buffer)
{
    return (const int32_t *)(const void *)attn__address(buffer);
}

static struct attn_batch_host arrays_of(const struct attn_batch *batch)
{
    return (struct attn_batch_host){.struct_size = sizeof(struct attn_batch_host),
                                    .q_offsets = array(&batch->q_offsets),
                                    .kv_lens = array(&batch->kv_lens),
                                    .kv_offsets = array(&batch->kv_offsets),
                                    .table = array(&batch->table),
                                    .csr_indptr = array(&batch->csr_indptr),
                                    .csr_indices = attn__address(&batch->csr_indices),
                                    .last_page_lens = array(&batch->last_page_lens),
                                    .seq_causal = (const uint8_t *)attn__address(&batch->seq_causal),
                                    .kv_global_lens = array(&batch->kv_global_lens)};
}

int32_t cpu_batch_check(const struct attn_problem *problem, const struct attn_batch *batch,
                        struct attn_extent *out, struct attn_error *err)
{
    const struct attn_batch_host arrays = arrays_of(batch);
    const int32_t status = attn__batch_align(problem, batch, err);

    return status == ATTN_OK ? attn__batch_check_arrays(problem, batch, &arrays, out, err) : status;
}

int32_t cpu_batch_check_keys(const struct attn_problem *problem, const struct attn_batch *batch,
                             struct attn_extent *out, struct attn_error *err)
{
    struct attn_batch keys = *batch;

    keys.q_offsets.data = NULL;
    return cpu_batch_check(problem, &keys, out, err);
}

int32_t cpu_batch_check_new(const struct attn_problem *problem, const struct attn_batch *batch,
                            struct attn_extent *out, struct attn_error *err)
{
    const int32_t *offsets = array(&batch->q_offsets), *lens = array(&batch->kv_lens);
    const int32_t status = cpu_batch_check(problem, batch, out, err);

    for (uint32_t n = 0; n < batch->seqs && status == ATTN_OK; n++)
        if (offsets[n + 1] - offsets[n] > lens[n])
            return attn__fail(
                err, ATTN_E_INVALID, 0, "kv_lens",
                "kv_lens[%u] is %d, but the sequence has %d new tokens; as many and more are accepted", n,
                lens[n], offsets[n + 1] - offsets[n]);
    return status;
}

uint32_t cpu_sequence_of(const int32_t *offsets, uint32_t seqs, uint32_t row)
{
    uint32_t low = 0, high = seqs;

    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if ((uint32_t)offsets[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int32_t cpu_extent_check(const struct attn_problem *problem, const struct attn_batch *batch,
                         const struct attn_extent *extent, const struct attn_kv_desc *desc,
                         struct attn_error *err)
{
    bool run_of_tokens = problem->addressing == ATTN_DENSE && batch->kv_offsets.data != NULL;
    uint64_t there = run_of_tokens ? desc->block : desc->pages;

    if (extent->last_key >= 0 && (uint64_t)extent->last_key >= there)
        return attn__fail(err, ATTN_E_INVALID, 0, run_of_tokens ? "kv_offsets" : "pages",
                          "the batch reads %s %lld; of this cache those below %llu are accepted",
                          run_of_tokens ? "token" : "page", (long long)extent->last_key,
                          (unsigned long long)there);
    if (problem->addressing == ATTN_DENSE && !run_of_tokens && extent->max_kv > desc->block)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "kv_lens",
            "a sequence has %u keys; up to the %u that the cache has room for per sequence are accepted",
            extent->max_kv, desc->block);
    return ATTN_OK;
}
