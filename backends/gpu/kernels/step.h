/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * One step of decoding in place, in two kernels: one CTA grows the lengths and adds them up, then any number
 * of CTAs write rows and page numbers. backends/serving/advance.c does the same on the host.
 */
#ifndef ATTN_GPU_STEP_H
#define ATTN_GPU_STEP_H

#include "kv-place.h"

GPU_INLINE int64_t gpu_step_first_token(const struct gpu_step *a, uint32_t seq)
{
    return a->query_starts != 0 ? (int64_t)gpu_at<const int32_t>(a->query_starts, seq) : (int64_t)seq;
}

GPU_INLINE int64_t gpu_step_page(const struct gpu_step *a, uint32_t seq, int64_t index)
{
    const uint64_t row = a->table + (uint64_t)((int64_t)seq * a->table_stride);

    return a->index_size == 8 ? gpu_at<const int64_t>(row, index)
                              : (int64_t)gpu_at<const int32_t>(row, index);
}

/* Inclusive prefix sums over the threads, of tokens and pages at once. */
GPU_INLINE void gpu_step_scan(int64_t (*sums)[GPU_KV_THREADS], int64_t *tokens, int64_t *pages)
{
    const uint32_t i = gpu_thread();

    sums[0][i] = *tokens;
    sums[1][i] = *pages;
    gpu_barrier();
    for (uint32_t step = 1; step < GPU_KV_THREADS; step *= 2) {
        const int64_t more = i >= step ? sums[0][i - step] : 0,
                      more_pages = i >= step ? sums[1][i - step] : 0;
        gpu_barrier();
        sums[0][i] += more;
        sums[1][i] += more_pages;
        gpu_barrier();
    }
    *tokens = sums[0][i];
    *pages = sums[1][i];
}

/* Length and pages of a sequence, which is advanced first if the step has queries of it. */
GPU_INLINE int64_t gpu_step_grow(const struct gpu_step *a, uint32_t seq, int64_t *pages)
{
    int64_t len = gpu_at<const int32_t>(a->seq_lens, seq);

    *pages = 0;
    if (seq >= a->queries)
        return len;
    len += a->accepted != 0 ? gpu_at<const int32_t>(a->accepted, seq) : 1;
    *pages = len / a->block + (len % a->block != 0);
    gpu_at<int32_t>(a->seq_lens, seq) = (int32_t)len;
    if (a->context_lens != 0)
        gpu_at<int32_t>(a->context_lens, seq) =
            (int32_t)(len - (gpu_step_first_token(a, seq + 1) - gpu_step_first_token(a, seq)));
    if (a->csr_indptr != 0) {
        gpu_at<int32_t>(a->csr_pages, seq) = (int32_t)*pages;
        gpu_at<int32_t>(a->last_page_lens, seq) = (int32_t)(len % a->block != 0 ? len % a->block : a->block);
    }
    return len;
}

GPU_KERNEL(gpu_step_lengths, GPU_KV_THREADS, 1)(GPU_ARGUMENT(struct gpu_step, a))
{
    GPU_SHARED int64_t sums[2][GPU_KV_THREADS];
    int64_t all_tokens = 0, all_pages = 0; /* of the sequences before */

    if (gpu_thread() == 0 && a.seq_starts != 0)
        gpu_at<int32_t>(a.seq_starts, 0) = 0;
    if (gpu_thread() == 0 && a.csr_indptr != 0)
        gpu_at<int32_t>(a.csr_indptr, 0) = 0;
    for (uint64_t first = 0; first < a.seqs; first += GPU_KV_THREADS) {
        const uint64_t seq = first + gpu_thread();
        int64_t pages = 0, tokens = seq < a.seqs ? gpu_step_grow(&a, (uint32_t)seq, &pages) : 0;
        gpu_step_scan(sums, &tokens, &pages);
        if (seq < a.seqs && a.seq_starts != 0)
            gpu_at<int32_t>(a.seq_starts, seq + 1) = (int32_t)(all_tokens + tokens);
        if (seq < a.seqs && a.csr_indptr != 0)
            gpu_at<int32_t>(a.csr_indptr, seq + 1) = (int32_t)(all_pages + pages);
        all_tokens += sums[0][GPU_KV_THREADS - 1];
        all_pages += sums[1][GPU_KV_THREADS - 1];
        gpu_barrier();
    }
}

/* A row of a sequence, or of padding. Lengths have grown. */
GPU_INLINE void gpu_step_row(const struct gpu_step *a, uint32_t row, int64_t behind)
{
    int64_t position = 0, slot = -1;

    if ((int64_t)row >= behind && a->keep_padding != 0)
        return;
    if ((int64_t)row < behind) {
        const uint32_t seq = a->query_starts != 0 ? gpu_kv_find(a->query_starts, a->queries, row) : row;
        position =
            gpu_at<const int32_t>(a->seq_lens, seq) - (gpu_step_first_token(a, seq + 1) - (int64_t)row);
        const int64_t index = position / a->block;
        const int64_t tokens = gpu_step_first_token(a, seq + 1) - gpu_step_first_token(a, seq);
        const bool shown = seq >= a->windowed || position >= tokens - a->window;
        if (a->slots != 0 && shown && position >= 0 && index < (int64_t)a->table_width) {
            const int64_t page = gpu_step_page(a, seq, index);
            slot = page < 0 ? -1 : page * a->block + position % a->block;
        }
        if (a->tokens != 0 && a->sampled != 0 && a->tokens != a->sampled)
            gpu_at<int64_t>(a->tokens, row) = gpu_at<const int64_t>(a->sampled, row);
    } else if (a->tokens != 0) {
        gpu_at<int64_t>(a->tokens, row) = 0;
    }
    if (a->positions != 0)
        gpu_at<int64_t>(a->positions, row) = position;
    if (a->slots != 0)
        gpu_at<int64_t>(a->slots, row) = slot;
}

/* Entry `at` of csr_indices. */
GPU_INLINE void gpu_step_entry(const struct gpu_step *a, uint32_t at)
{
    const uint32_t seq = gpu_kv_find(a->csr_indptr, a->queries, at);
    const int64_t index = (int64_t)at - gpu_at<const int32_t>(a->csr_indptr, seq);

    if (index >= (int64_t)a->table_width)
        return;
    if (a->index_size == 8)
        gpu_at<int64_t>(a->csr_indices, at) = gpu_step_page(a, seq, index);
    else
        gpu_at<int32_t>(a->csr_indices, at) = (int32_t)gpu_step_page(a, seq, index);
}

GPU_KERNEL(gpu_step_rows, GPU_KV_THREADS, 2)(GPU_ARGUMENT(struct gpu_step, a))
{
    const uint64_t threads = (uint64_t)gpu_ctas() * GPU_KV_THREADS;
    const uint64_t own = (uint64_t)gpu_cta() * GPU_KV_THREADS + gpu_thread();
    const int64_t behind = gpu_step_first_token(&a, a.queries);
    uint64_t entries =
        a.csr_indptr != 0 && a.queries > 0 ? (uint64_t)gpu_at<const int32_t>(a.csr_indptr, a.queries) : 0;

    for (uint64_t row = own; row < a.num_tokens; row += threads)
        gpu_step_row(&a, (uint32_t)row, behind);
    entries = entries < a.csr_capacity ? entries : a.csr_capacity;
    for (uint64_t at = own; at < entries; at += threads)
        gpu_step_entry(&a, (uint32_t)at);
}

#endif
