/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Inaccessible memory for the probe of a damaged file. Wrong addresses and indices in a file make the dynamic
 * linker access memory beside the file or beside its own tables; whether that crashes depends on what a
 * process has mapped there. With these fences the probe crashes wherever a host might.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin/probe/worker.h"

#define AREA_SIZE  ((size_t)64 << 30)
#define TABLE_MOST ((size_t)1 << 16) /* a larger block is not fenced */
#define SLOT_SIZE  ((size_t)1 << 21) /* of an index of 15 bits, entries of 24 bytes */

enum { SLOTS = 128, AREA_FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };

static char *slots;
static bool fenced;

static void surround_file(size_t hole)
{
    char *start = mmap(NULL, 2 * AREA_SIZE + hole, PROT_NONE, AREA_FLAGS, -1, 0), *gap = start;
    if (start == MAP_FAILED || hole == 0)
        return;
    /* Fills the gaps between libraries, in which the kernel would otherwise map the file. */
    while ((gap = mmap(NULL, hole, PROT_NONE, AREA_FLAGS, -1, 0)) != MAP_FAILED && gap > start)
        continue;
    if (gap != MAP_FAILED)
        (void)munmap(gap, hole);
    (void)munmap(start + AREA_SIZE, hole);
}

void fence_begin(uint64_t file_size)
{
    if (FENCE_IS_LEFT_TO_SANITIZER)
        return;
    char *area = mmap(NULL, SLOTS * SLOT_SIZE, PROT_NONE, AREA_FLAGS, -1, 0);
    slots = area != MAP_FAILED ? area : NULL;
    surround_file((size_t)file_size);
    fenced = slots != NULL;
}

void fence_end(void)
{
    fenced = false;
}

#if !FENCE_IS_LEFT_TO_SANITIZER

static size_t used, sizes[SLOTS];

void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_malloc(size_t size);
void __libc_free(void *block);

static bool is_slot(const void *block)
{
    const char *at = block;
    return slots != NULL && at >= slots && at < slots + SLOTS * SLOT_SIZE;
}

/* Opens the first pages of a slot and returns a block at their end: inaccessible memory follows it. */
static void *take_slot(size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (size + page - 1) / page * page;
    char *slot = slots + used * SLOT_SIZE;
    if (mprotect(slot, room, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    sizes[used++] = size;
    return slot + (room - size) / 16 * 16;
}

/* The dynamic linker calls these instead of its own functions if the program exports them. */
#define EXPORTED __attribute__((visibility("default")))

EXPORTED void *calloc(size_t count, size_t size)
{
    size_t bytes;
    void *block = NULL;
    if (fenced && used < SLOTS && !__builtin_mul_overflow(count, size, &bytes) && bytes > 0 &&
        bytes <= TABLE_MOST)
        block = take_slot(bytes);
    return block != NULL ? block : __libc_calloc(count, size);
}

EXPORTED void *realloc(void *block, size_t size)
{
    if (!is_slot(block))
        return __libc_realloc(block, size);
    const size_t have = sizes[(size_t)((const char *)block - slots) / SLOT_SIZE];
    void *copy = __libc_malloc(size);
    if (copy != NULL)
        memcpy(copy, block, have < size ? have : size);
    return copy;
}

/* Slots are never reused, so that late reads still find their contents. */
EXPORTED void free(void *block)
{
    if (!is_slot(block))
        __libc_free(block);
}

#endif
