/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files share that add a sequence. */
#ifndef ATTN_COMMON_BUILDER_ADD_H
#define ATTN_COMMON_BUILDER_ADD_H

#include "builder.h"

#define ATTN__GROUPS_MOST 64u
/* Times the most tokens of a block, 2^20, it is a slot of 64 bits. */
#define ATTN__BLOCK_NUMBER_MAX (INT64_MAX >> 20)

/* What a sequence will have in one cache group. */
struct attn__wanted {
    uint32_t seq_len;   /* that kernels see */
    uint32_t start;     /* positions before it get no slot */
    uint32_t first;     /* the first that gets one, */
    uint32_t page;      /* and the block of the list that it is in */
    uint32_t slots;     /* entries of the slot mapping */
    uint32_t row_start; /* part of the list that the row shows */
    uint32_t row_count;
    uint32_t pages;
    uint32_t shown; /* enum attn__shown */
    bool profile;   /* no table */
};

/* The encoder's length, cross-attention's blocks, and the index maps. */
int32_t attn__add_check_extras(const struct attn_builder_impl *builder,
                               const struct attn_builder_add_args *args, uint32_t row,
                               struct attn_error *err);
void attn__add_extras(struct attn_builder_impl *builder, const struct attn_builder_add_args *args,
                      uint32_t row);

/* First position with a slot: max(0, query_len - window) for prompts; window -1 = none. */
static inline uint32_t attn__slots_start(bool prompt, uint32_t query_len, int64_t window)
{
    return prompt && window >= 0 && window < (int64_t)query_len ? query_len - (uint32_t)window : 0;
}

/* `count` times no slot. */
static inline void attn__slots_none(int64_t *out, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = -1;
}

/* The slot of one token of a block; -1 in a hole. */
static inline int64_t attn__slots_one(int64_t number, uint32_t token, uint32_t block)
{
    return number < 0 ? -1 : number * (int64_t)block + token;
}

/* Slots of positions [context_len, seq_len), -1 before `start` and in holes. The list is long enough. */
void attn__slots_list(int64_t *out, const int64_t *blocks, uint32_t context_len, uint32_t start,
                      uint32_t seq_len, uint32_t block);
/* The same from the row of a table. */
void attn__slots_row(int64_t *out, const struct attn__table *table, uint32_t row, uint32_t context_len,
                     uint32_t start, uint32_t seq_len, uint32_t block);

#endif
