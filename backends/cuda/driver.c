/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens the CUDA driver at run time and fills the table of its functions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

#include "cuda.h"

#define DEFAULT_LIBRARY "libcuda.so.1"

/* Functions of the interface CUDA_DRIVER_LEAST, with the classic default stream. */
typedef cuda_result (*get_address_fn)(const char *name, void **out, int version, uint64_t flags, int *status);
#define LEGACY_STREAM 1u

struct entry {
    const char *name;
    const char *symbol;
    size_t offset;
    bool optional;
};

static const struct entry entries[] = {
#define CUDA_ENTRY(name_, symbol_, optional_, parameters_)                                                   \
    {#name_, symbol_, offsetof(struct cuda_driver, name_), (optional_) != 0},
#include "driver.def"
#undef CUDA_ENTRY
};

static int32_t find_entries(struct cuda_driver *driver, const char *library, struct attn_error *err)
{
    get_address_fn get_address = NULL;
    void *address = dlsym(driver->library, "cuGetProcAddress_v2");

    memcpy(&get_address, &address, sizeof address);
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        address = NULL;
        /* The driver's own lookup knows the version; names of the file are what older ones have. */
        if (get_address == NULL ||
            get_address(entries[i].name, &address, CUDA_DRIVER_LEAST, LEGACY_STREAM, NULL) != CUDA_SUCCESS ||
            address == NULL)
            address = dlsym(driver->library, entries[i].symbol);
        if (address == NULL && !entries[i].optional)
            return cuda_fail(err, ATTN_E_DEVICE, ATTN_REASON_NO_DRIVER, "driver",
                             "the CUDA driver %s has no %s; a driver for CUDA %d.%d or newer is needed",
                             library, entries[i].symbol, CUDA_DRIVER_LEAST / 1000,
                             CUDA_DRIVER_LEAST % 1000 / 10);
        memcpy((char *)driver + entries[i].offset, &address, sizeof address);
    }
    return ATTN_OK;
}

void cuda_driver_describe(const struct cuda_driver *driver, cuda_result result, char *out, size_t size)
{
    const char *name = NULL, *text = NULL;

    if (driver->cuGetErrorName == NULL || driver->cuGetErrorName(result, &name) != CUDA_SUCCESS)
        name = NULL;
    if (driver->cuGetErrorString == NULL || driver->cuGetErrorString(result, &text) != CUDA_SUCCESS)
        text = NULL;
    snprintf(out, size, "%s (%d)%s%s", name != NULL ? name : "an unknown error", result,
             text != NULL ? ": " : "", text != NULL ? text : "");
}

static int32_t start(struct cuda_driver *driver, const char *library, int *out_devices,
                     struct attn_error *err)
{
    char text[160];
    cuda_result result = driver->cuDriverGetVersion(&driver->version);

    if (result == CUDA_SUCCESS && driver->version < CUDA_DRIVER_LEAST)
        return cuda_fail(err, ATTN_E_DEVICE, ATTN_REASON_NO_DRIVER, "driver",
                         "the CUDA driver %s is for CUDA %d.%d; one for CUDA %d.%d or newer is needed",
                         library, driver->version / 1000, driver->version % 1000 / 10,
                         CUDA_DRIVER_LEAST / 1000, CUDA_DRIVER_LEAST % 1000 / 10);
    if (result == CUDA_SUCCESS)
        result = driver->cuInit(0);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetCount(out_devices);
    if (result == CUDA_NO_DEVICE) {
        *out_devices = 0;
        return ATTN_OK;
    }
    if (result == CUDA_SUCCESS)
        return ATTN_OK;
    cuda_driver_describe(driver, result, text, sizeof text);
    return cuda_fail(err, ATTN_E_DEVICE, ATTN_REASON_NO_DRIVER, "driver",
                     "the CUDA driver %s does not start: %s", library, text);
}

int32_t cuda_driver_open(struct cuda_driver *driver, const char *library, int *out_devices,
                         struct attn_error *err)
{
    const bool named = library != NULL && *library != '\0';
    const char *path = named ? library : DEFAULT_LIBRARY;

    *driver = (struct cuda_driver){0};
    *out_devices = 0;
    /* A driver has threads and exit handlers of its own: once loaded it has to stay. */
    driver->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (driver->library == NULL) {
        const char *why = dlerror();
        return cuda_fail(err, ATTN_E_DEVICE, ATTN_REASON_NO_DRIVER, named ? "ATTN_CUDA_LIBRARY" : "driver",
                         "the CUDA driver cannot be opened: %s", why != NULL ? why : path);
    }
    int32_t status = find_entries(driver, path, err);
    if (status == ATTN_OK)
        status = start(driver, path, out_devices, err);
    if (status != ATTN_OK)
        cuda_driver_close(driver);
    return status;
}

void cuda_driver_close(struct cuda_driver *driver)
{
    if (driver->library != NULL)
        dlclose(driver->library);
    *driver = (struct cuda_driver){0};
}
