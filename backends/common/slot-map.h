/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Slots of one sequence, checked apart from being written, so that a batch can be all or nothing. */
#ifndef ATTN_COMMON_SLOT_MAP_H
#define ATTN_COMMON_SLOT_MAP_H

#include "attn/input.h"
#include "visible.h"

/* What a checked sequence comes to. */
struct attn_slots {
    const void *blocks;
    int64_t wide;   /* blocks are of 64 bits */
    int64_t block;  /* tokens per page */
    int64_t masked; /* slots of -1 at the beginning */
    int64_t from;   /* positions of the others */
    int64_t to;
    struct attn_spread spread;
};

/* Checks a sequence. struct_size is not looked at. */
int32_t attn__slots_init(struct attn_slots *slots, const struct attn_slot_args *args, struct attn_error *err);

static inline uint64_t attn__slots_count(const struct attn_slots *slots)
{
    return (uint64_t)(slots->masked + (slots->to - slots->from));
}

/* Writes attn__slots_count slots. */
void attn__slots_write(const struct attn_slots *slots, int64_t *out);

#endif
