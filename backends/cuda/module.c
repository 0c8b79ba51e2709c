/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Modules: the kernels' images inside this file, loaded into a context when a plan first asks for one. */
#include <stdio.h>

#include "cuda.h"

#define CUDA_MODULE(name) extern const unsigned char cuda_image_##name[];
#include "modules.def"
#undef CUDA_MODULE

static const unsigned char *const images[] = {
#define CUDA_MODULE(name) cuda_image_##name,
#include "modules.def"
#undef CUDA_MODULE
    NULL, /* so that there is one without any module too */
};

static const char *const names[] = {
#define CUDA_MODULE(name) #name,
#include "modules.def"
#undef CUDA_MODULE
    NULL,
};

static int32_t load(struct cuda_context *context, enum cuda_module module, cuda_handle *out,
                    struct attn_error *err)
{
    char call[64];
    cuda_result result = CUDA_SUCCESS;

    pthread_mutex_lock(&context->lock);
    if (context->modules[module] == NULL)
        result = context->driver->cuModuleLoadData(&context->modules[module], images[module]);
    if (result != CUDA_SUCCESS)
        context->modules[module] = NULL;
    *out = context->modules[module];
    pthread_mutex_unlock(&context->lock);
    snprintf(call, sizeof call, "cuModuleLoadData of %s", names[module]);
    return cuda_check(context, result, "module", call, err);
}

int32_t cuda_module_function(struct cuda_context *context, enum cuda_module module, const char *name,
                             uint32_t shared_bytes, cuda_handle *out, struct attn_error *err)
{
    const struct cuda_driver *driver = context->driver;
    char call[128];
    cuda_handle loaded;
    int32_t status = load(context, module, &loaded, err);

    *out = NULL;
    if (status != ATTN_OK)
        return status;
    snprintf(call, sizeof call, "cuModuleGetFunction of %s", name);
    status = cuda_check(context, driver->cuModuleGetFunction(out, loaded, name), "kernel", call, err);
    /* A driver that loads code on first use would do so inside of somebody's capture. */
    if (status == ATTN_OK && driver->cuFuncLoad != NULL)
        status = cuda_check(context, driver->cuFuncLoad(*out), "kernel", "cuFuncLoad", err);
    if (status == ATTN_OK && shared_bytes > 0)
        status = cuda_check(
            context, driver->cuFuncSetAttribute(*out, CUDA_FUNCTION_MAX_DYNAMIC_SHARED, (int)shared_bytes),
            "kernel", "cuFuncSetAttribute", err);
    return status;
}

void cuda_module_unload_all(struct cuda_context *context)
{
    for (uint32_t i = 0; i < CUDA_MODULES; i++) {
        if (context->modules[i] != NULL && !cuda_is_lost(context))
            (void)cuda_check(context, context->driver->cuModuleUnload(context->modules[i]), "module",
                             "cuModuleUnload", NULL);
        context->modules[i] = NULL;
    }
}
