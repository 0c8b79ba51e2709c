/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Names of the HIP runtime's errors. */
#include "stand-in-entries.h"

static const struct {
    hip_result result;
    const char *name, *text;
} errors[] = {
    {0, "hipSuccess", "no error"},
    {1, "hipErrorInvalidValue", "invalid argument"},
    {2, "hipErrorOutOfMemory", "out of memory"},
    {3, "hipErrorNotInitialized", "initialization error"},
    {9, "hipErrorInvalidConfiguration", "invalid configuration argument"},
    {100, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {101, "hipErrorInvalidDevice", "invalid device ordinal"},
    {200, "hipErrorInvalidImage", "device kernel image is invalid"},
    {201, "hipErrorInvalidContext", "invalid device context"},
    {209, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {400, "hipErrorInvalidHandle", "invalid resource handle"},
    {500, "hipErrorNotFound", "named symbol not found"},
    {600, "hipErrorNotReady", "device not ready"},
    {700, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {719, "hipErrorLaunchFailure", "unspecified launch failure"},
    {801, "hipErrorNotSupported", "operation not supported"},
    {900, "hipErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "hipErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {999, "hipErrorUnknown", "unknown error"},
};

enum { ERRORS = sizeof errors / sizeof errors[0] };

static int find(hip_result result)
{
    int i = 0;

    while (i < ERRORS - 1 && errors[i].result != result)
        i++;
    return i; /* the last one is that of all others */
}

const char *hipGetErrorName(hip_result result)
{
    return errors[find(result)].name;
}

const char *hipGetErrorString(hip_result result)
{
    return errors[find(result)].text;
}
