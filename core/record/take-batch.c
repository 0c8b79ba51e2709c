/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Takes the arrays of a batch, and gives the pages that it names new numbers. */
#include <stdlib.h>

#include "check.h"
#include "record/recorder.h"

/* ---------------------------------------------------------------- arrays as they are */

/* The array of a buffer in host memory. True without one: then *out is NULL. */
static bool view(struct attn__taken *taken, const struct attn_buffer *buffer, uint64_t size, const void **out)
{
    *out = NULL;
    if (buffer->data == NULL)
        return true;
    *out = attn__taken_view(taken, buffer, 0, size);
    return *out != NULL;
}

/* Row pointers have to be in order before they say how many indices there are. */
static bool view_csr(struct attn__taken *taken, const struct attn_batch *batch, struct attn_batch_host *host)
{
    const uint64_t size = taken->run->plan->problem.index_dtype == ATTN_INT64 ? 8 : 4;
    const void *indices;

    for (uint32_t i = 0; i < batch->seqs; i++)
        if (host->csr_indptr[i] < 0 || host->csr_indptr[i + 1] < host->csr_indptr[i]) {
            attn__fail(taken->err, ATTN_E_INVALID, 0, "csr_indptr",
                       "batch.csr_indptr[%u] is %d; accepted: at least %d", i + 1, host->csr_indptr[i + 1],
                       host->csr_indptr[i]);
            return false;
        }
    if (!view(taken, &batch->csr_indices, size * (uint64_t)host->csr_indptr[batch->seqs], &indices))
        return false;
    host->csr_indices = indices;
    return true;
}

static bool view_table(struct attn__taken *taken, const struct attn_batch *batch,
                       struct attn_batch_host *host)
{
    const uint64_t last = (uint64_t)(batch->seqs - 1);
    const uint64_t step =
        batch->table_stride < 0 ? 0 - (uint64_t)batch->table_stride : (uint64_t)batch->table_stride;
    uint64_t reach;

    if (batch->table.data == NULL)
        return true;
    if (__builtin_mul_overflow(step, last, &reach) || reach > INT64_MAX / 2) {
        attn__fail(taken->err, ATTN_E_SIZE, 0, "table_stride", "batch.table does not fit 63 bits");
        return false;
    }
    const int64_t low = batch->table_stride < 0 ? -(int64_t)reach : 0;
    const unsigned char *rows =
        attn__taken_view(taken, &batch->table, low, reach + (uint64_t)batch->table_width * 4);
    host->table = rows != NULL ? (const int32_t *)(const void *)(rows - low) : NULL;
    return rows != NULL;
}

static bool view_all(struct attn__taken *taken, const struct attn_batch *batch, struct attn_batch_host *host)
{
    const uint64_t n = batch->seqs, position = batch->position_dtype == ATTN_INT64 ? 8 : 4;
    const struct attn_problem *problem = &taken->run->plan->problem;
    const bool cached = problem->kv_source != ATTN_KV_NEW;
    const void *arrays[8] = {NULL};
    static const struct attn_buffer none = {NULL, 0};

    ATTN_INIT(host);
    if (!view(taken, &batch->q_offsets, (n + 1) * 4, &arrays[0]) ||
        !view(taken, &batch->kv_lens, n * 4, &arrays[1]) ||
        !view(taken, &batch->kv_offsets, (n + 1) * 4, &arrays[2]) ||
        !view(taken, cached && problem->addressing == ATTN_CSR ? &batch->csr_indptr : &none, (n + 1) * 4,
              &arrays[3]) ||
        !view(taken, &batch->last_page_lens, n * 4, &arrays[4]) ||
        !view(taken, problem->positions != 0 ? &batch->q_positions : &none, batch->num_tokens * position,
              &arrays[5]) ||
        !view(taken, &batch->seq_causal, n, &arrays[6]) ||
        !view(taken, &batch->kv_global_lens, n * 4, &arrays[7]))
        return false;
    host->q_offsets = arrays[0];
    host->kv_lens = arrays[1];
    host->kv_offsets = arrays[2];
    host->csr_indptr = arrays[3];
    host->last_page_lens = arrays[4];
    host->q_positions = arrays[5];
    host->seq_causal = arrays[6];
    host->kv_global_lens = arrays[7];
    if (cached && problem->addressing == ATTN_TABLE)
        return view_table(taken, batch, host);
    return host->csr_indptr == NULL || view_csr(taken, batch, host);
}

static bool take_arrays(struct attn__taken *taken, const struct attn_batch *batch,
                        const struct attn_batch_host *host)
{
    const struct {
        uint32_t kind;
        const void *from;
        uint64_t size, count;
    } arrays[] = {{ATTN__PART_q_offsets, host->q_offsets, 4, batch->seqs + UINT64_C(1)},
                  {ATTN__PART_kv_lens, host->kv_lens, 4, batch->seqs},
                  {ATTN__PART_kv_offsets, host->kv_offsets, 4, batch->seqs + UINT64_C(1)},
                  {ATTN__PART_last_page_lens, host->last_page_lens, 4, batch->seqs},
                  {ATTN__PART_q_positions, host->q_positions, batch->position_dtype == ATTN_INT64 ? 8 : 4,
                   batch->num_tokens},
                  {ATTN__PART_seq_causal, host->seq_causal, 1, batch->seqs},
                  {ATTN__PART_kv_global_lens, host->kv_global_lens, 4, batch->seqs}};

    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        if (arrays[i].from != NULL &&
            !attn__taken_array(taken, arrays[i].kind, arrays[i].from, arrays[i].size, arrays[i].count))
            return false;
    return true;
}

/* ---------------------------------------------------------------- pages get new numbers */

/* New numbers by old ones: open addressing, at most half full. */
struct numbers {
    struct slot {
        int64_t page; /* its old number plus 1; 0 = free */
        int32_t number;
    } * slots;
    uint64_t mask;
    int64_t *pages; /* old numbers in the order of the new ones */
    uint64_t count;
};

/* Negative pages are invalid blocks, and stay so. */
static int32_t number_of(struct numbers *numbers, int64_t page)
{
    if (page < 0)
        return -1;
    uint64_t i = (uint64_t)page * UINT64_C(0x9e3779b97f4a7c15) >> 20 & numbers->mask;
    while (numbers->slots[i].page != 0 && numbers->slots[i].page != page + 1)
        i = (i + 1) & numbers->mask;
    if (numbers->slots[i].page == 0) {
        numbers->slots[i] = (struct slot){page + 1, (int32_t)numbers->count};
        numbers->pages[numbers->count++] = page;
    }
    return numbers->slots[i].number;
}

static bool numbers_init(struct numbers *numbers, struct attn__taken *taken, uint64_t entries)
{
    uint64_t size = 2;

    while (size < 2 * entries + 1)
        size *= 2;
    *numbers = (struct numbers){.mask = size - 1};
    numbers->slots = attn__taken_room(taken, "the numbers of pages", size * sizeof *numbers->slots);
    if (numbers->slots != NULL)
        numbers->pages =
            attn__taken_room(taken, "the numbers of pages", (entries + 1) * sizeof *numbers->pages);
    return numbers->pages != NULL;
}

/* Entry b of a sequence's pages. */
static int64_t page_of(const struct attn_problem *problem, const struct attn_batch *batch,
                       const struct attn_batch_host *host, uint32_t sequence, uint32_t b)
{
    if (problem->addressing == ATTN_TABLE) {
        int32_t page;
        memcpy(&page, (const char *)host->table + (int64_t)sequence * batch->table_stride + (int64_t)b * 4,
               4);
        return page;
    }
    const uint64_t at = (uint64_t)host->csr_indptr[sequence] + b;
    return problem->index_dtype == ATTN_INT64 ? ((const int64_t *)host->csr_indices)[at]
                                              : ((const int32_t *)host->csr_indices)[at];
}

/* Writes the pages of all sequences under new numbers: rows of a table, or CSR indices without gaps. */
static bool renumber(struct attn__taken *taken, const struct attn_batch *batch,
                     const struct attn_batch_host *host, const struct attn__reach *reach,
                     struct numbers *numbers)
{
    const struct attn_problem *problem = &taken->run->plan->problem;
    const bool table = problem->addressing == ATTN_TABLE, wide = !table && problem->index_dtype == ATTN_INT64;
    const uint64_t width = table ? taken->call->table_width : 0;
    const uint64_t entries = table ? width * batch->seqs : reach->entries;
    int32_t *narrow = attn__taken_room(taken, "the table", entries * sizeof *narrow);
    int64_t *long_ones = attn__taken_room(taken, "the table", wide ? entries * sizeof *long_ones : 0);
    int32_t *indptr = attn__taken_room(taken, "the table", (batch->seqs + UINT64_C(1)) * sizeof *indptr);
    uint64_t at = 0;

    if (narrow == NULL || long_ones == NULL || indptr == NULL)
        return false;
    for (uint32_t i = 0; i < batch->seqs; i++) {
        const uint32_t keys = attn__reach_keys(host, i);
        const uint32_t pages = keys / problem->block + (keys % problem->block != 0);
        at = table ? i * width : at;
        for (uint64_t b = 0; b < (table ? width : pages); b++, at++) {
            narrow[at] = b < pages ? number_of(numbers, page_of(problem, batch, host, i, (uint32_t)b)) : -1;
            if (wide)
                long_ones[at] = narrow[at];
        }
        indptr[i + 1] = (int32_t)at;
    }
    if (!table)
        return attn__taken_array(taken, ATTN__PART_csr_indptr, indptr, 4, batch->seqs + UINT64_C(1)) &&
               attn__taken_array(taken, ATTN__PART_csr_indices, wide ? (void *)long_ones : (void *)narrow,
                                 wide ? 8 : 4, entries);
    if (!attn__taken_array(taken, ATTN__PART_table, narrow, 4, entries))
        return false;
    struct attn__part *part = &taken->call->parts[ATTN__PART_table];
    part->count[0] = batch->seqs;
    part->count[1] = width;
    attn__part_pack(part);
    return true;
}

/* The pages of a cache that the batch names; at least one, for a cache has pages. */
static bool take_pages(struct attn__taken *taken, const struct attn_batch *batch,
                       const struct attn_batch_host *host, const struct attn__reach *reach,
                       int64_t **out_pages)
{
    struct numbers numbers;

    taken->call->table_width = taken->run->plan->problem.addressing == ATTN_TABLE ? reach->pages : 0;
    if (!numbers_init(&numbers, taken, reach->entries) || !renumber(taken, batch, host, reach, &numbers))
        return false;
    if (numbers.count == 0)
        numbers.pages[numbers.count++] = -1;
    taken->call->kv_pages = numbers.count;
    taken->call->kv_block = taken->run->desc->block;
    *out_pages = numbers.pages;
    return true;
}

/* A dense cache: a page for each sequence, or one run of tokens. No more tokens than are read. */
static bool take_dense(struct attn__taken *taken, const struct attn_batch_host *host,
                       const struct attn__reach *reach, int64_t **out_pages)
{
    const struct attn_kv_desc *desc = taken->run->desc;
    struct attn__call *call = taken->call;

    if (reach->last_token > desc->block) {
        attn__fail(taken->err, ATTN_E_INVALID, 0, "block",
                   "it reads %u tokens of a page of the cache; accepted: up to its %u", reach->last_token,
                   desc->block);
        return false;
    }
    const bool chunks = desc->layout == ATTN_PAGED_X; /* where a token lies depends on how many there are */
    call->kv_block = chunks || reach->last_token == 0 ? desc->block : reach->last_token;
    call->kv_pages = host->kv_offsets != NULL ? 1 : call->seqs;
    int64_t *pages = attn__taken_room(taken, "the numbers of pages", call->kv_pages * sizeof *pages);
    for (uint64_t i = 0; pages != NULL && i < call->kv_pages; i++)
        pages[i] = i < desc->pages ? (int64_t)i : -1;
    *out_pages = pages;
    return pages != NULL;
}

int32_t attn__taken_batch(struct attn__taken *taken, struct attn__reach *reach, int64_t **out_pages)
{
    const struct attn_problem *problem = &taken->run->plan->problem;
    const bool cached = problem->kv_source != ATTN_KV_NEW, dense = problem->addressing == ATTN_DENSE;
    struct attn_batch batch = *taken->run->batch;
    struct attn_batch_host host;

    *out_pages = NULL;
    if (cached && !dense)
        batch.pages = taken->run->desc->pages;
    if (!view_all(taken, &batch, &host))
        return taken->err->status;
    const int32_t status = attn__reach_find(problem, &batch, &host, reach, taken->err);
    if (status != ATTN_OK)
        return status;
    if (!take_arrays(taken, &batch, &host) ||
        (cached && !(dense ? take_dense(taken, &host, reach, out_pages)
                           : take_pages(taken, &batch, &host, reach, out_pages))))
        return taken->err->status;
    return ATTN_OK;
}
