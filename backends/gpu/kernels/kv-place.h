/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finds the place of a token in a cache: its sequence, its page, and its index in the page. */
#ifndef ATTN_GPU_KV_PLACE_H
#define ATTN_GPU_KV_PLACE_H

#include "address.h"
#include "kv-args.h"
#include "number.h"
#include "quotient.h"

/* Element `index` of type T at an address of global memory. */
template <class T, class Index> GPU_INLINE T &gpu_at(uint64_t address, Index index)
{
    return GPU_GLOBAL(T, address)[index];
}

GPU_INLINE uint32_t gpu_kv_warp(void)
{
    return gpu_thread() / GPU_WARP;
}

/* The last of `count` sequences that begins at or before a row; there is one. */
GPU_INLINE uint32_t gpu_kv_find(uint64_t offsets, uint32_t count, uint32_t row)
{
    uint32_t low = 0, high = count;

    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if ((uint32_t)gpu_at<const int32_t>(offsets, middle) <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Whether a row belongs to a sequence of the batch. */
GPU_INLINE bool gpu_kv_has_row(uint64_t offsets, uint32_t seqs, uint32_t row)
{
    return seqs > 0 && (int64_t)row >= gpu_at<const int32_t>(offsets, 0) &&
           (int64_t)row < gpu_at<const int32_t>(offsets, seqs);
}

/* Page and token of a key; false in an invalid block. */
GPU_INLINE bool gpu_kv_locate(const struct gpu_batch *batch, uint32_t seq, uint32_t key, int64_t *page,
                              int64_t *token)
{
    if (batch->addressing == ATTN_DENSE) {
        *page = batch->kv_starts != 0 ? 0 : (int64_t)seq;
        *token = (batch->kv_starts != 0 ? gpu_at<const int32_t>(batch->kv_starts, seq) : 0) + (int64_t)key;
        return true;
    }
    const uint32_t index = batch->block_shift < 32 ? key >> batch->block_shift : key / batch->block;
    *token = key - index * batch->block;
    if (batch->addressing == ATTN_TABLE) {
        *page = gpu_at<const int32_t>(batch->table + (uint64_t)((int64_t)seq * batch->table_stride), index);
    } else {
        const int64_t at = (int64_t)gpu_at<const int32_t>(batch->indptr, seq) + index;
        *page = batch->index_dtype == ATTN_INT64 ? gpu_at<const int64_t>(batch->indices, at)
                                                 : (int64_t)gpu_at<const int32_t>(batch->indices, at);
    }
    return *page >= 0;
}

/* Page and token of a query token's own key; false if it has none. */
GPU_INLINE bool gpu_kv_locate_row(const struct gpu_batch *batch, uint32_t row, int64_t *page, int64_t *token)
{
    if (!gpu_kv_has_row(batch->q_offsets, batch->seqs, row))
        return false;
    const uint32_t seq = gpu_kv_find(batch->q_offsets, batch->seqs, row);
    const int32_t behind = gpu_at<const int32_t>(batch->q_offsets, seq + 1) - (int32_t)row;
    const int32_t key = gpu_at<const int32_t>(batch->kv_lens, seq) - behind;
    return key >= 0 && gpu_kv_locate(batch, seq, (uint32_t)key, page, token);
}

#endif
