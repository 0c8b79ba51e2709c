/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The allocator, in front of the C library's: a symbol of the program stands before those of libraries. */
#include "failing.h"

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

static _Atomic int64_t blocks;
static _Atomic uint64_t limit;
static _Thread_local bool armed, failed;
static _Thread_local uint32_t left, asked;

bool failing_works(void)
{
    return TAKEN;
}

void failing_begin(uint32_t allocations)
{
    failed = false;
    asked = 0;
    left = allocations;
    armed = true;
}

bool failing_end(uint32_t *out_count)
{
    armed = false;
    if (out_count != NULL)
        *out_count = asked;
    return failed;
}

void failing_above(uint64_t bytes)
{
    atomic_store(&limit, bytes);
}

int64_t failing_blocks(void)
{
    return atomic_load(&blocks);
}

#if TAKEN
#define TAKE __attribute__((visibility("default")))

/* The C library's own. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

static void *count(void *block)
{
    if (block != NULL)
        atomic_fetch_add(&blocks, 1);
    return block;
}

static bool fails(size_t size)
{
    const uint64_t most = atomic_load(&limit);
    bool now = most > 0 && size > most;
    if (!now && armed) {
        asked++;
        now = !failed && left-- == 0;
        failed = failed || now;
    }
    if (now) /* the C library relies on it where a thread is made */
        errno = ENOMEM;
    return now;
}

TAKE void *malloc(size_t size)
{
    return fails(size) ? NULL : count(__libc_malloc(size));
}

TAKE void *calloc(size_t members, size_t size)
{
    return fails(members * size) ? NULL : count(__libc_calloc(members, size));
}

TAKE void *realloc(void *old, size_t size)
{
    void *block = fails(size) ? NULL : __libc_realloc(old, size);
    return old == NULL ? count(block) : block;
}

TAKE void *aligned_alloc(size_t alignment, size_t size)
{
    return fails(size) ? NULL : count(__libc_memalign(alignment, size));
}

TAKE int posix_memalign(void **out, size_t alignment, size_t size)
{
    *out = fails(size) ? NULL : count(__libc_memalign(alignment, size));
    return *out != NULL ? 0 : ENOMEM;
}

TAKE void free(void *block)
{
    if (block != NULL)
        atomic_fetch_sub(&blocks, 1);
    __libc_free(block);
}
#endif
