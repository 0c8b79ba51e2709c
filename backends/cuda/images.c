/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The images of the kernels inside this file: fatbins, out of which the driver takes what a device runs. */
#include "host.h"

#define GPU_MODULE(name) extern const unsigned char cuda_image_##name[];
#include "instances.def"

const unsigned char *gpu_vendor_image(const struct gpu_device_record *record, enum gpu_module module)
{
    static const unsigned char *const images[] = {
#define GPU_MODULE(name) cuda_image_##name,
#include "instances.def"
    };

    (void)record;
    return images[module];
}
