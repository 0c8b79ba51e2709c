/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Blocks of a cache: reference counts, and reuse of full blocks by what they hold.
 *
 * What a block holds depends on all tokens up to its last. A chain is a number for that: equal chains, equal
 * tokens from the beginning. Chain 0 is the empty text. A block that nobody holds stays findable until it is
 * handed out again; those that hold nothing go first, then the ones that were dropped longest ago.
 */
#ifndef SCHEDULER_BLOCKS_H
#define SCHEDULER_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "failure.h"

struct block_entry;

struct blocks {
    uint32_t count;
    uint32_t tokens; /* of a block */
    uint32_t unheld; /* blocks that can be handed out */
    uint64_t chains; /* the newest chain */
    struct block_entry *entries;
    int32_t *contents; /* [count, tokens], where blocks can be found */
    int32_t *buckets;  /* first block of each, -1 = none; NULL without reuse */
    uint32_t mask;
};

/* `tokens` is 0 for blocks that are never found again. */
int blocks_init(struct blocks *b, uint32_t count, uint32_t tokens, struct failure *err);
void blocks_finish(struct blocks *b);

/* A block that nobody held, held once; -1 if there is none. */
int32_t blocks_take(struct blocks *b);
void blocks_hold(struct blocks *b, int32_t block);
void blocks_drop(struct blocks *b, int32_t block);
uint32_t blocks_references(const struct blocks *b, int32_t block);

/* The block that continues a chain with these tokens, held once more; -1 if there is none. */
int32_t blocks_find(struct blocks *b, uint64_t chain, const int32_t *tokens, uint64_t *out_chain);
/*
 * Makes a full block findable, unless another one with the same content is. Returns the chain that ends with
 * these tokens.
 */
uint64_t blocks_publish(struct blocks *b, int32_t block, uint64_t chain, const int32_t *tokens);

#endif
