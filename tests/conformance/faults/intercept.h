/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Takes the place of the allocator, of pthread_create and of mmap, so that they can be made to fail. Under a
 * sanitizer, which does the same, nothing is taken.
 */
#ifndef INTERCEPT_H
#define INTERCEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False where the allocator cannot be taken; then nothing below has an effect. */
bool intercept_works(void);

/* Tells whose calls the second count of struct intercept is about: the object that holds the address. */
void intercept_watch(const void *address);

enum { INTERCEPT_NEVER = 0 };

/* What happened since intercept_begin. */
struct intercept {
    uint32_t made;    /* allocations, by whomever but the dynamic linker and this program */
    uint32_t watched; /* those made by the watched object itself */
    uint32_t threads; /* calls of pthread_create */
    bool failed;      /* one of them was refused */
};

/* From now on counts; the allocation number `nth`, and thread number `thread`, fails. Both count from 1. */
void intercept_begin(uint32_t nth, uint32_t thread);
/* Nothing fails any more; what was allocated since then and is freed later is still known. */
struct intercept intercept_end(void);
/* Allocations since intercept_begin that were not freed until now. */
uint32_t intercept_left(void);

#endif
