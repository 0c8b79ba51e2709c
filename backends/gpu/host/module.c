/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Modules, which are loaded into a context when a plan first needs them, and launches of kernels. */
#include <stdio.h>

#include "host.h"

static const char *const names[] = {
#define GPU_MODULE(name) #name,
#include "modules.def"
    NULL,
};

static int32_t load(struct gpu_context *context, enum gpu_module module, gpu_handle *out,
                    struct attn_error *err)
{
    char call[64];
    gpu_result result = GPU_SUCCESS;

    pthread_mutex_lock(&context->lock);
    if (context->modules[module] == NULL)
        result = context->driver->module_load_data(&context->modules[module],
                                                   gpu_vendor_image(context->record, module));
    if (result != GPU_SUCCESS)
        context->modules[module] = NULL;
    *out = context->modules[module];
    pthread_mutex_unlock(&context->lock);
    snprintf(call, sizeof call, "%s of %s", gpu_names.module_load_data, names[module]);
    return gpu_check(context, result, "module", call, err);
}

int32_t gpu_module_function(struct gpu_context *context, enum gpu_module module, const char *name,
                            uint32_t shared_bytes, gpu_handle *out, struct attn_error *err)
{
    const struct gpu_driver *driver = context->driver;
    char call[128];
    gpu_handle loaded;
    int32_t status = load(context, module, &loaded, err);

    *out = NULL;
    if (status != ATTN_OK)
        return status;
    snprintf(call, sizeof call, "%s of %s", gpu_names.module_get_function, name);
    status = gpu_check(context, driver->module_get_function(out, loaded, name), "kernel", call, err);
    if (status == ATTN_OK)
        status = gpu_vendor_function_init(context, *out, shared_bytes, err);
    return status;
}

void gpu_module_unload_all(struct gpu_context *context)
{
    for (uint32_t i = 0; i < GPU_MODULES; i++) {
        if (context->modules[i] != NULL && !gpu_is_lost(context))
            (void)gpu_check(context, context->driver->module_unload(context->modules[i]), "module",
                            gpu_names.module_unload, NULL);
        context->modules[i] = NULL;
    }
}

int32_t gpu_launch(struct gpu_context *context, gpu_handle function, const uint32_t grid[3], uint32_t threads,
                   uint32_t shared_bytes, const void *argument, const char *name, void *stream,
                   struct attn_error *err)
{
    /* The driver reads the argument during the call and does not write it. */
    void *arguments[] = {(void *)(uintptr_t)argument};
    const uint64_t all = (uint64_t)grid[0] * threads;

    if (all > GPU_VENDOR_THREADS)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "batch.num_tokens",
                          "%s wants %llu threads in one launch for this step, " GPU_VENDOR_DEVICE
                          ":%d takes %llu: run it in parts of fewer rows",
                          name, (unsigned long long)all, context->record->info.device.ordinal,
                          (unsigned long long)GPU_VENDOR_THREADS);
    return gpu_check(context,
                     context->driver->launch_kernel(function, grid[0], grid[1], grid[2], threads, 1, 1,
                                                    shared_bytes, stream, arguments, NULL),
                     "kernel", name, err);
}
