/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Contexts: one per device, or the caller's, shared by the backends of an instance. */
#include <stdlib.h>

#include "host.h"

int32_t gpu_enter(struct gpu_context *context, struct attn_error *err)
{
    const gpu_result lost = atomic_load_explicit(&context->lost, memory_order_relaxed);
    char text[240];

    if (lost == GPU_SUCCESS)
        return gpu_check(context, gpu_vendor_enter(context), "device", GPU_VENDOR_ENTER, err);
    gpu_vendor_describe(context->driver, lost, text, sizeof text);
    return attn__fail(err, ATTN_E_DEVICE_LOST, ATTN_REASON_DEVICE_LOST, "device",
                      GPU_VENDOR_DEVICE ":%d is lost since a call failed with %s",
                      context->record->info.device.ordinal, text);
}

int32_t gpu_leave(struct gpu_context *context, int32_t status)
{
    /* Keep the result. If an error of earlier work shows here, the next call fails. */
    (void)gpu_check(context, gpu_vendor_leave(context), "device", GPU_VENDOR_LEAVE, NULL);
    return status;
}

bool gpu_enter_to_free(struct gpu_context *context)
{
    return !gpu_is_lost(context) && gpu_enter(context, NULL) == ATTN_OK;
}

/* A context that is open already. The instance is locked. */
static struct gpu_context *find(const struct attn_instance *instance, const struct gpu_device_record *record,
                                const void *native)
{
    for (struct gpu_context *context = instance->contexts; context != NULL; context = context->next)
        if (context->record == record && (native == NULL ? context->primary : context->handle == native))
            return context;
    return NULL;
}

int32_t gpu_context_open(struct attn_instance *instance, const struct gpu_device_record *record, void *native,
                         struct gpu_context **out, struct attn_error *err)
{
    int32_t status = ATTN_OK;

    pthread_mutex_lock(&instance->lock);
    struct gpu_context *context = find(instance, record, native);
    if (context != NULL) {
        context->refs++;
    } else if ((context = calloc(1, sizeof *context)) == NULL) {
        status = attn__fail(err, ATTN_E_MEMORY, 0, "context", "no memory for the context");
    } else {
        context->instance = instance;
        context->driver = &instance->driver;
        context->record = record;
        context->refs = 1;
        context->primary = native == NULL;
        context->handle = native;
        status = gpu_vendor_context_init(context, err);
        if (status != ATTN_OK) {
            free(context);
            context = NULL;
        } else {
            pthread_mutex_init(&context->lock, NULL);
            context->next = instance->contexts;
            instance->contexts = context;
        }
    }
    pthread_mutex_unlock(&instance->lock);
    *out = context;
    return status;
}

void gpu_context_close(struct gpu_context *context)
{
    struct attn_instance *instance = context->instance;

    pthread_mutex_lock(&instance->lock);
    const bool last = --context->refs == 0;
    for (struct gpu_context **link = &instance->contexts; last && *link != NULL; link = &(*link)->next) {
        if (*link == context) {
            *link = context->next;
            break;
        }
    }
    pthread_mutex_unlock(&instance->lock);
    if (!last)
        return;
    if (gpu_enter_to_free(context)) {
        gpu_module_unload_all(context);
        (void)gpu_leave(context, ATTN_OK);
    }
    gpu_vendor_context_finish(context);
    pthread_mutex_destroy(&context->lock);
    free(context);
}
