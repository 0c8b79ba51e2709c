/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The arrays of a step: offsets, lengths, and pages in an order that no prefetcher guesses. */
#include <stdlib.h>

#include "output.h"
#include "workload.h"

/* 0 .. count - 1 in order, or a permutation of them that is the same at every call. */
static void number_pages(int32_t *list, uint32_t count, bool ordered)
{
    uint64_t state = 12345;

    for (uint32_t i = 0; i < count; i++)
        list[i] = (int32_t)i;
    for (uint32_t i = ordered ? 0 : count; i > 1; i--) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint32_t other = (uint32_t)((state >> 32) % i);
        int32_t swap = list[i - 1];
        list[i - 1] = list[other];
        list[other] = swap;
    }
}

static uint32_t pages_of(const struct workload *workload, uint32_t seq)
{
    uint32_t block = workload->problem.block;

    return (uint32_t)(((uint64_t)workload->the_case->sequence[seq].ctx + block - 1) / block);
}

/* Page `j` of a sequence whose own ones begin behind `taken` others: those of the prefix are the first's. */
static int32_t page_of(const struct workload *workload, const int32_t *pages, uint32_t seq, uint64_t j,
                       uint64_t taken)
{
    const uint32_t common = seq > 0 ? workload->the_case->prefix / workload->problem.block : 0;

    return pages[j < common ? j : taken + j - common];
}

/* Pages of a sequence that no other has. */
static uint64_t own_pages_of(const struct workload *workload, uint32_t seq)
{
    return pages_of(workload, seq) - (seq > 0 ? workload->the_case->prefix / workload->problem.block : 0);
}

/* Table rows; beyond the pages of a sequence blocks are invalid. */
static int32_t rows_of_table_init(struct workload *workload, const int32_t *pages, struct attn_error *err)
{
    uint32_t seqs = workload->the_case->seqs;
    uint64_t width = workload->sizes.width, taken = 0;
    struct attn_batch *batch = &workload->batch;

    workload->table = need_memory(NULL, seqs * width, sizeof *workload->table);
    for (uint32_t i = 0; i < seqs; i++) {
        for (uint64_t j = 0; j < width; j++)
            workload->table[i * width + j] =
                j < pages_of(workload, i) ? page_of(workload, pages, i, j, taken) : -1;
        taken += own_pages_of(workload, i);
    }
    batch->table_stride = (int64_t)width * 4;
    batch->table_width = (uint32_t)width;
    workload->host.table = workload->table;
    return workload_upload(workload, workload->table, seqs * width * 4, &batch->table, err);
}

/* The indices of all sequences, one behind the other. */
static int32_t indices_init(struct workload *workload, const int32_t *pages, struct attn_error *err)
{
    uint32_t seqs = workload->the_case->seqs;
    struct attn_batch *batch = &workload->batch;
    uint64_t taken = 0;

    workload->indptr = need_memory(NULL, (size_t)seqs + 1, sizeof *workload->indptr);
    workload->indptr[0] = 0;
    for (uint32_t i = 0; i < seqs; i++)
        workload->indptr[i + 1] = workload->indptr[i] + (int32_t)pages_of(workload, i);
    const uint32_t count = (uint32_t)workload->indptr[seqs];
    workload->table = need_memory(NULL, count, sizeof *workload->table);
    for (uint32_t i = 0; i < seqs; i++) {
        for (uint64_t j = 0; j < pages_of(workload, i); j++)
            workload->table[(uint64_t)workload->indptr[i] + j] = page_of(workload, pages, i, j, taken);
        taken += own_pages_of(workload, i);
    }
    workload->host.csr_indptr = workload->indptr;
    int32_t status =
        workload_upload(workload, workload->indptr, ((uint64_t)seqs + 1) * 4, &batch->csr_indptr, err);
    if (status != ATTN_OK)
        return status;
    if (workload->problem.index_dtype == ATTN_INT32) {
        workload->host.csr_indices = workload->table;
        return workload_upload(workload, workload->table, (uint64_t)count * 4, &batch->csr_indices, err);
    }
    workload->wide_indices = need_memory(NULL, count, sizeof *workload->wide_indices);
    for (uint32_t i = 0; i < count; i++)
        workload->wide_indices[i] = workload->table[i];
    workload->host.csr_indices = workload->wide_indices;
    return workload_upload(workload, workload->wide_indices, (uint64_t)count * 8, &batch->csr_indices, err);
}

static int32_t pages_init(struct workload *workload, struct attn_error *err)
{
    uint32_t count = (uint32_t)workload->sizes.pages;
    int32_t *pages = need_memory(NULL, count, sizeof *pages);

    number_pages(pages, count, workload->the_case->ordered);
    const int32_t status = workload->problem.addressing == ATTN_TABLE
                               ? rows_of_table_init(workload, pages, err)
                               : indices_init(workload, pages, err);
    free(pages);
    return status;
}

static int32_t ranks_init(struct workload *workload, struct attn_error *err)
{
    uint32_t seqs = workload->the_case->seqs;
    struct attn_batch *batch = &workload->batch;

    batch->cp_world = CASE_RANKS;
    batch->cp_interleave = workload->problem.block;
    workload->kv_global_lens = need_memory(NULL, seqs, sizeof *workload->kv_global_lens);
    for (uint32_t i = 0; i < seqs; i++)
        workload->kv_global_lens[i] =
            (int32_t)case_all_keys(&workload->problem, workload->the_case->sequence[i].ctx);
    workload->host.kv_global_lens = workload->kv_global_lens;
    return workload_upload(workload, workload->kv_global_lens, (uint64_t)seqs * 4, &batch->kv_global_lens,
                           err);
}

int32_t batch_init(struct workload *workload, struct attn_error *err)
{
    const struct bench_case *the_case = workload->the_case;
    struct attn_batch *batch = &workload->batch;
    uint32_t seqs = the_case->seqs;
    int32_t status;

    ATTN_INIT(batch);
    ATTN_INIT(&workload->host);
    batch->given = ATTN_GIVEN_HOST_COPIES;
    batch->seqs = seqs;
    batch->num_tokens = (uint32_t)workload->sizes.rows;
    batch->max_q = workload->sizes.max_q;
    batch->max_kv = workload->sizes.max_kv;
    batch->pages = (uint32_t)workload->sizes.pages;
    batch->cascade = workload->problem.cascade > 0;
    batch->host = &workload->host;
    workload->q_offsets = need_memory(NULL, (size_t)seqs + 1, sizeof *workload->q_offsets);
    workload->kv_lens = need_memory(NULL, seqs, sizeof *workload->kv_lens);
    workload->q_offsets[0] = 0;
    for (uint32_t i = 0; i < seqs; i++) {
        workload->q_offsets[i + 1] = workload->q_offsets[i] + (int32_t)the_case->sequence[i].q_len;
        workload->kv_lens[i] = (int32_t)the_case->sequence[i].ctx;
    }
    workload->host.q_offsets = workload->q_offsets;
    workload->host.kv_lens = workload->kv_lens;
    status = workload_upload(workload, workload->q_offsets, ((uint64_t)seqs + 1) * 4, &batch->q_offsets, err);
    if (status == ATTN_OK)
        status = workload_upload(workload, workload->kv_lens, (uint64_t)seqs * 4, &batch->kv_lens, err);
    if (status == ATTN_OK && workload->problem.addressing != ATTN_DENSE)
        status = pages_init(workload, err);
    if (status == ATTN_OK && workload->problem.cp)
        status = ranks_init(workload, err);
    return status;
}

void batch_finish(struct workload *workload)
{
    free(workload->q_offsets);
    free(workload->kv_lens);
    free(workload->kv_global_lens);
    free(workload->table);
    free(workload->wide_indices);
    free(workload->indptr);
}
