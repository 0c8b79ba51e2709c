/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the CUDA plugin declares of the driver, against cuda.h of the toolkit that is installed. */
#if !__has_include(<cuda.h>)
#include <cstdio>
int main()
{
    std::puts("1..0 # SKIP no cuda.h");
}
#else
#include <cuda.h>
#include <cudaTypedefs.h>

#include "declarations.h"
#include "driver-values.h"

template <> struct fits<ours::gpu_result, CUresult> : std::bool_constant<sizeof(CUresult) == 4> {
};
template <>
struct fits<ours::gpu_ordinal, CUdevice> : std::bool_constant<std::is_same_v<CUdevice, ::gpu_ordinal>> {
};
template <>
struct fits<ours::gpu_pointer, CUdeviceptr>
    : std::bool_constant<sizeof(CUdeviceptr) == sizeof(::gpu_pointer) && std::is_unsigned_v<CUdeviceptr>> {
};

template <> struct fits<gpu_tensor_map, CUtensorMap> : std::bool_constant<sizeof(CUtensorMap) == 128> {
};

/*
 * Functions that came after the oldest driver, and so are optional. Of the copy of batches the symbol stays
 * the one of 12.8, which later drivers have too: that of 13 lost `failed_at`, and another name.
 */
#if CUDA_VERSION < 12040
extern const absent cuFuncLoad;
#endif
#if CUDA_VERSION < 12080
extern const absent cuMemcpyBatchAsync;
#define CUDA_ERROR_CONTAINED GPU_CONTAINED /* which such a driver does not return */
#elif CUDA_VERSION >= 13000
#undef cuMemcpyBatchAsync
extern "C" std::remove_pointer_t<PFN_cuMemcpyBatchAsync_v12080> cuMemcpyBatchAsync;
#endif

#if CUDA_VERSION >= 12080
template <> struct fits<gpu_copy_attributes, CUmemcpyAttributes> : std::true_type {
};

static void judge_structs()
{
    judge_number("size of gpu_copy_attributes", sizeof(gpu_copy_attributes), sizeof(CUmemcpyAttributes));
    JUDGE_MEMBER(gpu_copy_attributes, source_order, CUmemcpyAttributes, srcAccessOrder);
    JUDGE_MEMBER(gpu_copy_attributes, source_hint, CUmemcpyAttributes, srcLocHint);
    JUDGE_MEMBER(gpu_copy_attributes, target_hint, CUmemcpyAttributes, dstLocHint);
    JUDGE_MEMBER(gpu_copy_attributes, flags, CUmemcpyAttributes, flags);
    judge_number("GPU_COPY_IN_STREAM_ORDER", GPU_COPY_IN_STREAM_ORDER, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
}
#else
static void judge_structs()
{
}
#endif

#define CODES(X)                                                                                             \
    X(GPU_SUCCESS, CUDA_SUCCESS)                                                                             \
    X(GPU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE)                                                           \
    X(GPU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)                                                           \
    X(GPU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED)                                                           \
    X(GPU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY)                                                             \
    X(GPU_NO_DEVICE, CUDA_ERROR_NO_DEVICE)                                                                   \
    X(GPU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE)                                                           \
    X(GPU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU)                                                   \
    X(GPU_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE)                                                   \
    X(GPU_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE)                                             \
    X(GPU_CONTAINED, CUDA_ERROR_CONTAINED)                                                                   \
    X(GPU_NOT_READY, CUDA_ERROR_NOT_READY)                                                                   \
    X(GPU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS)                                                       \
    X(GPU_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT)                                                         \
    X(GPU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED)                                             \
    X(GPU_ASSERT, CUDA_ERROR_ASSERT)                                                                         \
    X(GPU_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR)                                             \
    X(GPU_ILLEGAL_INSTRUCTION, CUDA_ERROR_ILLEGAL_INSTRUCTION)                                               \
    X(GPU_MISALIGNED_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS)                                                 \
    X(GPU_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_ADDRESS_SPACE)                                           \
    X(GPU_INVALID_PC, CUDA_ERROR_INVALID_PC)                                                                 \
    X(GPU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED)                                                           \
    X(GPU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED)                                                           \
    X(GPU_CAPTURE_FIRST, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)                                              \
    X(GPU_CAPTURE_LAST, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)                                              \
    X(GPU_UNKNOWN, CUDA_ERROR_UNKNOWN)

static void judge_numbers()
{
    JUDGE_CODES(CODES);
    judge_number("GPU_STREAM_NON_BLOCKING", GPU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
    judge_number("GPU_EVENT_DISABLE_TIMING", GPU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
    judge_number("GPU_HOST_PORTABLE", GPU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
    judge_number("GPU_CAPTURE_RELAXED", GPU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
    judge_number("a stream that is not captured", 0, CU_STREAM_CAPTURE_STATUS_NONE);
    judge_number("LEGACY_STREAM", LEGACY_STREAM, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    judge_number("DEVICE_MULTIPROCESSORS", DEVICE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    judge_number("DEVICE_MAJOR", DEVICE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    judge_number("DEVICE_MINOR", DEVICE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    judge_number("MAP_UINT16", MAP_UINT16, CU_TENSOR_MAP_DATA_TYPE_UINT16);
    judge_number("MAP_NO_INTERLEAVE", MAP_NO_INTERLEAVE, CU_TENSOR_MAP_INTERLEAVE_NONE);
    judge_number("MAP_SWIZZLE_128", MAP_SWIZZLE_128, CU_TENSOR_MAP_SWIZZLE_128B);
    judge_number("MAP_PROMOTE_256", MAP_PROMOTE_256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
    judge_number("MAP_FILL_ZEROS", MAP_FILL_ZEROS, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    judge_number("FUNCTION_MAX_DYNAMIC_SHARED", FUNCTION_MAX_DYNAMIC_SHARED,
                 CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
}

/* The lookup is no line of driver.def, and says its result as the plain int that it is. */
static void judge_lookup()
{
    typedef ours::gpu_result (*lookup)(const char *, void **, int, uint64_t, int *);

    static_assert(
        std::is_same_v<get_address_fn, gpu_result (*)(const char *, void **, int, uint64_t, int *)>);
    judge_entry<lookup, decltype(&cuGetProcAddress)>("cuGetProcAddress", GET_ADDRESS,
                                                     RESOLVED(cuGetProcAddress), false);
}

int main()
{
    if (CUDA_VERSION < DRIVER_MIN) {
        std::puts("1..0 # SKIP cuda.h is older than the oldest driver that serves");
        return 0;
    }
    std::printf("# cuda.h %d\n", CUDA_VERSION);
#define GPU_ENTRY(name, call, symbol, optional, parameters)                                                  \
    judge_entry<decltype(ours::functions::name), decltype(vendors(&call))>(#call, symbol, RESOLVED(call),    \
                                                                           optional);
#include "driver.def"
    judge_lookup();
    judge_structs();
    judge_numbers();
    return judged();
}
#endif
