/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The fake driver's devices and contexts, and every thread's stack of them. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "fake-state.h"

/* Attributes of devices. */
enum { DEVICE_MULTIPROCESSORS = 16, DEVICE_MAJOR = 75, DEVICE_MINOR = 76 };

#define STACK_MAX 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_object *primary[FAKE_DEVICES_MAX];
static uint32_t retained[FAKE_DEVICES_MAX];
static _Thread_local struct fake_object *stack[STACK_MAX];
static _Thread_local uint32_t depth;

struct fake_object *fake_context(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

void fake_devices_reset(void)
{
    memset(primary, 0, sizeof primary);
    memset(retained, 0, sizeof retained);
    depth = 0;
}

uint32_t fake_retained(int ordinal)
{
    return retained[ordinal];
}

gpu_handle fake_current(uint32_t *out_depth)
{
    *out_depth = depth;
    return fake_context();
}

gpu_handle fake_context_push(int ordinal)
{
    struct fake_object *context = fake_new(FAKE_CONTEXT, NULL, (size_t)ordinal);

    stack[depth++] = context;
    return context;
}

void fake_context_pop(void)
{
    depth--;
}

/* ---------------------------------------------------------------- devices */

gpu_result cuDeviceGetCount(int *devices)
{
    gpu_result result = fake_enter("cuDeviceGetCount", false);

    *devices = fake_machine.devices;
    return result;
}

gpu_result cuDeviceGet(gpu_ordinal *device, int ordinal)
{
    gpu_result result = fake_enter("cuDeviceGet", false);

    *device = ordinal;
    return result;
}

gpu_result cuDeviceGetName(char *name, int size, gpu_ordinal device)
{
    gpu_result result = fake_enter("cuDeviceGetName", false);

    snprintf(name, (size_t)size, "Fake GPU %d", device);
    return result;
}

gpu_result cuDeviceGetAttribute(int *value, int attribute, gpu_ordinal device)
{
    gpu_result result = fake_enter("cuDeviceGetAttribute", false);

    (void)device;
    *value = attribute == DEVICE_MAJOR             ? fake_machine.major
             : attribute == DEVICE_MINOR           ? fake_machine.minor
             : attribute == DEVICE_MULTIPROCESSORS ? (fake_machine.units != 0 ? fake_machine.units : 4)
                                                   : 0;
    return result;
}

gpu_result cuDeviceTotalMem(size_t *bytes, gpu_ordinal device)
{
    gpu_result result = fake_enter("cuDeviceTotalMem", false);

    (void)device;
    *bytes = fake_machine.memory;
    return result;
}

/* ---------------------------------------------------------------- contexts */

gpu_result cuDevicePrimaryCtxRetain(gpu_handle *context, gpu_ordinal device)
{
    gpu_result result = fake_enter("cuDevicePrimaryCtxRetain", false);

    if (result != GPU_SUCCESS)
        return result;
    struct fake_object *fresh = fake_new(FAKE_CONTEXT, NULL, (size_t)device);
    pthread_mutex_lock(&lock);
    primary[device] = primary[device] == NULL ? fresh : primary[device];
    retained[device]++;
    *context = primary[device];
    pthread_mutex_unlock(&lock);
    if (*context != fresh)
        fake_drop(fresh);
    fake_keep_at_open();
    return GPU_SUCCESS;
}

gpu_result cuDevicePrimaryCtxRelease(gpu_ordinal device)
{
    gpu_result result = fake_enter("cuDevicePrimaryCtxRelease", false);

    pthread_mutex_lock(&lock);
    const bool held = retained[device] > 0;
    retained[device] -= held;
    struct fake_object *last = held && retained[device] == 0 ? primary[device] : NULL;
    if (last != NULL)
        primary[device] = NULL;
    pthread_mutex_unlock(&lock);
    if (last != NULL)
        fake_drop(last);
    if (!held)
        fake_offend("a primary context is released once too often");
    return result;
}

gpu_result cuCtxPushCurrent(gpu_handle context)
{
    gpu_result result = fake_enter("cuCtxPushCurrent", false);

    if (result != GPU_SUCCESS)
        return result;
    if (fake_take(context, FAKE_CONTEXT, "cuCtxPushCurrent") == NULL)
        return GPU_INVALID_VALUE;
    if (depth == STACK_MAX)
        fake_offend("contexts are pushed and not popped");
    else
        stack[depth++] = context;
    return GPU_SUCCESS;
}

gpu_result cuCtxPopCurrent(gpu_handle *context)
{
    gpu_result result = fake_enter("cuCtxPopCurrent", false);

    *context = fake_context();
    if (depth == 0)
        fake_offend("a context is popped that was not pushed");
    else
        depth--;
    return result;
}

gpu_result cuCtxGetDevice(gpu_ordinal *device)
{
    gpu_result result = fake_enter("cuCtxGetDevice", true);

    if (result == GPU_SUCCESS)
        *device = (gpu_ordinal)fake_context()->size;
    return result;
}

/* ---------------------------------------------------------------- contexts of other users of the device */

FAKE_API gpu_result cuCtxGetCurrent(gpu_handle *context);
FAKE_API gpu_result cuCtxSynchronize(void);
FAKE_API gpu_result fake_create(gpu_handle *context, unsigned flags,
                                gpu_ordinal device) __asm__("cuCtxCreate_v2");
FAKE_API gpu_result fake_destroy(gpu_handle context) __asm__("cuCtxDestroy_v2");

gpu_result cuCtxGetCurrent(gpu_handle *context)
{
    *context = fake_context();
    return GPU_SUCCESS;
}

/* All work is done when it is given. */
gpu_result cuCtxSynchronize(void)
{
    return fake_context() != NULL ? GPU_SUCCESS : GPU_INVALID_VALUE;
}

gpu_result fake_create(gpu_handle *context, unsigned flags, gpu_ordinal device)
{
    (void)flags;
    *context = fake_context_push(device);
    return GPU_SUCCESS;
}

gpu_result fake_destroy(gpu_handle context)
{
    if (fake_context() == context)
        fake_context_pop();
    fake_drop(context);
    return GPU_SUCCESS;
}
