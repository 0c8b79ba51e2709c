/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What ggml's own CUDA backend has on the same GPU: buffers, and work to wait for. Its streams are not given
 * to others, and the default stream does not wait for them. */
#define _GNU_SOURCE
#include "client.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Functions of the driver that libattn's plugin has loaded. */
struct driver {
    int (*get)(int *device, int ordinal);
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*synchronize)(void);
};

static struct driver driver;

static bool find_driver(void)
{
    static const char *const names[] = {"cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2",
                                        "cuCtxPopCurrent_v2", "cuCtxSynchronize"};
    void *functions[sizeof names / sizeof names[0]];
    const char *file = getenv("ATTN_CUDA_LIBRARY"); /* as the plugin */
    void *library = dlopen(file != NULL && file[0] != 0 ? file : "libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (library == NULL || (functions[i] = dlsym(library, names[i])) == NULL)
            return false;
    memcpy(&driver, functions, sizeof driver);
    return true;
}

ggml_backend_buffer_type_t beside_buffers(struct device *device)
{
    char name[24];
    int number;
    snprintf(name, sizeof name, "CUDA%d", device->ordinal);
    const ggml_backend_dev_t other = ggml_backend_dev_by_name(name);
    /* Both use the primary context, which is held until the process ends. */
    if (other == NULL || !find_driver() || driver.get(&number, device->ordinal) != 0 ||
        driver.retain(&device->context, number) != 0)
        return NULL;
    return ggml_backend_dev_buffer_type(other);
}

int32_t beside_wait(const struct device *device, struct attn_error *err)
{
    void *popped;
    int result = driver.push(device->context);
    if (result == 0) {
        result = driver.synchronize();
        driver.pop(&popped);
    }
    if (result == 0)
        return ATTN_OK;
    err->status = ATTN_E_DEVICE;
    snprintf(err->message, sizeof err->message, "ggml's own work on %s: error %d of the CUDA driver",
             device->place, result);
    return ATTN_E_DEVICE;
}
