/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Slots of one sequence. Checking and writing are separate, so that a batch is written as a whole or not at
 * all. */
#ifndef ATTN_COMMON_SLOT_MAP_H
#define ATTN_COMMON_SLOT_MAP_H

#include <stdbool.h>

#include "attn/input.h"
#include "visible.h"

/* A sequence that has been checked. */
struct attn_slots {
    const void *blocks;
    int64_t wide;   /* not 0: blocks are int64_t, else int32_t */
    int64_t block;  /* tokens per page */
    int64_t masked; /* slots of -1 at the beginning */
    int64_t from;   /* the other slots are of positions [from, to) */
    int64_t to;
    struct attn_cp_shard shard;
};

/* The slot of one token of a page; -1 in an invalid block. */
static inline int64_t attn__slot_of(int64_t page, int64_t token, int64_t block)
{
    return page < 0 ? -1 : page * block + token;
}

/* Writes `count` slots of -1. */
static inline void attn__slots_none(int64_t *restrict out, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = -1;
}

/* Slots of positions [context_len, seq_len), -1 before `start`, for a list that the caller has checked. */
static inline struct attn_slots attn__slots_unchecked(const void *blocks, bool wide, uint32_t block,
                                                      uint32_t context_len, uint32_t start, uint32_t seq_len)
{
    const uint32_t from = context_len > start ? context_len : start;

    return (struct attn_slots){.blocks = blocks,
                               .wide = wide,
                               .block = block,
                               .masked = from - context_len,
                               .from = from,
                               .to = seq_len > from ? seq_len : from};
}

/* Checks a sequence. struct_size is ignored. */
int32_t attn__slots_init(struct attn_slots *slots, const struct attn_slot_args *args, struct attn_error *err);

static inline uint64_t attn__slots_count(const struct attn_slots *slots)
{
    return (uint64_t)(slots->masked + (slots->to - slots->from));
}

/* Writes attn__slots_count slots. */
void attn__slots_write(const struct attn_slots *slots, int64_t *out);

#endif
