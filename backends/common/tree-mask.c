/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Masks and positions of trees of drafted tokens. */
#include "attn/input.h"

#include "fail.h"

static int32_t check(const int32_t *parents, uint32_t count, int64_t context_len, const void *mask,
                     uint64_t row_stride, struct attn_error *err)
{
    if ((parents == NULL || mask == NULL) && count > 0)
        return attn__fail(err, ATTN_E_INVALID, 0, parents == NULL ? "parents" : "mask",
                          "%s is NULL, but count is %u", parents == NULL ? "parents" : "mask", count);
    if (count > INT32_MAX)
        return attn__fail(err, ATTN_E_INVALID, 0, "count", "count is %u; at most %d is accepted", count,
                          INT32_MAX);
    if (context_len < 0 || context_len > INT64_MAX - count)
        return attn__fail(err, ATTN_E_INVALID, 0, "context_len",
                          "context_len is %lld; from 0 to %lld is accepted", (long long)context_len,
                          (long long)(INT64_MAX - count));
    if (row_stride < (count + UINT64_C(7)) / 8)
        return attn__fail(
            err, ATTN_E_SIZE, 0, "row_stride", "row_stride is %llu bytes; %u tokens take at least %llu",
            (unsigned long long)row_stride, count, (unsigned long long)((count + UINT64_C(7)) / 8));
    for (uint32_t i = 0; i < count; i++)
        if (parents[i] < -1 || parents[i] >= (int64_t)i)
            return attn__fail(err, ATTN_E_INVALID, 0, "parents",
                              "parents[%u] is %d; a token before it, 0 to %lld, or -1 is accepted", i,
                              parents[i], (long long)i - 1);
    return ATTN_OK;
}

int32_t attn_tree_mask(const int32_t *parents, uint32_t count, int64_t context_len, void *mask,
                       uint64_t row_stride, int64_t *positions, struct attn_error *err)
{
    const int32_t status = check(parents, count, context_len, mask, row_stride, err);
    const size_t bytes = (count + (size_t)7) / 8;

    for (uint32_t i = 0; i < count && status == ATTN_OK; i++) {
        unsigned char *row = (unsigned char *)mask + i * row_stride;
        /* What the parent sees, which is a row before this one, and the token itself. */
        if (parents[i] < 0)
            memset(row, 0, bytes);
        else
            memcpy(row, (unsigned char *)mask + (uint64_t)parents[i] * row_stride, bytes);
        row[i / 8] = (unsigned char)(row[i / 8] | 1u << i % 8);
        if (positions != NULL)
            positions[i] = parents[i] < 0 ? context_len : positions[parents[i]] + 1;
    }
    return status;
}
