/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A plugin of ggml that stands for its CUDA backend in tests: a device CUDA0 that has buffers and computes
 * nothing, over the driver of ATTN_CUDA_LIBRARY, whose memory is the host's. */
#include <dlfcn.h>
#include <ggml-backend-impl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *driver_function(const char *name)
{
    void *library = dlopen(getenv("ATTN_CUDA_LIBRARY"), RTLD_NOW);
    void *function = library != NULL ? dlsym(library, name) : NULL;
    if (function == NULL)
        GGML_ABORT("%s: %s", name, dlerror());
    return function;
}

static struct ggml_backend_device device;

/* ---------------------------------------------------------------- buffers */

static void buffer_free(ggml_backend_buffer_t buffer)
{
    int (*release)(unsigned long long);
    *(void **)&release = driver_function("cuMemFree_v2");
    release((unsigned long long)(uintptr_t)buffer->context);
}

static void *buffer_base(ggml_backend_buffer_t buffer)
{
    return buffer->context;
}

static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data,
                       size_t offset, size_t size)
{
    (void)buffer;
    memcpy((char *)tensor->data + offset, data, size);
}

static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data,
                       size_t offset, size_t size)
{
    (void)buffer;
    memcpy(data, (const char *)tensor->data + offset, size);
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value)
{
    memset(buffer->context, value, buffer->size);
}

static const char *type_name(ggml_backend_buffer_type_t type)
{
    (void)type;
    return "CUDA0";
}

static size_t type_alignment(ggml_backend_buffer_type_t type)
{
    (void)type;
    return 128;
}

/* In the primary context, as ggml's. */
static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t size)
{
    static const struct ggml_backend_buffer_i functions = {.free_buffer = buffer_free,
                                                           .get_base = buffer_base,
                                                           .set_tensor = buffer_set,
                                                           .get_tensor = buffer_get,
                                                           .clear = buffer_clear};
    int (*retain)(void **, int), (*push)(void *), (*allocate)(unsigned long long *, size_t), (*pop)(void **);
    *(void **)&retain = driver_function("cuDevicePrimaryCtxRetain");
    *(void **)&push = driver_function("cuCtxPushCurrent_v2");
    *(void **)&allocate = driver_function("cuMemAlloc_v2");
    *(void **)&pop = driver_function("cuCtxPopCurrent_v2");
    unsigned long long address = 0;
    void *context;
    fprintf(stderr, "CUDA0: a buffer of %zu bytes\n", size); /* for the test to see */
    if (retain(&context, 0) != 0 || push(context) != 0)
        return NULL;
    const int result = allocate(&address, size);
    pop(&context);
    return result == 0 ? ggml_backend_buffer_init(type, functions, (void *)(uintptr_t)address, size) : NULL;
}

/* ---------------------------------------------------------------- device */

static const char *name_of(ggml_backend_dev_t of)
{
    (void)of;
    return "CUDA0";
}

static void memory_of(ggml_backend_dev_t of, size_t *free_bytes, size_t *total)
{
    (void)of;
    *free_bytes = *total = 0;
}

static enum ggml_backend_dev_type class_of(ggml_backend_dev_t of)
{
    (void)of;
    return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static ggml_backend_t open_device(ggml_backend_dev_t of, const char *params)
{
    (void)of;
    (void)params;
    return NULL;
}

static ggml_backend_buffer_type_t type_of(ggml_backend_dev_t of)
{
    static struct ggml_backend_buffer_type type = {
        .iface = {.get_name = type_name, .alloc_buffer = type_alloc, .get_alignment = type_alignment}};
    type.device = of;
    return &type;
}

static bool serves(ggml_backend_dev_t of, const struct ggml_tensor *op)
{
    (void)of;
    (void)op;
    return false;
}

static bool takes(ggml_backend_dev_t of, ggml_backend_buffer_type_t type)
{
    return type == type_of(of);
}

static const char *registry_name(ggml_backend_reg_t registry)
{
    (void)registry;
    return "CUDA";
}

static size_t device_count(ggml_backend_reg_t registry)
{
    (void)registry;
    return 1;
}

static ggml_backend_dev_t get_device(ggml_backend_reg_t registry, size_t index)
{
    (void)index;
    device.reg = registry;
    device.iface = (struct ggml_backend_device_i){.get_name = name_of,
                                                  .get_description = name_of,
                                                  .get_memory = memory_of,
                                                  .get_type = class_of,
                                                  .init_backend = open_device,
                                                  .get_buffer_type = type_of,
                                                  .supports_op = serves,
                                                  .supports_buft = takes};
    return &device;
}

__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void);

ggml_backend_reg_t ggml_backend_init(void)
{
    static struct ggml_backend_reg registry = {
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = {.get_name = registry_name, .get_device_count = device_count, .get_device = get_device}};
    return &registry;
}
