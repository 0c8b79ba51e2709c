/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the HIP plugin declares of the runtime, against hip/hip_runtime_api.h of the ROCm that is installed.
 */
#if !__has_include(<hip/hip_runtime_api.h>)
#include <cstdio>
int main()
{
    std::puts("1..0 # SKIP no hip/hip_runtime_api.h");
}
#else
#define __HIP_PLATFORM_AMD__          1
#define __HIP_DISABLE_CPP_FUNCTIONS__ 1
#include <hip/hip_runtime_api.h>
#if HIP_VERSION >= 60000000
#include <hip/hip_deprecated.h> /* the older layout of properties */
#endif

/* What the header deprecates the library has all the same. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#include "declarations.h"
#include "driver-values.h"

/* Addresses are void * there: they travel as integers of 64 bits do. */
template <>
struct fits<ours::gpu_pointer, void *> : std::bool_constant<sizeof(void *) == sizeof(gpu_pointer)> {
};
template <> struct fits<ours::gpu_result, hipError_t> : std::bool_constant<sizeof(hipError_t) == 4> {
};

/* Two layouts of properties since ROCm 6, where the plain name of the file stays the older one. */
#if HIP_VERSION < 60000000
typedef hipDeviceProp_t older_properties;
extern const absent hipGetDevicePropertiesR0600;
extern const absent hipGetDevicePropertiesR0000;
#else
typedef hipDeviceProp_tR0000 older_properties;
template <> struct fits<void, hipDeviceProp_tR0600> : std::true_type {
};
#undef hipGetDeviceProperties
extern "C" decltype(hipGetDevicePropertiesR0000) hipGetDeviceProperties;
#endif
template <> struct fits<void, older_properties> : std::true_type {
};

/* In C++ there are overloads beside the function of the file, which is this one. */
hipError_t (*vendors(hipError_t (*hip_malloc_async)(void **, size_t, hipStream_t)))(void **, size_t,
                                                                                    hipStream_t);

#if HIP_VERSION < 70100000
extern const absent hipMemcpyBatchAsync;

static void judge_structs()
{
}
#else
template <> struct fits<gpu_copy_attributes, hipMemcpyAttributes> : std::true_type {
};

static void judge_structs()
{
    judge_number("size of gpu_copy_attributes", sizeof(gpu_copy_attributes), sizeof(hipMemcpyAttributes));
    JUDGE_MEMBER(gpu_copy_attributes, source_order, hipMemcpyAttributes, srcAccessOrder);
    JUDGE_MEMBER(gpu_copy_attributes, source_hint, hipMemcpyAttributes, srcLocHint);
    JUDGE_MEMBER(gpu_copy_attributes, target_hint, hipMemcpyAttributes, dstLocHint);
    JUDGE_MEMBER(gpu_copy_attributes, flags, hipMemcpyAttributes, flags);
    judge_number("GPU_COPY_IN_STREAM_ORDER", GPU_COPY_IN_STREAM_ORDER, hipMemcpySrcAccessOrderStream);
}
#endif

/* What the runtime has no name for is CUDA's alone, and stands for itself here. */
#define CODES(X)                                                                                             \
    X(GPU_SUCCESS, hipSuccess)                                                                               \
    X(GPU_INVALID_VALUE, hipErrorInvalidValue)                                                               \
    X(GPU_OUT_OF_MEMORY, hipErrorOutOfMemory)                                                                \
    X(GPU_DEINITIALIZED, hipErrorDeinitialized)                                                              \
    X(GPU_STUB_LIBRARY, GPU_STUB_LIBRARY)                                                                    \
    X(GPU_NO_DEVICE, hipErrorNoDevice)                                                                       \
    X(GPU_INVALID_IMAGE, hipErrorInvalidImage)                                                               \
    X(GPU_NO_BINARY_FOR_GPU, hipErrorNoBinaryForGpu)                                                         \
    X(GPU_ECC_UNCORRECTABLE, hipErrorECCNotCorrectable)                                                      \
    X(GPU_NVLINK_UNCORRECTABLE, GPU_NVLINK_UNCORRECTABLE)                                                    \
    X(GPU_CONTAINED, GPU_CONTAINED)                                                                          \
    X(GPU_NOT_READY, hipErrorNotReady)                                                                       \
    X(GPU_ILLEGAL_ADDRESS, hipErrorIllegalAddress)                                                           \
    X(GPU_LAUNCH_TIMEOUT, hipErrorLaunchTimeOut)                                                             \
    X(GPU_CONTEXT_IS_DESTROYED, hipErrorContextIsDestroyed)                                                  \
    X(GPU_ASSERT, hipErrorAssert)                                                                            \
    X(GPU_HARDWARE_STACK_ERROR, GPU_HARDWARE_STACK_ERROR)                                                    \
    X(GPU_ILLEGAL_INSTRUCTION, GPU_ILLEGAL_INSTRUCTION)                                                      \
    X(GPU_MISALIGNED_ADDRESS, GPU_MISALIGNED_ADDRESS)                                                        \
    X(GPU_INVALID_ADDRESS_SPACE, GPU_INVALID_ADDRESS_SPACE)                                                  \
    X(GPU_INVALID_PC, GPU_INVALID_PC)                                                                        \
    X(GPU_LAUNCH_FAILED, hipErrorLaunchFailure)                                                              \
    X(GPU_NOT_SUPPORTED, hipErrorNotSupported)                                                               \
    X(GPU_CAPTURE_FIRST, hipErrorStreamCaptureUnsupported)                                                   \
    X(GPU_CAPTURE_LAST, hipErrorStreamCaptureWrongThread)                                                    \
    X(GPU_UNKNOWN, hipErrorUnknown)

static void judge_numbers()
{
    JUDGE_CODES(CODES);
    judge_number("INVALID_DEVICE", INVALID_DEVICE, hipErrorInvalidDevice);
    judge_number("GPU_STREAM_NON_BLOCKING", GPU_STREAM_NON_BLOCKING, hipStreamNonBlocking);
    judge_number("GPU_EVENT_DISABLE_TIMING", GPU_EVENT_DISABLE_TIMING, hipEventDisableTiming);
    judge_number("GPU_HOST_PORTABLE", GPU_HOST_PORTABLE, hipHostMallocPortable);
    judge_number("GPU_CAPTURE_RELAXED", GPU_CAPTURE_RELAXED, hipStreamCaptureModeRelaxed);
    judge_number("a stream that is not captured", 0, hipStreamCaptureStatusNone);
}

/* The name of a device is first in each layout, and its architecture a text of ARCH_NAME bytes. */
template <class Properties> static void judge_layout(const char *name, const layout &mine)
{
    const std::string of = std::string(name) + ": ";

    judge_number((of + "name").c_str(), 0, offsetof(Properties, name));
    judge_number((of + "memory").c_str(), mine.memory, offsetof(Properties, totalGlobalMem));
    judge_number((of + "size of memory").c_str(), sizeof(uint64_t), sizeof(Properties::totalGlobalMem));
    judge_number((of + "units").c_str(), mine.units, offsetof(Properties, multiProcessorCount));
    judge_number((of + "size of units").c_str(), sizeof(int), sizeof(Properties::multiProcessorCount));
    judge_number((of + "arch").c_str(), mine.arch, offsetof(Properties, gcnArchName));
    judge_number((of + "size of arch").c_str(), ARCH_NAME, sizeof(Properties::gcnArchName));
    judge(sizeof(Properties) <= PROPERTIES, of + "room", "the header's are larger than PROPERTIES");
}

/* Texts of errors are no lines of driver.def, for they return a text. */
static void judge_texts()
{
    typedef const char *(*text)(ours::gpu_result);

    static_assert(std::is_same_v<error_text_fn, const char *(*)(gpu_result)>);
    judge_entry<text, decltype(&hipGetErrorName)>("hipGetErrorName", "hipGetErrorName",
                                                  RESOLVED(hipGetErrorName), false);
    judge_entry<text, decltype(&hipGetErrorString)>("hipGetErrorString", "hipGetErrorString",
                                                    RESOLVED(hipGetErrorString), false);
}

int main()
{
    std::printf("# HIP %d.%d\n", HIP_VERSION_MAJOR, HIP_VERSION_MINOR);
#define GPU_ENTRY(name, call, symbol, optional, parameters)                                                  \
    judge_entry<decltype(ours::functions::name), decltype(vendors(&call))>(#call, symbol, RESOLVED(call),    \
                                                                           optional);
#include "driver.def"
    judge_texts();
    judge_structs();
    judge_numbers();
    judge_layout<older_properties>("r0000", r0000);
#if HIP_VERSION >= 60000000
    judge_layout<hipDeviceProp_tR0600>("r0600", r0600);
#endif
    return judged();
}
#endif
