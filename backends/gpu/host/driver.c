/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens the driver at run time and fills the table of its functions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>

#include "host.h"

struct entry {
    const char *call;
    const char *symbol;
    size_t offset;
    bool optional;
};

static const struct entry entries[] = {
#define GPU_ENTRY(name_, call_, symbol_, optional_, parameters_)                                             \
    {#call_, symbol_, offsetof(struct gpu_driver, name_), (optional_) != 0},
#include "driver.def"
};

const struct gpu_names gpu_names = {
#define GPU_ENTRY(name_, call_, symbol_, optional_, parameters_) .name_ = #call_,
#include "driver.def"
};

static int32_t find_entries(struct gpu_driver *driver, const char *library, struct attn_error *err)
{
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *address = gpu_vendor_find(driver, entries[i].call, entries[i].symbol);
        if (address == NULL && !entries[i].optional)
            return attn__fail(err, ATTN_E_DEVICE, ATTN_REASON_NO_DRIVER, "driver",
                              GPU_VENDOR_DRIVER " %s has no %s; " GPU_VENDOR_NEEDED " is needed", library,
                              entries[i].symbol);
        memcpy((char *)driver + entries[i].offset, &address, sizeof address);
    }
    return ATTN_OK;
}

/* Opens the named file, or else the first one found of the driver's usual names. */
static void *open_library(const char *named, const char **out_path)
{
    void *library = NULL;

    /* The library is never unloaded, because a driver has threads and exit handlers. */
    for (uint32_t i = 0; library == NULL && (i == 0 || (named == NULL && gpu_vendor_libraries[i] != NULL));
         i++) {
        *out_path = named != NULL ? named : gpu_vendor_libraries[i];
        library = dlopen(*out_path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    return library;
}

int32_t gpu_driver_open(struct gpu_driver *driver, const char *library, int *out_devices,
                        struct attn_error *err)
{
    const char *named = library != NULL && *library != '\0' ? library : NULL, *path = NULL;

    *driver = (struct gpu_driver){0};
    *out_devices = 0;
    driver->library = open_library(named, &path);
    if (driver->library == NULL) {
        const char *why = dlerror();
        return attn__fail(err, ATTN_E_DEVICE, ATTN_REASON_NO_DRIVER,
                          named != NULL ? GPU_VENDOR_LIBRARY : "driver",
                          GPU_VENDOR_DRIVER " cannot be opened: %s", why != NULL ? why : path);
    }
    int32_t status = find_entries(driver, path, err);
    if (status == ATTN_OK)
        status = gpu_vendor_start(driver, path, out_devices, err);
    if (status != ATTN_OK)
        gpu_driver_close(driver);
    return status;
}

void gpu_driver_close(struct gpu_driver *driver)
{
    if (driver->library != NULL)
        dlclose(driver->library);
    *driver = (struct gpu_driver){0};
}
