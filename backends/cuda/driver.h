/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The CUDA driver as the plugin sees it: a table of functions found at run time, and the few numbers of its
 * interface that are used. Nothing of NVIDIA's is needed to compile or to load this.
 */
#ifndef ATTN_CUDA_DRIVER_H
#define ATTN_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "attn/plugin.h"

typedef int cuda_result;
typedef int cuda_device;
typedef uint64_t cuda_address; /* in device memory */
typedef void *cuda_handle;     /* context, stream, event, graph, module, function */

/* Results that are told apart. */
enum cuda_result_code {
    CUDA_SUCCESS = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_DEINITIALIZED = 4,
    CUDA_STUB_LIBRARY = 34,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_IMAGE = 200,
    CUDA_NO_BINARY_FOR_GPU = 209,
    CUDA_ECC_UNCORRECTABLE = 214,
    CUDA_NVLINK_UNCORRECTABLE = 220,
    CUDA_CONTAINED = 226,
    CUDA_NOT_READY = 600,
    CUDA_ILLEGAL_ADDRESS = 700,
    CUDA_LAUNCH_TIMEOUT = 702,
    CUDA_CONTEXT_IS_DESTROYED = 709,
    CUDA_ASSERT = 710,
    CUDA_HARDWARE_STACK_ERROR = 714,
    CUDA_ILLEGAL_INSTRUCTION = 715,
    CUDA_MISALIGNED_ADDRESS = 716,
    CUDA_INVALID_ADDRESS_SPACE = 717,
    CUDA_INVALID_PC = 718,
    CUDA_LAUNCH_FAILED = 719,
    CUDA_NOT_SUPPORTED = 801,
    CUDA_CAPTURE_FIRST = 900, /* stream capture: unsupported, invalidated, merged, ... */
    CUDA_CAPTURE_LAST = 908,
    CUDA_UNKNOWN = 999
};

/* Attributes of devices and functions. */
enum cuda_attribute {
    CUDA_DEVICE_MULTIPROCESSORS = 16,
    CUDA_DEVICE_MAJOR = 75,
    CUDA_DEVICE_MINOR = 76,
    CUDA_FUNCTION_MAX_DYNAMIC_SHARED = 8
};

#define CUDA_STREAM_NON_BLOCKING  1u
#define CUDA_EVENT_DISABLE_TIMING 2u
#define CUDA_HOST_PORTABLE        1u
#define CUDA_CAPTURE_RELAXED      2

/* How copies of a batch read their sources, and hints where these and the targets are. */
struct cuda_copy_attributes {
    int source_order;
    int source_hint[2];
    int target_hint[2];
    unsigned flags;
};
#define CUDA_COPY_IN_STREAM_ORDER 1

/* The oldest interface of the driver that serves. */
#define CUDA_DRIVER_LEAST 12000

struct cuda_driver {
    void *library;
    int version;
#define CUDA_ENTRY(name, symbol, optional, parameters) cuda_result(*name) parameters;
#include "driver.def"
#undef CUDA_ENTRY
};

/*
 * Opens the library and finds every function. A failure leaves `driver` closed; its reason is NO_DRIVER
 * unless the driver is there and fails. *out_devices is 0 if it says that there is none.
 */
int32_t cuda_driver_open(struct cuda_driver *driver, const char *library, int *out_devices,
                         struct attn_error *err);
void cuda_driver_close(struct cuda_driver *driver);

/* Name and sentence of a result, in the driver's words. */
void cuda_driver_describe(const struct cuda_driver *driver, cuda_result result, char *out, size_t size);

#endif
