/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A hash table from text to number whose texts stay where the caller keeps them. */
#ifndef ENGINE_STRMAP_H
#define ENGINE_STRMAP_H

#include <stddef.h>
#include <stdint.h>

struct strmap_slot {
    const char *text; /* NULL: free */
    uint32_t size;
    int32_t value;
};

struct strmap {
    struct strmap_slot *slots;
    size_t mask;
};

/* Room for "count" texts. Returns -1 without memory. */
int strmap_init(struct strmap *map, size_t count);
void strmap_finish(struct strmap *map);

/* Adds a text unless it is there already: the first value stays. */
void strmap_add(struct strmap *map, const char *text, size_t size, int32_t value);

/* -1 when it is not there. */
int32_t strmap_find(const struct strmap *map, const char *text, size_t size);

/* Finds "left right", joined by one space, without building it. */
int32_t strmap_find_pair(const struct strmap *map, const char *left, size_t left_size, const char *right,
                         size_t right_size);

#endif
