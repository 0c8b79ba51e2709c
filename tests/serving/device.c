/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Device memory of the make-believe engine: between guard pages, and with copies that are done late, so that
 * whoever changes their source too early is found out.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.h"

#define WAITING 512u

static struct waiting {
    char *to;
    const char *from;
    uint64_t size;
} waiting[WAITING];
static uint32_t first, count, marks[8], mark_count;
static uint64_t copies, bytes;

/* Ends right before a page that cannot be touched. */
static int32_t alloc(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                     struct attn_error *err)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
    char *base = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)backend, (void)err;
    if (base == MAP_FAILED || mprotect(base + page, whole, PROT_READ | PROT_WRITE) != 0)
        return ATTN_E_MEMORY;
    memset(base + page, 0x5a, whole);
    out->data = base + page;
    out->byte_offset = (whole - size) / 64 * 64;
    return ATTN_OK;
}

/* Pages stay until the process ends: what is freed is not to be found again. */
static void discard(struct attn_backend_impl *backend, const struct attn_buffer *buffer)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    (void)backend;
    (void)madvise(buffer->data, page, MADV_DONTNEED);
}

static int32_t copy(struct attn_backend_impl *backend, const struct attn_buffer *to,
                    const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                    struct attn_error *err)
{
    (void)backend, (void)kind, (void)stream, (void)err;
    if (count == WAITING)
        return ATTN_E_SIZE;
    waiting[(first + count++) % WAITING] = (struct waiting){
        (char *)to->data + to->byte_offset, (const char *)from->data + from->byte_offset, size};
    copies++;
    bytes += size;
    return ATTN_OK;
}

void engine_pass(uint32_t keep)
{
    marks[mark_count++ % 8] = count;
    uint32_t stay = 0;
    if (keep > 0 && mark_count > keep)
        stay = count - marks[(mark_count - 1 - keep) % 8];
    else if (keep > 0)
        stay = count;
    const uint32_t done = count - stay;
    for (; count > stay; count--, first = (first + 1) % WAITING)
        memcpy(waiting[first].to, waiting[first].from, waiting[first].size);
    for (uint32_t i = 0; i < 8; i++)
        marks[i] = marks[i] > done ? marks[i] - done : 0;
}

void engine_copied(uint64_t *out_copies, uint64_t *out_bytes)
{
    *out_copies = copies;
    *out_bytes = bytes;
    copies = bytes = 0;
}

const struct attn_memory_table engine_memory = {
    .struct_size = sizeof engine_memory, .alloc = alloc, .free = discard, .copy = copy};
