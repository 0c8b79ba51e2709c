/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Contexts: one per device, or the caller's, shared by the backends of an instance. */
#include <stdlib.h>

#include "cuda.h"

int32_t cuda_enter(struct cuda_context *context, struct attn_error *err)
{
    const cuda_result lost = atomic_load_explicit(&context->lost, memory_order_relaxed);
    char text[240];

    if (lost == CUDA_SUCCESS)
        return cuda_check(context, context->driver->cuCtxPushCurrent(context->handle), "device",
                          "cuCtxPushCurrent", err);
    cuda_driver_describe(context->driver, lost, text, sizeof text);
    return cuda_fail(err, ATTN_E_DEVICE_LOST, ATTN_REASON_DEVICE_LOST, "device",
                     "cuda:%d is lost since a call failed with %s", context->record->info.device.ordinal,
                     text);
}

int32_t cuda_leave(struct cuda_context *context, int32_t status)
{
    cuda_handle popped;

    /* What was made stands. An error of earlier work that shows here makes the next call fail. */
    (void)cuda_check(context, context->driver->cuCtxPopCurrent(&popped), "device", "cuCtxPopCurrent", NULL);
    return status;
}

bool cuda_enter_to_free(struct cuda_context *context)
{
    return !cuda_is_lost(context) && cuda_enter(context, NULL) == ATTN_OK;
}

/* The caller's context has to be of the device that the backend is opened on. */
static int32_t check_native(struct cuda_context *context, struct attn_error *err)
{
    cuda_device device = -1;
    int32_t status = cuda_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status = cuda_check(context, context->driver->cuCtxGetDevice(&device), "native_context", "cuCtxGetDevice",
                        err);
    status = cuda_leave(context, status);
    if (status == ATTN_OK && device != context->record->device)
        return cuda_fail(err, ATTN_E_INVALID, ATTN_REASON_DEVICE, "native_context",
                         "the context given belongs to another device than cuda:%d",
                         context->record->info.device.ordinal);
    return status;
}

static int32_t context_init(struct cuda_context *context, void *native, struct attn_error *err)
{
    context->primary = native == NULL;
    context->handle = native;
    if (!context->primary)
        return check_native(context, err);
    return cuda_check(context,
                      context->driver->cuDevicePrimaryCtxRetain(&context->handle, context->record->device),
                      "device", "cuDevicePrimaryCtxRetain", err);
}

/* A context that is open already. The instance is locked. */
static struct cuda_context *find(const struct attn_instance *instance,
                                 const struct cuda_device_record *record, const void *native)
{
    for (struct cuda_context *context = instance->contexts; context != NULL; context = context->next) {
        if (context->record == record && (native == NULL ? context->primary : context->handle == native))
            return context;
    }
    return NULL;
}

int32_t cuda_context_open(struct attn_instance *instance, const struct cuda_device_record *record,
                          void *native, struct cuda_context **out, struct attn_error *err)
{
    int32_t status = ATTN_OK;

    pthread_mutex_lock(&instance->lock);
    struct cuda_context *context = find(instance, record, native);
    if (context != NULL) {
        context->refs++;
    } else if ((context = calloc(1, sizeof *context)) == NULL) {
        status = cuda_fail(err, ATTN_E_MEMORY, 0, "context", "no memory for the context");
    } else {
        context->instance = instance;
        context->driver = &instance->driver;
        context->record = record;
        context->refs = 1;
        status = context_init(context, native, err);
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

void cuda_context_close(struct cuda_context *context)
{
    struct attn_instance *instance = context->instance;

    pthread_mutex_lock(&instance->lock);
    const bool last = --context->refs == 0;
    for (struct cuda_context **link = &instance->contexts; last && *link != NULL; link = &(*link)->next) {
        if (*link == context) {
            *link = context->next;
            break;
        }
    }
    pthread_mutex_unlock(&instance->lock);
    if (!last)
        return;
    if (cuda_enter_to_free(context)) {
        cuda_module_unload_all(context);
        (void)cuda_leave(context, ATTN_OK);
    }
    if (context->primary && !cuda_is_lost(context))
        (void)context->driver->cuDevicePrimaryCtxRelease(context->record->device);
    pthread_mutex_destroy(&context->lock);
    free(context);
}
