/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events of a backend: calls its memory table. */
#include "attn/device.h"
#include "dispatch/call.h"

/* A plugin offers all five functions or none. */
static bool has_events(const struct attn_memory_table *memory)
{
    return memory->event_create != NULL && memory->event_record != NULL && memory->event_query != NULL &&
           memory->event_synchronize != NULL && memory->event_destroy != NULL;
}

static int32_t begin(const struct attn_backend *backend, const void *argument, const char *name,
                     const char *what, struct attn_error *err)
{
    const int32_t status = attn__call_begin(backend, what, err);
    if (status != ATTN_OK)
        return status;
    if (argument == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s: %s is NULL", what, name);
    return has_events(&backend->entry->memory)
               ? ATTN_OK
               : attn__fail(err, ATTN_E_UNSUPPORTED, 0, "events", "%s offers no events",
                            backend->entry->table.name);
}

int32_t attn_event_create(struct attn_backend *backend, void **out, struct attn_error *err)
{
    if (out != NULL)
        *out = NULL;
    const int32_t status = begin(backend, out, "out", "attn_event_create", err);
    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    return attn__call_end(backend, backend->entry->memory.event_create(backend->impl, out, &own), &own,
                          "event create", err);
}

void attn_event_destroy(struct attn_backend *backend, void *event)
{
    if (backend != NULL && backend->born == attn__fork_generation() && event != NULL &&
        has_events(&backend->entry->memory))
        backend->entry->memory.event_destroy(backend->impl, event);
}

int32_t attn_event_record(struct attn_backend *backend, void *event, void *stream, struct attn_error *err)
{
    const int32_t status = begin(backend, event, "event", "attn_event_record", err);
    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    return attn__call_end(backend, backend->entry->memory.event_record(backend->impl, event, stream, &own),
                          &own, "event record", err);
}

int32_t attn_event_query(struct attn_backend *backend, void *event, struct attn_error *err)
{
    const int32_t status = begin(backend, event, "event", "attn_event_query", err);
    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    return attn__call_end(backend, backend->entry->memory.event_query(backend->impl, event, &own), &own,
                          "event query", err);
}

int32_t attn_event_synchronize(struct attn_backend *backend, void *event, struct attn_error *err)
{
    const int32_t status = begin(backend, event, "event", "attn_event_synchronize", err);
    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    return attn__call_end(backend, backend->entry->memory.event_synchronize(backend->impl, event, &own), &own,
                          "event synchronize", err);
}
