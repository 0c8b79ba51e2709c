/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Byte-pair merging of one piece of text. */
#ifndef ENGINE_BPE_H
#define ENGINE_BPE_H

#include "strmap.h"

/* A run of the piece that became one symbol. */
struct bpe_symbol {
    uint32_t start;
    uint32_t size;
    int32_t previous;
    int32_t next;
};

struct bpe_pair {
    int32_t rank;
    int32_t left;
    int32_t right;
    uint32_t size; /* of both: a pair whose symbols have grown since is stale */
};

/* Memory that is kept from piece to piece. */
struct bpe {
    struct bpe_symbol *symbols;
    struct bpe_pair *heap;
    size_t room;
    size_t heap_count;
};

void bpe_finish(struct bpe *bpe);

/*
 * Merges the characters of a UTF-8 text by rank. Afterwards the symbols are chained by next from index 0, -1
 * ends. Returns -1 without memory.
 */
int bpe_merge(struct bpe *bpe, const struct strmap *ranks, const char *text, size_t size);

#endif
