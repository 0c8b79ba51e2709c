/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Slots of the new tokens of one sequence. */
#include "builder-add.h"

/* A block at a time. */
static inline int64_t *fill(int64_t *out, int64_t number, uint32_t from, uint32_t to, uint32_t block)
{
    const int64_t base = number * (int64_t)block;

    for (uint32_t i = from; i < to; i++)
        *out++ = number < 0 ? -1 : base + i;
    return out;
}

void attn__slots_list(int64_t *out, const int64_t *blocks, uint32_t context_len, uint32_t start,
                      uint32_t seq_len, uint32_t block)
{
    uint32_t at = context_len > start ? context_len : start;

    attn__slots_none(out, at - context_len);
    out += at - context_len;
    while (at < seq_len) {
        const uint32_t number = at / block, from = at % block;
        const uint32_t left = seq_len - at, to = block - from < left ? block : from + left;
        out = fill(out, blocks[number], from, to, block);
        at += to - from;
    }
}

void attn__slots_row(int64_t *out, const struct attn__table *table, uint32_t row, uint32_t context_len,
                     uint32_t start, uint32_t seq_len, uint32_t block)
{
    uint32_t at = context_len > start ? context_len : start;

    attn__slots_none(out, at - context_len);
    out += at - context_len;
    while (at < seq_len) {
        const uint32_t number = at / block, from = at % block;
        const uint32_t left = seq_len - at, to = block - from < left ? block : from + left;
        out = fill(out, attn__table_get(table, row, number), from, to, block);
        at += to - from;
    }
}
