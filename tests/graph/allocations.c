/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The allocator, in front of the C library's: a symbol of the program stands before those of libraries. */
#include "allocations.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TAKEN 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define TAKEN 0
#endif
#endif
#ifndef TAKEN
#define TAKEN 1
#endif

static _Atomic uint64_t made;

bool allocations_counted(void)
{
    return TAKEN;
}

uint64_t allocations_made(void)
{
    return atomic_load(&made);
}

#if TAKEN
#define TAKE __attribute__((visibility("default")))

/* The C library's own. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

TAKE void *malloc(size_t size)
{
    atomic_fetch_add(&made, 1);
    return __libc_malloc(size);
}

TAKE void *calloc(size_t count, size_t size)
{
    atomic_fetch_add(&made, 1);
    return __libc_calloc(count, size);
}

TAKE void *realloc(void *old, size_t size)
{
    atomic_fetch_add(&made, 1);
    return __libc_realloc(old, size);
}

TAKE void *aligned_alloc(size_t alignment, size_t size)
{
    atomic_fetch_add(&made, 1);
    return __libc_memalign(alignment, size);
}

TAKE int posix_memalign(void **out, size_t alignment, size_t size)
{
    atomic_fetch_add(&made, 1);
    *out = __libc_memalign(alignment, size);
    return *out != NULL ? 0 : ENOMEM;
}
#endif
