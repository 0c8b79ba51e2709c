/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The driver of an instance, opened once, and the devices that it lists. */
#include <stdlib.h>

#include "host.h"

/* Fails because the driver could not describe a device. */
static int32_t fail_device(const struct gpu_driver *driver, gpu_result result, int ordinal,
                           struct attn_error *err)
{
    char text[240];

    gpu_vendor_describe(driver, result, text, sizeof text);
    return attn__fail(err, ATTN_E_DEVICE, 0, "device", GPU_VENDOR_DEVICE ":%d cannot be described: %s",
                      ordinal, text);
}

static int32_t read_device(const struct gpu_driver *driver, int ordinal, struct gpu_device_record *out,
                           struct attn_error *err)
{
    ATTN_INIT(&out->info);
    const gpu_result result = gpu_vendor_read_device(driver, ordinal, out);
    if (result != GPU_SUCCESS)
        return fail_device(driver, result, ordinal, err);
    out->info.name[sizeof out->info.name - 1] = '\0';
    out->info.device_class = ATTN_CLASS_ACCELERATOR;
    out->info.device.type = GPU_VENDOR_DEVICE_TYPE;
    out->info.device.ordinal = ordinal;
    return ATTN_OK;
}

static int32_t open_driver(struct attn_instance *instance, struct attn_error *err)
{
    const char *library = NULL;
    int count = 0;

    if (instance->host.get_option != NULL)
        library = instance->host.get_option(instance->host.ctx, GPU_VENDOR_LIBRARY);
    int32_t status = gpu_driver_open(&instance->driver, library, &count, err);
    if (status != ATTN_OK || count <= 0)
        return status;
    instance->devices = calloc((size_t)count, sizeof *instance->devices);
    if (instance->devices == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "devices", "no memory for %d devices", count);
    for (int i = 0; i < count && status == ATTN_OK; i++)
        status = read_device(&instance->driver, i, &instance->devices[i], err);
    instance->device_count = status == ATTN_OK ? (uint32_t)count : 0;
    return status;
}

int32_t gpu_instance_open(struct attn_instance *instance, struct attn_error *err)
{
    pthread_mutex_lock(&instance->lock);
    if (!instance->opened) {
        ATTN_INIT(&instance->open_error);
        instance->open_status = open_driver(instance, &instance->open_error);
        instance->opened = true;
    }
    pthread_mutex_unlock(&instance->lock);
    if (instance->open_status == ATTN_OK)
        return ATTN_OK;
    return attn__fail(err, instance->open_status, instance->open_error.reason, instance->open_error.field,
                      "%s", instance->open_error.message);
}

int32_t gpu_get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                        uint32_t *out_count, struct attn_error *err)
{
    int32_t status = gpu_instance_open(instance, err);

    *out_count = 0;
    if (status != ATTN_OK)
        return status;
    for (uint32_t i = 0; i < instance->device_count && i < capacity; i++)
        out[i] = instance->devices[i].info;
    *out_count = instance->device_count;
    return ATTN_OK;
}

const struct gpu_device_record *gpu_device_find(const struct attn_instance *instance,
                                                const struct attn_device *device)
{
    if (device->type != GPU_VENDOR_DEVICE_TYPE || device->ordinal < 0 ||
        (uint32_t)device->ordinal >= instance->device_count)
        return NULL;
    return &instance->devices[device->ordinal];
}
