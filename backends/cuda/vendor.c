/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* CUDA's driver, devices and contexts behind the host code of all GPUs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "driver-values.h"
#include "host.h"

const char *const gpu_vendor_libraries[] = {"libcuda.so.1", NULL};

/* The driver's own lookup takes a version; older drivers only have the symbols of the file. */
void *gpu_vendor_find(const struct gpu_driver *driver, const char *call, const char *symbol)
{
    get_address_fn get_address = NULL;
    void *address = dlsym(driver->library, GET_ADDRESS);

    memcpy(&get_address, &address, sizeof address);
    address = NULL;
    if (get_address == NULL || get_address(call, &address, DRIVER_MIN, LEGACY_STREAM, NULL) != GPU_SUCCESS ||
        address == NULL)
        address = dlsym(driver->library, symbol);
    return address;
}

void gpu_vendor_describe(const struct gpu_driver *driver, gpu_result result, char *out, size_t size)
{
    const char *name = NULL, *text = NULL;

    if (driver->get_error_name == NULL || driver->get_error_name(result, &name) != GPU_SUCCESS)
        name = NULL;
    if (driver->get_error_string == NULL || driver->get_error_string(result, &text) != GPU_SUCCESS)
        text = NULL;
    snprintf(out, size, "%s (%d)%s%s", name != NULL ? name : "an unknown error", result,
             text != NULL ? ": " : "", text != NULL ? text : "");
}

int32_t gpu_vendor_start(struct gpu_driver *driver, const char *library, int *out_devices,
                         struct attn_error *err)
{
    char text[160];
    gpu_result result = driver->driver_get_version(&driver->version);

    if (result == GPU_SUCCESS && driver->version < DRIVER_MIN)
        return attn__fail(err, ATTN_E_DEVICE, ATTN_REASON_NO_DRIVER, "driver",
                          "the CUDA driver %s is for CUDA %d.%d; one for CUDA %d.%d or newer is needed",
                          library, driver->version / 1000, driver->version % 1000 / 10, DRIVER_MIN / 1000,
                          DRIVER_MIN % 1000 / 10);
    if (result == GPU_SUCCESS)
        result = driver->init(0);
    if (result == GPU_SUCCESS)
        result = driver->device_get_count(out_devices);
    if (result == GPU_NO_DEVICE) {
        *out_devices = 0;
        return ATTN_OK;
    }
    if (result == GPU_SUCCESS)
        return ATTN_OK;
    gpu_vendor_describe(driver, result, text, sizeof text);
    return attn__fail(err, ATTN_E_DEVICE, ATTN_REASON_NO_DRIVER, "driver",
                      "the CUDA driver %s does not start: %s", library, text);
}

gpu_result gpu_vendor_read_device(const struct gpu_driver *driver, int ordinal, struct gpu_device_record *out)
{
    size_t bytes = 0;
    int units = 0, major = 0, minor = 0;
    gpu_result result = driver->device_get(&out->device, ordinal);

    if (result == GPU_SUCCESS)
        result = driver->device_get_name(out->info.name, (int)sizeof out->info.name, out->device);
    if (result == GPU_SUCCESS)
        result = driver->device_total_mem(&bytes, out->device);
    if (result == GPU_SUCCESS)
        result = driver->device_get_attribute(&units, DEVICE_MULTIPROCESSORS, out->device);
    if (result == GPU_SUCCESS)
        result = driver->device_get_attribute(&major, DEVICE_MAJOR, out->device);
    if (result == GPU_SUCCESS)
        result = driver->device_get_attribute(&minor, DEVICE_MINOR, out->device);
    if (result != GPU_SUCCESS)
        return result;
    out->info.memory_bytes = bytes;
    out->info.units = units > 0 ? (uint32_t)units : 1;
    out->arch = (uint32_t)(major * 10 + minor);
    snprintf(out->info.arch, sizeof out->info.arch, GPU_VENDOR_ARCH, out->arch);
    return GPU_SUCCESS;
}

bool gpu_vendor_serves(const struct gpu_device_record *record, const char **out_served)
{
    *out_served = "sm_80 or newer";
    return record->arch >= CUDA_ARCH_MIN;
}

uint32_t gpu_vendor_shared(uint32_t arch)
{
    switch (arch) {
    case 80:
    case 87:
        return 163u << 10;
    case 90:
    case 100:
    case 103:
    case 110:
        return 227u << 10;
    default: /* graphics, and unknown results */
        return 99u << 10;
    }
}

/* ---------------------------------------------------------------- contexts */

gpu_result gpu_vendor_enter(const struct gpu_context *context)
{
    return context->driver->ctx_push_current(context->handle);
}

gpu_result gpu_vendor_leave(const struct gpu_context *context)
{
    gpu_handle popped;

    return context->driver->ctx_pop_current(&popped);
}

/* The caller's context has to be of the device that the backend is opened on. */
static int32_t check_native(struct gpu_context *context, struct attn_error *err)
{
    gpu_ordinal device = -1;
    int32_t status = gpu_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status = gpu_check(context, context->driver->ctx_get_device(&device), "native_context",
                       gpu_names.ctx_get_device, err);
    status = gpu_leave(context, status);
    if (status == ATTN_OK && device != context->record->device)
        return attn__fail(err, ATTN_E_INVALID, ATTN_REASON_DEVICE, "native_context",
                          "the context given belongs to another device; one of cuda:%d is accepted",
                          context->record->info.device.ordinal);
    return status;
}

int32_t gpu_vendor_context_init(struct gpu_context *context, struct attn_error *err)
{
    if (!context->primary)
        return check_native(context, err);
    return gpu_check(context,
                     context->driver->device_primary_ctx_retain(&context->handle, context->record->device),
                     "device", gpu_names.device_primary_ctx_retain, err);
}

void gpu_vendor_context_finish(struct gpu_context *context)
{
    if (context->primary && !gpu_is_lost(context))
        (void)context->driver->device_primary_ctx_release(context->record->device);
}

int32_t gpu_vendor_function_init(struct gpu_context *context, gpu_handle function, uint32_t shared_bytes,
                                 struct attn_error *err)
{
    const struct gpu_driver *driver = context->driver;
    int32_t status = ATTN_OK;

    /* Otherwise a driver that loads code on first use may do so inside a capture. */
    if (driver->func_load != NULL)
        status = gpu_check(context, driver->func_load(function), "kernel", gpu_names.func_load, err);
    if (status == ATTN_OK && shared_bytes > 0)
        status = gpu_check(
            context, driver->func_set_attribute(function, FUNCTION_MAX_DYNAMIC_SHARED, (int)shared_bytes),
            "kernel", gpu_names.func_set_attribute, err);
    return status;
}
