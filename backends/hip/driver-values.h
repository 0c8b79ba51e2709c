/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Numbers and layouts of the runtime beside driver.def; tests/hip/test-headers.cc compares them. */
#ifndef ATTN_HIP_DRIVER_VALUES_H
#define ATTN_HIP_DRIVER_VALUES_H

#include "driver.h"

/* Results of a runtime without a device: hipErrorNoDevice, and hipErrorInvalidDevice from hipInit. */
#define INVALID_DEVICE 101

typedef const char *(*error_text_fn)(gpu_result result);

/* Offsets of device properties, in both layouts of hipDeviceProp_t. */
struct layout {
    size_t memory, units, arch;
};
static const struct layout r0600 = {288, 388, 1160}, r0000 = {256, 336, 396};
/* More than any layout has, and room for what later ones add. */
enum { PROPERTIES = 8192, ARCH_NAME = 256 };

#endif
