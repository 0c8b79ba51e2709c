/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What pair.c and pair-run.c share. */
#ifndef PAIR_MEMORY_H
#define PAIR_MEMORY_H

#include "pair.h"

/* Element type of new keys: a cache converts those of the queries' type. */
uint32_t pair_key_dtype(const struct pair *pair);
uint32_t pair_cache_block(const struct pair *pair);
uint32_t pair_cache_pages(const struct pair *pair);
struct attn_buffer pair_zeros(struct pair *pair, uint64_t size);
void pair_copy_in(struct pair *pair, const struct attn_buffer *to, const void *from, uint64_t size);
void pair_describe(const struct pair *pair, const struct pair_side *side, struct attn_kv_desc *desc);
void pair_drop_plan(struct pair *pair);

#endif
