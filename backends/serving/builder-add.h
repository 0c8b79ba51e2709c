/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files share that add a sequence to a step. */
#ifndef ATTN_SERVING_BUILDER_ADD_H
#define ATTN_SERVING_BUILDER_ADD_H

#include "builder.h"
#include "slot-map.h"

#define ATTN__GROUPS_MAX 64u
/* Times 2^20, the largest number of tokens of a block, it fits a slot of 64 bits. */
#define ATTN__BLOCK_NUMBER_MAX (INT64_MAX >> 20)

/* What adding a sequence will write in one cache group. */
struct attn__wanted {
    uint32_t seq_len;   /* as kernels see it */
    uint32_t start;     /* positions before it get no slot */
    uint32_t first;     /* first position that gets one */
    uint32_t page;      /* index of that position's block in the list */
    uint32_t slots;     /* entries of the slot mapping */
    uint32_t row_start; /* the row shows blocks [row_start, row_start + row_count) of the list */
    uint32_t row_count;
    uint32_t pages;
    uint32_t shown; /* enum attn__shown */
    bool profile;   /* the sequence has no block table */
};

/* Checks and adds what builder-extras.c handles: encoder length, blocks of cross-attention, index maps. */
int32_t attn__add_check_extras(const struct attn_builder_impl *builder,
                               const struct attn_builder_add_args *args, uint32_t row,
                               struct attn_error *err);
void attn__add_extras(struct attn_builder_impl *builder, const struct attn_builder_add_args *args,
                      uint32_t row);

/* The fast path for a usual decode; false, with nothing done, if the sequence needs the general one. */
bool attn__add_decode(struct attn_builder_impl *builder, const struct attn_builder_add_args *args);

#endif
