/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Numbers and types of the driver beside driver.def; tests/cuda/test-headers.cc compares them with cuda.h. */
#ifndef ATTN_CUDA_DRIVER_VALUES_H
#define ATTN_CUDA_DRIVER_VALUES_H

#include "driver.h"

/* The oldest supported version of the driver's interface. The legacy default stream is used. */
#define DRIVER_MIN    12000
#define LEGACY_STREAM 1u

/* Attributes of devices and functions. */
enum { DEVICE_MULTIPROCESSORS = 16, DEVICE_MAJOR = 75, DEVICE_MINOR = 76 };
enum { FUNCTION_MAX_THREADS = 0, FUNCTION_MAX_DYNAMIC_SHARED = 8 };

/* Tensor maps: elements of 16 bits, rows of 128 bytes whose chunks are swizzled, reads of 256 bytes by L2. */
enum { MAP_UINT16 = 1, MAP_NO_INTERLEAVE = 0, MAP_SWIZZLE_128 = 3, MAP_PROMOTE_256 = 3, MAP_FILL_ZEROS = 0 };

/* The driver's own lookup, which takes a version. */
typedef gpu_result (*get_address_fn)(const char *name, void **out, int version, uint64_t flags, int *status);
#define GET_ADDRESS "cuGetProcAddress_v2"

#endif
