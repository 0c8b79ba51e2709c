/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Open addressing with FNV-1a; the table is at most half full. */
#include "strmap.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash(uint64_t state, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        state = (state ^ (uint8_t)text[i]) * 0x100000001b3u;
    return state;
}

static const uint64_t hash_start = 0xcbf29ce484222325u;

int strmap_init(struct strmap *map, size_t count)
{
    size_t slots = 16;
    while (slots / 2 < count)
        slots *= 2;
    map->slots = calloc(slots, sizeof *map->slots);
    map->mask = slots - 1;
    return map->slots ? 0 : -1;
}

void strmap_finish(struct strmap *map)
{
    free(map->slots);
    *map = (struct strmap){0};
}

void strmap_add(struct strmap *map, const char *text, size_t size, int32_t value)
{
    size_t at = hash(hash_start, text, size) & map->mask;
    for (; map->slots[at].text; at = (at + 1) & map->mask)
        if (map->slots[at].size == size && memcmp(map->slots[at].text, text, size) == 0)
            return;
    map->slots[at] = (struct strmap_slot){text, (uint32_t)size, value};
}

int32_t strmap_find(const struct strmap *map, const char *text, size_t size)
{
    size_t at = hash(hash_start, text, size) & map->mask;
    for (; map->slots[at].text; at = (at + 1) & map->mask)
        if (map->slots[at].size == size && memcmp(map->slots[at].text, text, size) == 0)
            return map->slots[at].value;
    return -1;
}

int32_t strmap_find_pair(const struct strmap *map, const char *left, size_t left_size, const char *right,
                         size_t right_size)
{
    uint64_t state = hash(hash(hash(hash_start, left, left_size), " ", 1), right, right_size);
    for (size_t at = state & map->mask; map->slots[at].text; at = (at + 1) & map->mask) {
        const struct strmap_slot *slot = &map->slots[at];
        if (slot->size == left_size + 1 + right_size && memcmp(slot->text, left, left_size) == 0 &&
            slot->text[left_size] == ' ' && memcmp(slot->text + left_size + 1, right, right_size) == 0)
            return slot->value;
    }
    return -1;
}
