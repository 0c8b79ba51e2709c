/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The memory of a session: made on first use, kept between calls, made anew when a step is larger. */
#include <stdlib.h>

#include "session/session.h"

/* ---------------------------------------------------------------- blocks */

static void free_host(struct attn_session *session, struct attn__host_block *block)
{
    if (block->pinned)
        attn_memory_free_pinned(session->backend, block->data);
    else
        free(block->data);
    *block = (struct attn__host_block){NULL, 0, false};
}

static int32_t alloc_host(struct attn_session *session, uint64_t size, uint64_t alignment,
                          struct attn__host_block *out, struct attn_error *err)
{
    *out = (struct attn__host_block){NULL, size, false};
    if (size == 0)
        return ATTN_OK;
    out->pinned = attn_memory_alloc_pinned(session->backend, size, &out->data, NULL) == ATTN_OK;
    if (!out->pinned) /* the backend has none: copies are slower, not wrong */
        out->data = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    return out->data != NULL ? ATTN_OK
                             : attn__fail(err, ATTN_E_MEMORY, 0, "session", "no memory for %llu bytes",
                                          (unsigned long long)size);
}

static void free_device(struct attn_session *session, struct attn_span *span)
{
    attn_memory_free(session->backend, &span->buffer);
    *span = (struct attn_span){{NULL, 0}, 0};
}

static int32_t alloc_device(struct attn_session *session, uint64_t size, struct attn_span *out,
                            struct attn_error *err)
{
    out->size = size;
    return size > 0 ? attn_memory_alloc(session->backend, size, &out->buffer, err) : ATTN_OK;
}

/* ---------------------------------------------------------------- the plan */

static void free_plan(struct attn_session *session)
{
    attn_plan_destroy(session->plan);
    session->plan = NULL;
    free_device(session, &session->work);
    free_host(session, &session->staging);
}

static struct attn_span take(struct attn_buffer *from, uint64_t size, uint64_t alignment)
{
    const struct attn_span part = {*from, size};
    from->byte_offset += (size + alignment - 1) / alignment * alignment;
    return part;
}

static int32_t alloc_work(struct attn_session *session, struct attn_error *err)
{
    struct attn_plan_sizes sizes;
    ATTN_INIT(&sizes);
    int32_t status = attn_plan_get_sizes(session->plan, &sizes, err);
    if (status != ATTN_OK)
        return status;
    const uint64_t alignment = sizes.alignment > 0 ? sizes.alignment : 64;
    status = alloc_device(session, sizes.schedule + sizes.scratch + sizes.counters + 2 * alignment,
                          &session->work, err);
    if (status == ATTN_OK)
        status = alloc_host(session, sizes.staging, alignment, &session->staging, err);
    if (status != ATTN_OK)
        return status;
    struct attn_buffer at = session->work.buffer;
    ATTN_INIT(&session->scratch);
    session->schedule = take(&at, sizes.schedule, alignment);
    session->scratch.scratch = take(&at, sizes.scratch, alignment);
    session->scratch.counters = take(&at, sizes.counters, alignment);
    session->scratch.counters_dirty = 1;
    return ATTN_OK;
}

static uint32_t power_of_two_from(uint32_t value)
{
    uint32_t power = 1;
    while (power < value && power < UINT32_C(1) << 30)
        power *= 2;
    return power < value ? value : power;
}

/* Raises a maximum that the problem leaves open; true if it was too small. */
static bool raise_maximum(uint32_t limit, uint32_t needed, uint32_t *maximum)
{
    if (limit != 0 || (needed <= *maximum && *maximum != 0))
        return false;
    *maximum = power_of_two_from(needed);
    return true;
}

int32_t attn__session_plan(struct attn_session *session, struct attn_error *err)
{
    const struct attn_problem *limit = &session->problem;
    const struct attn_batch *batch = &session->batch;
    struct attn_problem *maxima = &session->maxima;
    bool larger = raise_maximum(limit->max_seqs, batch->seqs, &maxima->max_seqs);
    larger = raise_maximum(limit->max_q, batch->max_q, &maxima->max_q) || larger;
    larger = raise_maximum(limit->max_kv, batch->max_kv, &maxima->max_kv) || larger;
    larger = raise_maximum(limit->max_rows, batch->num_tokens, &maxima->max_rows) || larger;
    if (session->plan != NULL && !larger)
        return ATTN_OK;
    int32_t status = attn_stream_synchronize(session->backend, session->stream, err);
    if (status != ATTN_OK)
        return status;
    free_plan(session);
    status = attn_plan_create(session->backend, maxima, &session->plan, err);
    if (status == ATTN_OK)
        status = alloc_work(session, err);
    if (status != ATTN_OK) {
        free_plan(session);
        session->maxima = session->problem; /* a smaller step may still be served */
    }
    return status;
}

/* ---------------------------------------------------------------- the arrays of a step */

int32_t attn__session_room(struct attn_session *session, uint64_t words, struct attn_error *err)
{
    const uint64_t size = words * sizeof(int32_t);
    if (session->arrays.size >= size)
        return ATTN_OK;
    int32_t status = attn_stream_synchronize(session->backend, session->stream, err);
    if (status != ATTN_OK)
        return status;
    session->prepared = session->in_flight = false;
    free_host(session, &session->arrays);
    free_device(session, &session->device_arrays);
    status = alloc_host(session, 2 * size, 64, &session->arrays, err);
    if (status == ATTN_OK)
        status = alloc_device(session, 2 * size, &session->device_arrays, err);
    if (status != ATTN_OK) {
        free_host(session, &session->arrays);
        free_device(session, &session->device_arrays);
    }
    return status;
}

int32_t attn__session_wait(struct attn_session *session, struct attn_error *err)
{
    if (!session->in_flight)
        return ATTN_OK;
    session->in_flight = false;
    return session->event != NULL ? attn_event_synchronize(session->backend, session->event, err)
                                  : attn_stream_synchronize(session->backend, session->stream, err);
}

int32_t attn__session_mark(struct attn_session *session, struct attn_error *err)
{
    session->in_flight = true;
    if (session->event == NULL && attn_event_create(session->backend, &session->event, NULL) != ATTN_OK)
        return ATTN_OK; /* the backend has none: attn__session_wait waits for the stream */
    return attn_event_record(session->backend, session->event, session->stream, err);
}

void attn__session_free(struct attn_session *session)
{
    if (session->event != NULL)
        (void)attn_event_synchronize(session->backend, session->event, NULL);
    if (session->stream == NULL) /* one of the program's own may be destroyed already */
        (void)attn_stream_synchronize(session->backend, NULL, NULL);
    free_plan(session);
    free_host(session, &session->arrays);
    free_device(session, &session->device_arrays);
    if (session->event != NULL)
        attn_event_destroy(session->backend, session->event);
    free(session->next);
}
