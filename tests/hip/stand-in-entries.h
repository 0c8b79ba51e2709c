/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The functions of libamdhip64 that the HIP runtime for tests exports, as ROCm 5, 6 and 7 have them. */
#ifndef STAND_IN_ENTRIES_H
#define STAND_IN_ENTRIES_H

#include "stand-in.h"

HIP_API hip_result hipInit(unsigned flags);
HIP_API hip_result hipRuntimeGetVersion(int *out);
HIP_API hip_result hipDriverGetVersion(int *out);
HIP_API const char *hipGetErrorName(hip_result result);
HIP_API const char *hipGetErrorString(hip_result result);
HIP_API hip_result hipGetDeviceCount(int *count);
HIP_API hip_result hipDeviceGet(int *device, int ordinal);
HIP_API hip_result hipDeviceGetName(char *name, int size, int device);
HIP_API hip_result hipDeviceTotalMem(size_t *bytes, int device);
HIP_API hip_result hipDeviceGetAttribute(int *value, int attribute, int device);
HIP_API hip_result hipGetDevicePropertiesR0600(void *out, int device);
HIP_API hip_result hipGetDevicePropertiesR0000(void *out, int device);
HIP_API hip_result hipGetDeviceProperties(void *out, int device);
HIP_API hip_result hipSetDevice(int device);
HIP_API hip_result hipGetDevice(int *device);

HIP_API hip_result hipMalloc(void **out, size_t size);
HIP_API hip_result hipFree(void *memory);
HIP_API hip_result hipMallocAsync(void **out, size_t size, void *stream);
HIP_API hip_result hipFreeAsync(void *memory, void *stream);
HIP_API hip_result hipHostMalloc(void **out, size_t size, unsigned flags);
HIP_API hip_result hipHostFree(void *memory);
HIP_API hip_result hipMemcpyHtoDAsync(void *to, const void *from, size_t size, void *stream);
HIP_API hip_result hipMemcpyDtoHAsync(void *to, void *from, size_t size, void *stream);
HIP_API hip_result hipMemcpyDtoDAsync(void *to, void *from, size_t size, void *stream);
HIP_API hip_result hipMemcpyBatchAsync(void **to, void **from, size_t *sizes, size_t count, void *attributes,
                                       size_t *first, size_t attribute_count, size_t *failed_at,
                                       void *stream);
HIP_API hip_result hipMemsetD8Async(void *to, unsigned char value, size_t size, void *stream);

HIP_API hip_result hipStreamCreateWithFlags(void **out, unsigned flags);
HIP_API hip_result hipStreamDestroy(void *stream);
HIP_API hip_result hipStreamSynchronize(void *stream);
HIP_API hip_result hipStreamBeginCapture(void *stream, int mode);
HIP_API hip_result hipStreamEndCapture(void *stream, void **out);
HIP_API hip_result hipStreamIsCapturing(void *stream, int *status);
HIP_API hip_result hipLaunchHostFunc(void *stream, void (*fn)(void *arg), void *arg);
HIP_API hip_result hipEventCreateWithFlags(void **out, unsigned flags);
HIP_API hip_result hipEventRecord(void *event, void *stream);
HIP_API hip_result hipEventQuery(void *event);
HIP_API hip_result hipEventSynchronize(void *event);
HIP_API hip_result hipEventDestroy(void *event);
HIP_API hip_result hipGraphInstantiateWithFlags(void **out, void *graph, unsigned long long flags);
HIP_API hip_result hipGraphLaunch(void *exec, void *stream);
HIP_API hip_result hipGraphExecDestroy(void *exec);
HIP_API hip_result hipGraphDestroy(void *graph);

HIP_API hip_result hipModuleLoadData(void **out, const void *image);
HIP_API hip_result hipModuleUnload(void *module);
HIP_API hip_result hipModuleGetFunction(void **out, void *module, const char *name);
HIP_API hip_result hipFuncGetAttribute(int *value, int attribute, void *function);
HIP_API hip_result hipModuleLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                         unsigned block_x, unsigned block_y, unsigned block_z,
                                         unsigned shared_bytes, void *stream, void **arguments, void **extra);

#endif
