/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ggml's side: the registry with a device over host memory and one for each GPU, their backends, and the
 * entry points of a plugin. */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char NAME[] = "LIBATTN";

/* ---------------------------------------------------------------- backend */

static const char *backend_name(ggml_backend_t backend)
{
    return ggml_backend_dev_name(backend->device);
}

static void backend_free(ggml_backend_t backend)
{
    attention_destroy(backend->context);
    free(backend);
}

static bool succeeded(int32_t status, const struct attn_error *err)
{
    if (status != ATTN_OK)
        fprintf(stderr, "libattn: %s: %s\n", attn_status_name(status), err->message);
    return status == ATTN_OK;
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    const struct device *device = backend->device->context;
    struct attn_error err;
    ATTN_INIT(&err);
    if (device->context != NULL && !succeeded(beside_wait(device, &err), &err))
        return GGML_STATUS_FAILED;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        if (node->op != GGML_OP_FLASH_ATTN_EXT) /* views, which compute nothing */
            continue;
        if (!succeeded(attention_compute(backend->context, node, &err), &err))
            return GGML_STATUS_FAILED;
    }
    return succeeded(attention_wait(backend->context, &err), &err) ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
}

static void backend_set_n_threads(ggml_backend_t backend, int threads)
{
    attention_set_threads(backend->context, threads > 0 ? (uint32_t)threads : 1);
}

static ggml_guid_t backend_guid(void)
{
    static ggml_guid guid = {0x4c, 0x49, 0x42, 0x41, 0x54, 0x54, 0x4e, 0, 0x67, 0x67, 0x6d, 0x6c, 0, 0, 0, 1};
    return &guid;
}

/* ---------------------------------------------------------------- device */

static const char *device_name(ggml_backend_dev_t ggml_device)
{
    const struct device *device = ggml_device->context;
    return device->label;
}

static const char *device_description(ggml_backend_dev_t ggml_device)
{
    const struct device *device = ggml_device->context;
    return device->description;
}

static void device_memory(ggml_backend_dev_t device, size_t *free_bytes, size_t *total)
{
    (void)device;
    *free_bytes = *total = 0; /* none to be filled with weights */
}

/* Beside a backend that computes all other nodes. For a GPU too: llama.cpp would give whole layers to devices
 * of ggml's class for these. */
static enum ggml_backend_dev_type device_type(ggml_backend_dev_t device)
{
    (void)device;
    return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static void device_props(ggml_backend_dev_t device, struct ggml_backend_dev_props *props)
{
    memset(props, 0, sizeof *props);
    props->name = device_name(device);
    props->description = device_description(device);
    props->type = device_type(device);
    props->caps.buffer_from_host_ptr = device->iface.buffer_from_host_ptr != NULL;
}

static ggml_backend_t device_init(ggml_backend_dev_t device, const char *params)
{
    (void)params;
    ggml_backend_t backend = calloc(1, sizeof *backend);
    struct attention *attention = attention_create(device->context);
    if (backend == NULL || attention == NULL) {
        free(backend);
        free(attention);
        return NULL;
    }
    backend->guid = backend_guid();
    backend->iface.get_name = backend_name;
    backend->iface.free = backend_free;
    backend->iface.graph_compute = backend_compute;
    backend->device = device;
    backend->context = attention;
    return backend;
}

static ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t ggml_device)
{
    struct device *device = ggml_device->context;
    return device->gpu ? memory_type(device, ggml_device) : ggml_backend_cpu_buffer_type();
}

static ggml_backend_buffer_t device_buffer(ggml_backend_dev_t device, void *data, size_t size, size_t largest)
{
    (void)device;
    (void)largest;
    return ggml_backend_cpu_buffer_from_ptr(data, size);
}

static bool device_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op)
{
    switch (op->op) {
    case GGML_OP_NONE:
    case GGML_OP_RESHAPE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
        return true;
    case GGML_OP_FLASH_ATTN_EXT:
        return device_serves(device->context, op);
    default:
        return false;
    }
}

static bool device_supports_buffer(ggml_backend_dev_t ggml_device, ggml_backend_buffer_type_t type)
{
    const struct device *device = ggml_device->context;
    return device->gpu ? type == device_buffer_type(ggml_device) : ggml_backend_buft_is_host(type);
}

/* ---------------------------------------------------------------- registry */

static const char *registry_name(ggml_backend_reg_t registry)
{
    (void)registry;
    return NAME;
}

static size_t registry_count(ggml_backend_reg_t registry)
{
    (void)registry;
    return library_get()->count;
}

static ggml_backend_dev_t registry_device(ggml_backend_reg_t registry, size_t index)
{
    static struct ggml_backend_device devices[MAX_DEVICES];
    struct ggml_backend_device *ggml_device = &devices[index];
    struct device *device = &library_get()->devices[index];
    if (ggml_device->context != NULL)
        return ggml_device;
    ggml_device->iface =
        (struct ggml_backend_device_i){.get_name = device_name,
                                       .get_description = device_description,
                                       .get_memory = device_memory,
                                       .get_type = device_type,
                                       .get_props = device_props,
                                       .init_backend = device_init,
                                       .get_buffer_type = device_buffer_type,
                                       .buffer_from_host_ptr = device->gpu ? NULL : device_buffer,
                                       .supports_op = device_supports_op,
                                       .supports_buft = device_supports_buffer};
    ggml_device->reg = registry;
    ggml_device->context = device;
    return ggml_device;
}

static void *registry_function(ggml_backend_reg_t registry, const char *name)
{
    (void)registry;
    void *function = NULL;
    if (strcmp(name, "ggml_backend_set_n_threads") == 0)
        *(void (**)(ggml_backend_t, int)) & function = backend_set_n_threads;
    return function;
}

/* Called by ggml, whose header does not declare them for plugins that are built elsewhere. */
__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void);
__attribute__((visibility("default"))) int ggml_backend_score(void);

ggml_backend_reg_t ggml_backend_init(void)
{
    static struct ggml_backend_reg registry = {.api_version = GGML_BACKEND_API_VERSION,
                                               .iface = {.get_name = registry_name,
                                                         .get_device_count = registry_count,
                                                         .get_device = registry_device,
                                                         .get_proc_address = registry_function}};
    if (library_get()->failure[0] != 0)
        fprintf(stderr, "libattn: no backend for ggml: %s\n", library_get()->failure);
    return &registry;
}

/* Of several builds of one backend ggml takes that with the highest score, and none with 0. */
int ggml_backend_score(void)
{
    return library_get()->failure[0] == 0 ? 1 : 0;
}
