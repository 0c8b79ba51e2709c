/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Counts allocations: the linker's --wrap leads calls of the whole program here. */
#include "fixture.h"

unsigned long fixture_allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    fixture_allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    fixture_allocations++;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    fixture_allocations++;
    return __real_realloc(memory, size);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size)
{
    fixture_allocations++;
    return __real_posix_memalign(out, alignment, size);
}
