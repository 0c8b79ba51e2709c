/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Host memory that copies to the device read: a block for each step that may be in flight. */
#include <stdlib.h>

#include "fail.h"
#include "state.h"

static int32_t make_block(const struct attn_serving_host *host, const struct attn__staging *staging,
                          struct attn__staging_block *block, struct attn_error *err)
{
    const int32_t status = host->event_create(host->backend, &block->event, err);

    if (status != ATTN_OK)
        return status;
    if (staging->pinned)
        return host->memory_alloc_pinned(host->backend, staging->bytes, &block->memory, err);
    if (posix_memalign(&block->memory, 64, staging->bytes) == 0)
        return ATTN_OK;
    block->memory = NULL;
    return attn__fail(err, ATTN_E_MEMORY, 0, "steps", "no memory for %llu bytes of staging",
                      (unsigned long long)staging->bytes);
}

int32_t attn__staging_init(struct attn__staging *staging, const struct attn_serving_host *host,
                           uint32_t count, uint64_t bytes, struct attn_error *err)
{
    const struct attn_memory_table *memory = host->memory;
    int32_t status = ATTN_OK;

    *staging = (struct attn__staging){.bytes = bytes};
    if (bytes == 0)
        return ATTN_OK;
    staging->pinned = memory->alloc_pinned != NULL && memory->free_pinned != NULL;
    staging->blocks = calloc(count, sizeof *staging->blocks);
    if (staging->blocks == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "steps", "no memory for %u steps", count);
    staging->count = count;
    for (uint32_t i = 0; i < count && status == ATTN_OK; i++)
        status = make_block(host, staging, &staging->blocks[i], err);
    return status;
}

void attn__staging_finish(struct attn__staging *staging, const struct attn_serving_host *host)
{
    for (uint32_t i = 0; i < staging->count; i++) {
        host->event_destroy(host->backend, staging->blocks[i].event);
        if (staging->pinned)
            host->memory_free_pinned(host->backend, staging->blocks[i].memory);
        else
            free(staging->blocks[i].memory);
    }
    free(staging->blocks);
    *staging = (struct attn__staging){.count = 0};
}

int32_t attn__staging_take(const struct attn__staging *staging, const struct attn_serving_host *host,
                           char **out, struct attn_error *err)
{
    struct attn_error inner;

    *out = NULL;
    if (staging->blocks == NULL)
        return ATTN_OK;
    attn__error_open(&inner);
    const struct attn__staging_block *block = &staging->blocks[staging->next];
    const int32_t status = host->event_query(host->backend, block->event, &inner);
    if (status == ATTN_E_BUSY)
        return attn__fail(err, ATTN_E_BUSY, 0, "steps",
                          "the copies of %u earlier steps are still under way; a state made with more steps "
                          "can have more of them",
                          staging->count);
    if (status != ATTN_OK)
        return attn__fail(err, status, inner.reason, inner.field, "%s", inner.message);
    *out = block->memory;
    return ATTN_OK;
}

int32_t attn__staging_mark(struct attn__staging *staging, const struct attn_serving_host *host,
                           int32_t status, void *stream, struct attn_error *err)
{
    if (staging->blocks == NULL)
        return status;
    /* After a failure too: some copies may be under way. */
    const int32_t marked = host->event_record(host->backend, staging->blocks[staging->next].event, stream,
                                              status == ATTN_OK ? err : NULL);
    staging->next = (staging->next + 1) % staging->count;
    return status == ATTN_OK ? marked : status;
}
