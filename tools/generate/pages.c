/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A stack of free pages and a block table per sequence. */
#include "pages.h"

#include "rng.h"

#include <inttypes.h>
#include <stdlib.h>

static void shuffle(int32_t *list, uint32_t count, uint64_t seed)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = (uint32_t)(rng_next(&seed) % (i + 1));
        list[i] = list[j];
        list[j] = (int32_t)i;
    }
}

int pages_init(struct pages *p, uint32_t count, uint32_t block, uint32_t seqs, uint32_t width, uint64_t seed,
               struct failure *err)
{
    size_t cells = (size_t)seqs * width;
    *p = (struct pages){.count = count, .block = block, .seqs = seqs, .width = width};
    p->table = calloc(cells, sizeof *p->table);
    p->held = calloc(seqs, sizeof *p->held);
    p->free_pages = calloc(count, sizeof *p->free_pages);
    if (!p->table || !p->held || !p->free_pages) {
        pages_finish(p);
        return failure_set(err,
                           "no memory for block tables of %" PRIu32 " sequences and %" PRIu32 " pages each",
                           seqs, width);
    }
    for (size_t i = 0; i < cells; i++)
        p->table[i] = -1;
    shuffle(p->free_pages, count, seed);
    p->free_count = count;
    return 0;
}

void pages_finish(struct pages *p)
{
    free(p->table);
    free(p->held);
    free(p->free_pages);
    *p = (struct pages){0};
}

int pages_grow(struct pages *p, uint32_t seq, uint32_t tokens, struct failure *err)
{
    uint32_t wanted = tokens / p->block + (tokens % p->block != 0);
    if (seq >= p->seqs || wanted > p->width)
        return failure_set(err,
                           "sequence %" PRIu32 " wants %" PRIu32
                           " pages; accepted are sequences below %" PRIu32 " and up to %" PRIu32 " pages",
                           seq, wanted, p->seqs, p->width);
    if (wanted > p->held[seq] && wanted - p->held[seq] > p->free_count)
        return failure_set(
            err, "sequence %" PRIu32 " wants %" PRIu32 " more pages; %" PRIu32 " of %" PRIu32 " are free",
            seq, wanted - p->held[seq], p->free_count, p->count);
    while (p->held[seq] < wanted)
        p->table[(size_t)seq * p->width + p->held[seq]++] = p->free_pages[--p->free_count];
    return 0;
}

void pages_release(struct pages *p, uint32_t seq)
{
    if (seq >= p->seqs)
        return;
    int32_t *row = p->table + (size_t)seq * p->width;
    while (p->held[seq]) {
        p->free_pages[p->free_count++] = row[--p->held[seq]];
        row[p->held[seq]] = -1;
    }
}

int64_t pages_slot(const struct pages *p, uint32_t seq, uint32_t token)
{
    return (int64_t)p->table[(size_t)seq * p->width + token / p->block] * p->block + token % p->block;
}
