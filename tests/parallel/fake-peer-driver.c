/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the driver that stands in for CUDA's has beside tests/cuda: devices that map memory of each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake-peer.h"
#include "fake-state.h"

#define EXPORT __attribute__((visibility("default")))

/* CUDA's CUipcMemHandle. */
struct handle {
    char bytes[64];
};

EXPORT struct fake_peer fake_peer = {.apart = -1};

EXPORT gpu_result cuStreamQuery(gpu_handle stream);
EXPORT gpu_result cuDeviceGetPCIBusId(char *id, int size, gpu_ordinal device);
EXPORT gpu_result cuDeviceGetByPCIBusId(gpu_ordinal *device, const char *id);
EXPORT gpu_result cuDeviceCanAccessPeer(int *can, gpu_ordinal device, gpu_ordinal peer);
EXPORT gpu_result cuCtxEnablePeerAccess(gpu_handle peer, unsigned flags);
EXPORT gpu_result cuIpcGetMemHandle(struct handle *handle, gpu_pointer address);
EXPORT gpu_result open_handle(gpu_pointer *address, struct handle handle,
                              unsigned flags) __asm__("cuIpcOpenMemHandle_v2");
EXPORT gpu_result cuIpcCloseMemHandle(gpu_pointer address);

gpu_result cuStreamQuery(gpu_handle stream)
{
    const gpu_result result = fake_enter("cuStreamQuery", true);

    return result != GPU_SUCCESS                                     ? result
           : fake_take(stream, FAKE_STREAM, "cuStreamQuery") != NULL ? GPU_SUCCESS
                                                                     : GPU_INVALID_VALUE;
}

gpu_result cuDeviceGetPCIBusId(char *id, int size, gpu_ordinal device)
{
    snprintf(id, (size_t)size, "0000:%02x:00.0", (unsigned)device + 16);
    return fake_enter("cuDeviceGetPCIBusId", false);
}

gpu_result cuDeviceGetByPCIBusId(gpu_ordinal *device, const char *id)
{
    *device = (gpu_ordinal)strtol(id + 5, NULL, 16) - 16;
    return fake_enter("cuDeviceGetByPCIBusId", false);
}

gpu_result cuDeviceCanAccessPeer(int *can, gpu_ordinal device, gpu_ordinal peer)
{
    *can = device != peer && device != fake_peer.apart && peer != fake_peer.apart;
    return fake_enter("cuDeviceCanAccessPeer", false);
}

gpu_result cuCtxEnablePeerAccess(gpu_handle peer, unsigned flags)
{
    const gpu_result result = fake_enter("cuCtxEnablePeerAccess", true);

    __atomic_add_fetch(&fake_peer.enabled, 1, __ATOMIC_RELAXED);
    return result != GPU_SUCCESS                                                          ? result
           : flags == 0 && fake_take(peer, FAKE_CONTEXT, "cuCtxEnablePeerAccess") != NULL ? GPU_SUCCESS
                                                                                          : GPU_INVALID_VALUE;
}

gpu_result cuIpcGetMemHandle(struct handle *handle, gpu_pointer address)
{
    const gpu_result result = fake_enter("cuIpcGetMemHandle", true);

    memset(handle, 0, sizeof *handle);
    memcpy(handle->bytes + 8, &address, sizeof address);
    if (fake_find_memory((const void *)(uintptr_t)address, FAKE_MEMORY) == NULL)
        fake_offend("cuIpcGetMemHandle of memory that is not allocated");
    return result;
}

gpu_result open_handle(gpu_pointer *address, struct handle handle, unsigned flags)
{
    const gpu_result result = fake_enter("cuIpcOpenMemHandle", true);

    memcpy(address, handle.bytes + 8, sizeof *address);
    if (flags != 1 || fake_find_memory((const void *)(uintptr_t)*address, FAKE_MEMORY) == NULL)
        fake_offend("cuIpcOpenMemHandle of no memory, or without access to it");
    if (fake_peer.refuses)
        return GPU_INVALID_VALUE;
    __atomic_add_fetch(&fake_peer.opened, 1, __ATOMIC_RELAXED);
    return result;
}

gpu_result cuIpcCloseMemHandle(gpu_pointer address)
{
    (void)address;
    __atomic_sub_fetch(&fake_peer.opened, 1, __ATOMIC_RELAXED);
    return fake_enter("cuIpcCloseMemHandle", true);
}
