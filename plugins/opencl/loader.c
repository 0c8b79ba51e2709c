/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens the ICD loader and finds its functions. */
#include <dlfcn.h>

#include "opencl.h"

#define LIBRARY "libOpenCL.so.1"

int32_t opencl_loader_open(void **out_library, struct opencl_functions *out, struct attn_error *err)
{
    const struct {
        const char *name;
        void *place;
    } functions[] = {
#define OPENCL_FUNCTION(name) {#name, &out->name},
#include "functions.def"
#undef OPENCL_FUNCTION
    };
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    *out_library = NULL;
    if (library == NULL)
        return opencl_fail(err, ATTN_E_DEVICE, ATTN_REASON_NO_DRIVER, "device",
                           "the OpenCL loader " LIBRARY " is not found (Debian: ocl-icd-libopencl1)");
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *address = dlsym(library, functions[i].name);
        if (address == NULL) {
            dlclose(library);
            return opencl_fail(err, ATTN_E_DEVICE, ATTN_REASON_NO_DRIVER, "device",
                               LIBRARY " has no function %s; that of OpenCL 1.2 or newer is needed",
                               functions[i].name);
        }
        memcpy(functions[i].place, &address, sizeof address);
    }
    *out_library = library;
    return ATTN_OK;
}
