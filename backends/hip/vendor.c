/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* HIP's runtime and devices behind the host code of all GPUs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver-values.h"
#include "images.h"

const char *const gpu_vendor_libraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", NULL};

void *gpu_vendor_find(const struct gpu_driver *driver, const char *call, const char *symbol)
{
    (void)call;
    return dlsym(driver->library, symbol);
}

static const char *text_of(const struct gpu_driver *driver, const char *function, gpu_result result)
{
    error_text_fn find = NULL;
    void *address = driver->library != NULL ? dlsym(driver->library, function) : NULL;

    memcpy(&find, &address, sizeof address);
    return find != NULL ? find(result) : NULL;
}

void gpu_vendor_describe(const struct gpu_driver *driver, gpu_result result, char *out, size_t size)
{
    const char *name = text_of(driver, "hipGetErrorName", result);
    const char *text = text_of(driver, "hipGetErrorString", result);

    snprintf(out, size, "%s (%d)%s%s", name != NULL ? name : "an unknown error", result,
             text != NULL ? ": " : "", text != NULL ? text : "");
}

int32_t gpu_vendor_start(struct gpu_driver *driver, const char *library, int *out_devices,
                         struct attn_error *err)
{
    char text[160];
    gpu_result result = driver->init(0);

    if (result == GPU_SUCCESS)
        result = driver->get_device_count(out_devices);
    if (result == GPU_NO_DEVICE || result == INVALID_DEVICE) {
        *out_devices = 0;
        return ATTN_OK;
    }
    if (result == GPU_SUCCESS)
        return ATTN_OK;
    gpu_vendor_describe(driver, result, text, sizeof text);
    return attn__fail(err, ATTN_E_DEVICE, ATTN_REASON_NO_DRIVER, "driver",
                      "the HIP runtime %s does not start: %s", library, text);
}

/* ---------------------------------------------------------------- devices */

/* "gfx90a:sramecc+:xnack-" is 0x90a; 0 if it is no name of an architecture. */
static uint32_t number_of(const char *name)
{
    char *end = NULL;

    if (strncmp(name, "gfx", 3) != 0)
        return 0;
    const unsigned long number = strtoul(name + 3, &end, 16);
    return end != name + 3 && (*end == '\0' || *end == ':') && number <= UINT32_MAX ? (uint32_t)number : 0;
}

/* Reads the properties by the layout that the runtime has, newest first; each layout has its own function. */
static gpu_result read_properties(const struct gpu_driver *driver, int ordinal, void *out,
                                  const struct layout **out_layout)
{
    *out_layout = driver->get_properties_r0600 != NULL ? &r0600 : &r0000;
    if (driver->get_properties_r0600 != NULL)
        return driver->get_properties_r0600(out, ordinal);
    if (driver->get_properties_r0000 != NULL)
        return driver->get_properties_r0000(out, ordinal);
    return driver->get_properties != NULL ? driver->get_properties(out, ordinal) : GPU_NOT_SUPPORTED;
}

gpu_result gpu_vendor_read_device(const struct gpu_driver *driver, int ordinal, struct gpu_device_record *out)
{
    _Alignas(16) char properties[PROPERTIES] = {0};
    char name[ARCH_NAME];
    const struct layout *layout;
    uint64_t bytes;
    int units;
    const gpu_result result = read_properties(driver, ordinal, properties, &layout);

    if (result != GPU_SUCCESS)
        return result;
    memcpy(&bytes, properties + layout->memory, sizeof bytes);
    memcpy(&units, properties + layout->units, sizeof units);
    memcpy(name, properties + layout->arch, sizeof name);
    name[sizeof name - 1] = '\0';
    snprintf(out->info.name, sizeof out->info.name, "%.63s", properties);
    snprintf(out->info.arch, sizeof out->info.arch, "%.31s", name);
    out->info.memory_bytes = bytes;
    out->info.units = units > 0 ? (uint32_t)units : 1;
    out->device = ordinal;
    out->arch = number_of(name);
    return GPU_SUCCESS;
}

bool gpu_vendor_serves(const struct gpu_device_record *record, const char **out_served)
{
    *out_served = hip_targets_text;
    return hip_target_find(record->arch) != NULL;
}

/* Every architecture has this much; more is not used. */
uint32_t gpu_vendor_shared(uint32_t arch)
{
    (void)arch;
    return 64u << 10;
}

const unsigned char *gpu_vendor_image(const struct gpu_device_record *record, enum gpu_module module)
{
    return hip_target_find(record->arch)->images[module];
}

/* ---------------------------------------------------------------- contexts */

/* The device that was this thread's before; calls between enter and leave do not nest. */
static _Thread_local int before;

gpu_result gpu_vendor_enter(const struct gpu_context *context)
{
    const gpu_result result = context->driver->get_device(&before);

    return result == GPU_SUCCESS ? context->driver->set_device(context->record->device) : result;
}

gpu_result gpu_vendor_leave(const struct gpu_context *context)
{
    return before != context->record->device ? context->driver->set_device(before) : GPU_SUCCESS;
}

/* HIP has one context for each device, which exists until the process ends. */
int32_t gpu_vendor_context_init(struct gpu_context *context, struct attn_error *err)
{
    if (context->primary)
        return ATTN_OK;
    return attn__fail(
        err, ATTN_E_UNSUPPORTED, 0, "native_context",
        "native_context is given, but HIP has no contexts; NULL is accepted, for that of rocm:%d",
        context->record->info.device.ordinal);
}

void gpu_vendor_context_finish(struct gpu_context *context)
{
    (void)context;
}

/* Nothing to do: code is loaded with its module, and 64 KiB of shared memory need no opt-in. */
int32_t gpu_vendor_function_init(struct gpu_context *context, gpu_handle function, uint32_t shared_bytes,
                                 struct attn_error *err)
{
    (void)context;
    (void)function;
    (void)shared_bytes;
    (void)err;
    return ATTN_OK;
}
