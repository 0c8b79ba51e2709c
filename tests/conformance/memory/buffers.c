/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory between guard pages, with red zones that are checked after a run, and patterns for outputs. */
#define _GNU_SOURCE
#include "step.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "output.h"

enum { RED_ZONE = 0xff, MAX_ARENAS = 8 };

/* Every live arena, so that the signal handler can name a buffer. */
static struct arena *arenas[MAX_ARENAS];
static bool nothing_forbidden;

void arena_init(struct arena *arena, bool before)
{
    memset(arena, 0, sizeof *arena);
    arena->before = before;
    for (uint32_t i = 0; i < MAX_ARENAS; i++) {
        if (arenas[i] == NULL) {
            arenas[i] = arena;
            return;
        }
    }
}

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

struct guarded *arena_add(struct arena *arena, const char *name, size_t size, size_t alignment, uint8_t fill)
{
    size_t page = page_size();
    size_t inner = (size + alignment + page - 1) / page * page;
    struct guarded *buffer = &arena->buffers[arena->count];

    if (arena->count == ARENA_BUFFERS) {
        complain("too many buffers");
        exit(EXIT_NO);
    }
    unsigned char *map =
        mmap(NULL, inner + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map, page, PROT_NONE) != 0 ||
        mprotect(map + page + inner, page, PROT_NONE) != 0) {
        complain("no memory for %zu bytes of %s", size, name);
        exit(EXIT_NO);
    }
    buffer->name = name;
    buffer->map = map;
    buffer->map_size = inner + 2 * page;
    buffer->size = size;
    buffer->data = map + page;
    if (!arena->before)
        buffer->data += (inner - size) / alignment * alignment;
    memset(map + page, RED_ZONE, inner);
    memset(buffer->data, fill, size);
    arena->count++;
    return buffer;
}

void guarded_protect(struct guarded *buffer)
{
    size_t page = page_size();

    buffer->constant = true;
    mprotect(buffer->map + page, buffer->map_size - 2 * page, PROT_READ);
}

void guarded_unprotect(struct guarded *buffer)
{
    size_t page = page_size();

    buffer->constant = false;
    mprotect(buffer->map + page, buffer->map_size - 2 * page, PROT_READ | PROT_WRITE);
}

size_t guarded_gap(size_t row)
{
    size_t page = page_size();

    return (row + page - 1) / page * page + page;
}

void arena_forbid_nothing(void)
{
    nothing_forbidden = true;
}

void guarded_forbid(const struct guarded *buffer, size_t from, size_t to)
{
    size_t page = page_size();
    uintptr_t first = ((uintptr_t)(buffer->data + from) + page - 1) / page * page;
    uintptr_t end = (uintptr_t)(buffer->data + to) / page * page;

    if (first < end && !nothing_forbidden)
        mprotect((void *)first, end - first, PROT_NONE);
}

static bool is_red(const unsigned char *from, const unsigned char *to)
{
    for (; from < to; from++)
        if (*from != RED_ZONE)
            return false;
    return true;
}

bool arena_check(const struct arena *arena, const char **out_name)
{
    size_t page = page_size();

    for (uint32_t i = 0; i < arena->count; i++) {
        const struct guarded *buffer = &arena->buffers[i];
        const unsigned char *end = buffer->map + buffer->map_size - page;
        if (buffer->spoiled || !is_red(buffer->map + page, buffer->data) ||
            !is_red(buffer->data + buffer->size, end)) {
            *out_name = buffer->name;
            return false;
        }
    }
    return true;
}

void arena_finish(struct arena *arena)
{
    for (uint32_t i = 0; i < MAX_ARENAS; i++)
        if (arenas[i] == arena)
            arenas[i] = NULL;
    for (uint32_t i = 0; i < arena->count; i++) {
        if (arena->buffers[i].drop_twins != NULL)
            arena->buffers[i].drop_twins(&arena->buffers[i]);
        munmap(arena->buffers[i].map, arena->buffers[i].map_size);
    }
    arena->count = 0;
}

struct guarded *arena_buffer(const void *address)
{
    const unsigned char *at = address;

    for (uint32_t a = 0; a < MAX_ARENAS; a++) {
        for (uint32_t i = 0; arenas[a] != NULL && i < arenas[a]->count; i++) {
            struct guarded *buffer = &arenas[a]->buffers[i];
            if (at >= buffer->map && at < buffer->map + buffer->map_size)
                return buffer;
        }
    }
    return NULL;
}

const char *arena_find(const void *address)
{
    const struct guarded *buffer = arena_buffer(address);

    return buffer != NULL ? buffer->name : NULL;
}

static unsigned char pattern_byte(size_t offset)
{
    return (unsigned char)(0xa5 ^ offset * 37);
}

void pattern_fill(const struct guarded *buffer)
{
    for (size_t i = 0; i < buffer->size; i++)
        buffer->data[i] = pattern_byte(i);
}

void pattern_restore(const struct guarded *buffer, const void *from, size_t size)
{
    size_t first = (size_t)((const unsigned char *)from - buffer->data);

    for (size_t i = first; i < first + size; i++)
        buffer->data[i] = pattern_byte(i);
}

int64_t pattern_check(const struct guarded *buffer)
{
    for (size_t i = 0; i < buffer->size; i++)
        if (buffer->data[i] != pattern_byte(i))
            return (int64_t)i;
    return -1;
}
