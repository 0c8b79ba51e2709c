/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Hands out the pages of a cache to sequences, one at a time, and takes them back. */
#ifndef GENERATE_PAGES_H
#define GENERATE_PAGES_H

#include <stdint.h>

#include "failure.h"

struct pages {
    uint32_t count;
    uint32_t block; /* tokens of a page */
    uint32_t seqs;
    uint32_t width;      /* most pages of a sequence */
    int32_t *table;      /* [seqs, width]; what a sequence does not hold is -1 */
    uint32_t *held;      /* pages of each sequence */
    int32_t *free_pages; /* the last one goes first */
    uint32_t free_count;
};

/* All pages are free, in an order that the seed decides: neighbours in a table are not so in memory. */
int pages_init(struct pages *p, uint32_t count, uint32_t block, uint32_t seqs, uint32_t width, uint64_t seed,
               struct failure *err);
void pages_finish(struct pages *p);

/* Gives a sequence the pages that it lacks for so many tokens. */
int pages_grow(struct pages *p, uint32_t seq, uint32_t tokens, struct failure *err);

/* Takes back all pages of a sequence; they are the next to be handed out. */
void pages_release(struct pages *p, uint32_t seq);

/* Page times block plus place in the page, of a token of a sequence that has grown as far. */
int64_t pages_slot(const struct pages *p, uint32_t seq, uint32_t token);

#endif
