/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens the backend that a decision chose, counts its references, and closes it with the last one. */
#include <stdio.h>
#include <stdlib.h>

#include "dispatch/call.h"
#include "select/select.h"

void attn__backend_hold(struct attn_backend *backend)
{
    atomic_fetch_add_explicit(&backend->refs, 1, memory_order_relaxed);
}

void attn__backend_drop(struct attn_backend *backend)
{
    if (atomic_fetch_sub_explicit(&backend->refs, 1, memory_order_acq_rel) != 1)
        return;
    /* A child after fork has no threads and no driver objects of the plugin: only memory is freed. */
    if (backend->born == attn__fork_generation())
        backend->entry->table.close(backend->impl);
    attn__context_drop(backend->context);
    free(backend);
}

int32_t attn__backend_result(struct attn_backend *backend, int32_t status)
{
    if (status == ATTN_E_DEVICE_LOST)
        atomic_store_explicit(&backend->lost, 1, memory_order_relaxed);
    return status;
}

static int32_t check_open(struct attn_context *context, const struct attn_decision *decision,
                          struct attn_backend **out, struct attn_error *err)
{
    if (context == NULL || decision == NULL || out == NULL) {
        const char *name = context == NULL ? "context" : decision == NULL ? "decision" : "out";
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "attn_backend_open: %s is NULL; what attn_context_create and attn_select made is "
                          "accepted, and a place for the backend",
                          name);
    }
    *out = NULL;
    const int32_t status = attn__check_fork(context->born, "attn_backend_open", err);
    if (status != ATTN_OK)
        return status;
    if (decision->context != context) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, "decision",
            "the decision was made by another context; give one of this context to attn_backend_open");
    }
    if (decision->winner == NULL) {
        return attn__fail(err, ATTN_E_STATE, 0, "decision", "the decision has no winner to open: %s",
                          decision->info.text);
    }
    return ATTN_OK;
}

/* Calls the plugin's open; all members of backend but `impl` are set. */
static int32_t open_entry(struct attn_backend *backend, const struct attn_open_config *config,
                          struct attn_error *err)
{
    struct attn__backend *entry = backend->entry;
    struct attn_open_config copy;
    const void *known = NULL;
    if (config != NULL) {
        const int32_t status = attn__argument(backend, config, &copy, sizeof copy,
                                              entry->plugin->table.open_config_size, "config", &known, err);
        if (status != ATTN_OK)
            return status;
    }
    struct attn_error own;
    attn__error_open(&own);
    const int32_t status = attn__call_end(
        backend, entry->table.open(entry->plugin->instance, &backend->device, known, &backend->impl, &own),
        &own, "open", err);
    if (status == ATTN_OK && backend->impl == NULL) {
        return attn__fail(err, ATTN_E_PLUGIN, 0, "out", "%s: open succeeded without a backend",
                          entry->table.name);
    }
    return status;
}

int32_t attn_backend_open(struct attn_context *context, const struct attn_decision *decision,
                          const struct attn_open_config *config, struct attn_backend **out,
                          struct attn_error *err)
{
    int32_t status = check_open(context, decision, out, err);
    if (status != ATTN_OK)
        return status;
    struct attn_backend *backend = calloc(1, sizeof *backend);
    if (backend == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "backend", "no memory for a backend");
    atomic_init(&backend->refs, 1);
    atomic_init(&backend->lost, 0);
    backend->born = attn__fork_generation();
    backend->context = context;
    backend->record = context->recorder != NULL;
    backend->trace = attn__log_wants(&context->log, ATTN_LOG_TRACE, "call");
    backend->entry = decision->winner->entry;
    backend->device = decision->winner->device;
    snprintf(backend->device_name, sizeof backend->device_name, "%s", decision->winner->device_name);
    status = open_entry(backend, config, err);
    if (status != ATTN_OK) {
        free(backend);
        return status;
    }
    attn__context_hold(context);
    *out = backend;
    return ATTN_OK;
}

void attn_backend_destroy(struct attn_backend *backend)
{
    if (backend != NULL)
        attn__backend_drop(backend);
}

const char *attn_backend_get_name(const struct attn_backend *backend)
{
    return backend != NULL ? backend->entry->table.name : NULL;
}

const char *attn_backend_get_device(const struct attn_backend *backend)
{
    return backend != NULL ? backend->device_name : NULL;
}
