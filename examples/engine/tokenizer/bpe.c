/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Merges with a heap of candidate pairs, so that long pieces cost n log n. */
#include "bpe.h"

#include <stdbool.h>
#include <stdlib.h>

void bpe_finish(struct bpe *bpe)
{
    free(bpe->symbols);
    free(bpe->heap);
    *bpe = (struct bpe){0};
}

/* n symbols have n - 1 pairs, and each merge adds at most two more. */
static int reserve(struct bpe *bpe, size_t size)
{
    if (size <= bpe->room)
        return 0;
    struct bpe_symbol *symbols = realloc(bpe->symbols, size * sizeof *symbols);
    if (symbols)
        bpe->symbols = symbols;
    struct bpe_pair *heap = realloc(bpe->heap, 3 * size * sizeof *heap);
    if (heap)
        bpe->heap = heap;
    if (!symbols || !heap)
        return -1;
    bpe->room = size;
    return 0;
}

static bool before(const struct bpe_pair *a, const struct bpe_pair *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void push(struct bpe *bpe, struct bpe_pair pair)
{
    size_t at = bpe->heap_count++;
    while (at && before(&pair, &bpe->heap[(at - 1) / 2])) {
        bpe->heap[at] = bpe->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    bpe->heap[at] = pair;
}

static struct bpe_pair pop(struct bpe *bpe)
{
    struct bpe_pair top = bpe->heap[0];
    struct bpe_pair last = bpe->heap[--bpe->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= bpe->heap_count)
            break;
        if (child + 1 < bpe->heap_count && before(&bpe->heap[child + 1], &bpe->heap[child]))
            child++;
        if (!before(&bpe->heap[child], &last))
            break;
        bpe->heap[at] = bpe->heap[child];
        at = child;
    }
    bpe->heap[at] = last;
    return top;
}

static void consider(struct bpe *bpe, const struct strmap *ranks, const char *text, int32_t left,
                     int32_t right)
{
    if (left < 0 || right < 0)
        return;
    const struct bpe_symbol *a = &bpe->symbols[left];
    const struct bpe_symbol *b = &bpe->symbols[right];
    int32_t rank = strmap_find_pair(ranks, text + a->start, a->size, text + b->start, b->size);
    if (rank >= 0)
        push(bpe, (struct bpe_pair){rank, left, right, a->size + b->size});
}

static int32_t cut_characters(struct bpe *bpe, const char *text, size_t size)
{
    int32_t count = 0;
    for (size_t at = 0; at < size; count++) {
        size_t end = at + 1;
        while (end < size && ((unsigned char)text[end] & 0xc0) == 0x80)
            end++;
        bpe->symbols[count] = (struct bpe_symbol){(uint32_t)at, (uint32_t)(end - at), count - 1, count + 1};
        at = end;
    }
    bpe->symbols[count - 1].next = -1;
    return count;
}

int bpe_merge(struct bpe *bpe, const struct strmap *ranks, const char *text, size_t size)
{
    if (size == 0 || size > INT32_MAX / 4 || reserve(bpe, size) < 0)
        return -1;
    bpe->heap_count = 0;
    int32_t count = cut_characters(bpe, text, size);
    for (int32_t i = 0; i + 1 < count; i++)
        consider(bpe, ranks, text, i, i + 1);
    while (bpe->heap_count) {
        struct bpe_pair pair = pop(bpe);
        struct bpe_symbol *left = &bpe->symbols[pair.left];
        struct bpe_symbol *right = &bpe->symbols[pair.right];
        if (left->size == 0 || right->size == 0 || left->next != pair.right ||
            left->size + right->size != pair.size)
            continue;
        left->size += right->size;
        left->next = right->next;
        right->size = 0;
        if (left->next >= 0)
            bpe->symbols[left->next].previous = pair.left;
        consider(bpe, ranks, text, left->previous, pair.left);
        consider(bpe, ranks, text, pair.left, left->next);
    }
    return 0;
}
