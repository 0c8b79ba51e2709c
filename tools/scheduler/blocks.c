/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks that nobody holds form a ring in the order in which they are handed out; findable ones a hash table.
 */
#include "blocks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct block_entry {
    uint32_t references;
    int32_t before, after; /* in the ring, while nobody holds it */
    int32_t next;          /* in the bucket, while it can be found */
    uint32_t bucket;
    uint64_t parent; /* chain that it continues */
    uint64_t chain;  /* 0 = cannot be found */
};

/* The ring begins and ends at entry `count`. */
static void ring_insert(struct blocks *b, int32_t block, int32_t after)
{
    struct block_entry *e = b->entries;
    e[block].before = after;
    e[block].after = e[after].after;
    e[e[after].after].before = block;
    e[after].after = block;
    b->unheld++;
}

static void ring_remove(struct blocks *b, int32_t block)
{
    struct block_entry *e = b->entries;
    e[e[block].before].after = e[block].after;
    e[e[block].after].before = e[block].before;
    b->unheld--;
}

int blocks_init(struct blocks *b, uint32_t count, uint32_t tokens, struct failure *err)
{
    uint32_t buckets = 1;
    *b = (struct blocks){.count = count, .tokens = tokens};
    if (count >= INT32_MAX / 2)
        return failure_set(err, "%" PRIu32 " blocks are too many; fewer than %d are accepted", count,
                           INT32_MAX / 2);
    /* Many, so that few blocks lie behind another one. */
    while (buckets / 4 < count && buckets < UINT32_C(1) << 31)
        buckets *= 2;
    b->mask = buckets - 1;
    b->entries = calloc((size_t)count + 1, sizeof *b->entries);
    if (tokens) {
        b->contents = malloc((size_t)count * tokens * sizeof *b->contents);
        b->buckets = malloc((size_t)buckets * sizeof *b->buckets);
    }
    if (!b->entries || (tokens && (!b->contents || !b->buckets)))
        return failure_set(err, "no memory for %" PRIu32 " blocks of %" PRIu32 " tokens", count, tokens);
    if (tokens) { /* touched now, so that no step waits for pages */
        memset(b->contents, 0, (size_t)count * tokens * sizeof *b->contents);
        memset(b->buckets, 0xff, (size_t)buckets * sizeof *b->buckets);
    }
    b->entries[count].before = b->entries[count].after = (int32_t)count;
    for (uint32_t i = 0; i < count; i++)
        ring_insert(b, (int32_t)i, b->entries[count].before);
    return 0;
}

void blocks_finish(struct blocks *b)
{
    free(b->entries);
    free(b->contents);
    free(b->buckets);
    *b = (struct blocks){0};
}

/* Two lanes, so that a block's tokens are not one chain of multiplications. */
static uint32_t bucket_of(const struct blocks *b, uint64_t parent, const int32_t *tokens)
{
    uint64_t lane[2] = {parent * UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0x2545f4914f6cdd1d)};
    uint32_t i = 0;
    for (; i + 4 <= b->tokens; i += 4) {
        for (uint32_t l = 0; l < 2; l++) {
            const uint64_t pair =
                (uint64_t)(uint32_t)tokens[i + 2 * l] << 32 | (uint32_t)tokens[i + 2 * l + 1];
            lane[l] = (lane[l] ^ (lane[l] >> 29) ^ pair) * UINT64_C(0xbf58476d1ce4e5b9);
        }
    }
    for (; i < b->tokens; i++)
        lane[0] = (lane[0] ^ (lane[0] >> 29) ^ (uint32_t)tokens[i]) * UINT64_C(0xbf58476d1ce4e5b9);
    uint64_t hash = (lane[0] ^ (lane[1] >> 31) ^ (lane[1] << 7)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(hash ^ (hash >> 32)) & b->mask;
}

static int32_t *content(const struct blocks *b, int32_t block)
{
    return b->contents + (size_t)block * b->tokens;
}

/* The block is not found any more. */
static void forget(struct blocks *b, int32_t block)
{
    struct block_entry *entry = &b->entries[block];
    if (entry->chain == 0)
        return;
    int32_t *at = &b->buckets[entry->bucket];
    while (*at != block)
        at = &b->entries[*at].next;
    *at = entry->next;
    entry->chain = 0;
}

int32_t blocks_take(struct blocks *b)
{
    int32_t block = b->entries[b->count].after;
    if (block == (int32_t)b->count)
        return -1;
    ring_remove(b, block);
    /* What the next calls will read: long unused, it lies far away. */
    const struct block_entry *next = &b->entries[b->entries[b->count].after];
    __builtin_prefetch(&b->entries[next->after]);
    if (b->buckets != NULL)
        __builtin_prefetch(&b->buckets[next->bucket]);
    forget(b, block);
    b->entries[block].references = 1;
    return block;
}

void blocks_hold(struct blocks *b, int32_t block)
{
    if (b->entries[block].references++ == 0)
        ring_remove(b, block);
}

void blocks_drop(struct blocks *b, int32_t block)
{
    struct block_entry *entry = &b->entries[block];
    if (--entry->references > 0)
        return;
    /* What can be found is handed out last. */
    ring_insert(b, block, entry->chain ? b->entries[b->count].before : (int32_t)b->count);
}

uint32_t blocks_references(const struct blocks *b, int32_t block)
{
    return b->entries[block].references;
}

static int32_t look_up(const struct blocks *b, uint32_t bucket, uint64_t chain, const int32_t *tokens)
{
    int32_t block = b->buckets[bucket];
    while (block >= 0 && (b->entries[block].parent != chain ||
                          memcmp(content(b, block), tokens, b->tokens * sizeof *tokens) != 0))
        block = b->entries[block].next;
    return block;
}

int32_t blocks_find(struct blocks *b, uint64_t chain, const int32_t *tokens, uint64_t *out_chain)
{
    int32_t block = look_up(b, bucket_of(b, chain, tokens), chain, tokens);
    if (block >= 0) {
        *out_chain = b->entries[block].chain;
        blocks_hold(b, block);
    }
    return block;
}

uint64_t blocks_publish(struct blocks *b, int32_t block, uint64_t chain, const int32_t *tokens)
{
    struct block_entry *entry = &b->entries[block];
    const uint32_t bucket = bucket_of(b, chain, tokens);
    const int32_t other = look_up(b, bucket, chain, tokens);
    if (other >= 0)
        return b->entries[other].chain;
    memcpy(content(b, block), tokens, b->tokens * sizeof *tokens);
    entry->parent = chain;
    entry->chain = ++b->chains;
    entry->bucket = bucket;
    entry->next = b->buckets[bucket];
    b->buckets[bucket] = block;
    return entry->chain;
}
