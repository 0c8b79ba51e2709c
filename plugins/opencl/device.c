/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The devices of all platforms, read once, when they are first asked for. */
#include <dlfcn.h>

#include "opencl.h"

#define MAX_PLATFORMS 32u
#define MAX_DEVICES   64u

static void describe(const struct opencl_functions *cl, struct opencl_device *out, uint32_t ordinal)
{
    cl_ulong bytes = 0;
    cl_uint units = 0;

    ATTN_INIT(&out->info);
    cl->clGetDeviceInfo(out->device, CL_DEVICE_TYPE, sizeof out->type, &out->type, NULL);
    cl->clGetDeviceInfo(out->device, CL_DEVICE_VENDOR, sizeof out->vendor - 1, out->vendor, NULL);
    cl->clGetDeviceInfo(out->device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof out->max_items, &out->max_items,
                        NULL);
    cl->clGetDeviceInfo(out->device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    cl->clGetDeviceInfo(out->device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
    out->info.device_class =
        (out->type & CL_DEVICE_TYPE_CPU) != 0 ? ATTN_CLASS_PORTABLE_CPU : ATTN_CLASS_PORTABLE_ACCELERATOR;
    out->info.device.type = ATTN_DEVICE_OPENCL;
    out->info.device.ordinal = (int32_t)ordinal;
    out->info.memory_bytes = bytes;
    out->info.units = units;
    char text[256] = "";
    cl->clGetDeviceInfo(out->device, CL_DEVICE_NAME, sizeof text - 1, text, NULL);
    snprintf(out->info.name, sizeof out->info.name, "%.63s", text);
    text[0] = '\0';
    cl->clGetDeviceInfo(out->device, CL_DEVICE_VERSION, sizeof text - 1, text, NULL);
    snprintf(out->info.arch, sizeof out->info.arch, "%.31s", text);
}

/* What the kernels need and a device has not. The local memory that they need is what OpenCL 1.2 promises. */
static const char *find_wanted(const struct opencl_functions *cl, cl_device_id device)
{
    cl_bool available = CL_FALSE, compiler = CL_FALSE, little = CL_FALSE;
    cl_uint bits = 0;
    size_t most = 0;

    if (cl->clGetDeviceInfo(device, CL_DEVICE_AVAILABLE, sizeof available, &available, NULL) != CL_SUCCESS ||
        cl->clGetDeviceInfo(device, CL_DEVICE_COMPILER_AVAILABLE, sizeof compiler, &compiler, NULL) !=
            CL_SUCCESS ||
        cl->clGetDeviceInfo(device, CL_DEVICE_ENDIAN_LITTLE, sizeof little, &little, NULL) != CL_SUCCESS ||
        cl->clGetDeviceInfo(device, CL_DEVICE_ADDRESS_BITS, sizeof bits, &bits, NULL) != CL_SUCCESS ||
        cl->clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof most, &most, NULL) != CL_SUCCESS)
        return "one that answers clGetDeviceInfo";
    if (!available)
        return "one that is available";
    if (!compiler)
        return "one with a compiler";
    if (!little || bits != 64)
        return "a little-endian one of 64 bits";
    return most < OPENCL_ITEMS ? "one with work-groups of 64" : NULL;
}

/* Adds the devices of a platform, which may have none. */
static cl_int add_platform(struct attn_instance *instance, cl_platform_id platform)
{
    cl_device_id ids[MAX_DEVICES];
    cl_uint count = 0;
    const cl_int result = instance->cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MAX_DEVICES, ids, &count);

    if (result != CL_SUCCESS)
        return result == CL_DEVICE_NOT_FOUND ? CL_SUCCESS : result;
    for (cl_uint i = 0; i < count && i < MAX_DEVICES && instance->device_count < MAX_DEVICES; i++) {
        struct opencl_device *device = &instance->devices[instance->device_count];
        device->platform = platform;
        device->device = ids[i];
        device->wanted = find_wanted(&instance->cl, ids[i]);
        describe(&instance->cl, device, instance->device_count++);
    }
    return CL_SUCCESS;
}

static int32_t open_loader(struct attn_instance *instance, struct attn_error *err)
{
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint count = 0;
    int32_t status = opencl_loader_open(&instance->library, &instance->cl, err);

    if (status != ATTN_OK)
        return status;
    const cl_int result = instance->cl.clGetPlatformIDs(MAX_PLATFORMS, platforms, &count);
    if (result != CL_SUCCESS || count == 0)
        return opencl_fail(err, ATTN_E_DEVICE, ATTN_REASON_NO_DRIVER, "device",
                           "the OpenCL loader has no platform: clGetPlatformIDs says %s (%d); install a "
                           "vendor's OpenCL driver",
                           opencl_error_name(result), result);
    instance->devices = calloc(MAX_DEVICES, sizeof *instance->devices);
    if (instance->devices == NULL)
        return opencl_fail(err, ATTN_E_MEMORY, 0, "devices", "no memory for the devices");
    /* A platform that cannot be asked takes none of the others with it. */
    cl_int failed = CL_SUCCESS;
    for (cl_uint i = 0; i < count && i < MAX_PLATFORMS; i++) {
        const cl_int added = add_platform(instance, platforms[i]);
        failed = added != CL_SUCCESS ? added : failed;
    }
    return instance->device_count > 0 ? ATTN_OK : opencl_check(failed, "device", "clGetDeviceIDs", err);
}

int32_t opencl_instance_open(struct attn_instance *instance, struct attn_error *err)
{
    pthread_mutex_lock(&instance->lock);
    if (!instance->opened) {
        ATTN_INIT(&instance->open_error);
        instance->open_status = open_loader(instance, &instance->open_error);
        instance->opened = true;
    }
    pthread_mutex_unlock(&instance->lock);
    if (instance->open_status == ATTN_OK)
        return ATTN_OK;
    return opencl_fail(err, instance->open_status, instance->open_error.reason, instance->open_error.field,
                       "%s", instance->open_error.message);
}

void opencl_instance_close(struct attn_instance *instance)
{
    struct opencl_program *program = instance->programs;

    while (program != NULL) {
        struct opencl_program *next = program->next;
        instance->cl.clReleaseProgram(program->program);
        instance->cl.clReleaseContext(program->context);
        free(program);
        program = next;
    }
    for (uint32_t i = 0; i < instance->device_count; i++)
        if (instance->devices[i].context != NULL)
            instance->cl.clReleaseContext(instance->devices[i].context);
    free(instance->devices);
    if (instance->library != NULL)
        dlclose(instance->library);
}

int32_t opencl_get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *out_count, struct attn_error *err)
{
    int32_t status = opencl_instance_open(instance, err);

    *out_count = 0;
    if (status != ATTN_OK)
        return status;
    for (uint32_t i = 0; i < instance->device_count && i < capacity; i++)
        out[i] = instance->devices[i].info;
    *out_count = instance->device_count;
    return ATTN_OK;
}

struct opencl_device *opencl_device_find(const struct attn_instance *instance,
                                         const struct attn_device *device)
{
    if (device->type != ATTN_DEVICE_OPENCL || device->ordinal < 0 ||
        (uint32_t)device->ordinal >= instance->device_count)
        return NULL;
    return &instance->devices[device->ordinal];
}
