/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A vendor's driver as its plugin sees it: a table of functions found at run time, and the few numbers of its
 * interface that are used, which are those of CUDA's driver and of HIP's runtime alike. No header or library
 * of a vendor is needed to compile or to load this.
 */
#ifndef ATTN_GPU_HOST_DRIVER_H
#define ATTN_GPU_HOST_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "attn/plugin.h"

typedef int gpu_result;
typedef int gpu_ordinal;
typedef uint64_t gpu_pointer; /* in device memory */
typedef void *gpu_handle;     /* context, stream, event, graph, module, function */

/* The results that this code distinguishes. */
enum gpu_result_code {
    GPU_SUCCESS = 0,
    GPU_INVALID_VALUE = 1,
    GPU_OUT_OF_MEMORY = 2,
    GPU_DEINITIALIZED = 4,
    GPU_STUB_LIBRARY = 34,
    GPU_NO_DEVICE = 100,
    GPU_INVALID_IMAGE = 200,
    GPU_NO_BINARY_FOR_GPU = 209,
    GPU_ECC_UNCORRECTABLE = 214,
    GPU_NVLINK_UNCORRECTABLE = 220,
    GPU_CONTAINED = 226,
    GPU_NOT_READY = 600,
    GPU_ILLEGAL_ADDRESS = 700,
    GPU_LAUNCH_TIMEOUT = 702,
    GPU_CONTEXT_IS_DESTROYED = 709,
    GPU_ASSERT = 710,
    GPU_HARDWARE_STACK_ERROR = 714,
    GPU_ILLEGAL_INSTRUCTION = 715,
    GPU_MISALIGNED_ADDRESS = 716,
    GPU_INVALID_ADDRESS_SPACE = 717,
    GPU_INVALID_PC = 718,
    GPU_LAUNCH_FAILED = 719,
    GPU_NOT_SUPPORTED = 801,
    GPU_CAPTURE_FIRST = 900, /* stream capture: unsupported, invalidated, merged, ... */
    GPU_CAPTURE_LAST = 908,
    GPU_UNKNOWN = 999
};

#define GPU_STREAM_NON_BLOCKING  1u
#define GPU_EVENT_DISABLE_TIMING 2u
#define GPU_HOST_PORTABLE        1u
#define GPU_CAPTURE_RELAXED      2

/* How the copies of a batch access their sources, and hints on where sources and targets are. */
struct gpu_copy_attributes {
    int source_order;
    int source_hint[2];
    int target_hint[2];
    unsigned flags;
};
#define GPU_COPY_IN_STREAM_ORDER 1

/* Defined in run.h: it is a part of what kernels get. */
struct gpu_tensor_map;

/* The vendor's functions: driver.def has GPU_ENTRY(name, call, symbol, optional, parameters). */
struct gpu_driver {
    void *library;
    int version;
#define GPU_ENTRY(name, call, symbol, optional, parameters) gpu_result(*name) parameters;
#include "driver.def"
};

/* The vendor's names of these functions. */
struct gpu_names {
#define GPU_ENTRY(name, call, symbol, optional, parameters) const char *name;
#include "driver.def"
};
extern const struct gpu_names gpu_names;

/*
 * Opens the library and finds every function. A failure leaves `driver` closed; its reason is NO_DRIVER
 * unless the driver is there and fails. *out_devices is 0 if it says that there is none.
 */
int32_t gpu_driver_open(struct gpu_driver *driver, const char *library, int *out_devices,
                        struct attn_error *err);
void gpu_driver_close(struct gpu_driver *driver);

#endif
