/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files share that add a sequence. */
#ifndef ATTN_COMMON_BUILDER_ADD_H
#define ATTN_COMMON_BUILDER_ADD_H

#include "builder.h"
#include "slot-map.h"

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

/* Adds a sequence that is as plain as most; false, with nothing done, if it is not. */
bool attn__add_decode(struct attn_builder_impl *builder, const struct attn_builder_add_args *args);

#endif
