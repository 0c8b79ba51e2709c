/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ggml's side: the registry with one device over host memory, its backend, and the entry points of a plugin.
 */
#include "client.h"

#include <ggml-backend-impl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char NAME[] = "LIBATTN";

/* ---------------------------------------------------------------- backend */

static const char *backend_name(ggml_backend_t backend)
{
    (void)backend;
    return NAME;
}

static void backend_free(ggml_backend_t backend)
{
    attention_destroy(backend->context);
    free(backend);
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        struct attn_error err;
        if (node->op != GGML_OP_FLASH_ATTN_EXT) /* views, which compute nothing */
            continue;
        ATTN_INIT(&err);
        if (attention_compute(backend->context, node, &err) != ATTN_OK) {
            fprintf(stderr, "libattn: %s: %s\n", attn_status_name(err.status), err.message);
            return GGML_STATUS_FAILED;
        }
    }
    return GGML_STATUS_SUCCESS;
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

static const char *device_name(ggml_backend_dev_t device)
{
    (void)device;
    return NAME;
}

static const char *device_description(ggml_backend_dev_t device)
{
    (void)device;
    return library_get()->description;
}

static void device_memory(ggml_backend_dev_t device, size_t *free_bytes, size_t *total)
{
    (void)device;
    *free_bytes = *total = 0; /* it has none of its own */
}

/* Beside a CPU backend, which computes all other nodes in the same memory. */
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
    props->caps.buffer_from_host_ptr = true;
}

static ggml_backend_t device_init(ggml_backend_dev_t device, const char *params)
{
    (void)params;
    ggml_backend_t backend = calloc(1, sizeof *backend);
    struct attention *attention = attention_create();
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

static ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t device)
{
    (void)device;
    return ggml_backend_cpu_buffer_type();
}

static ggml_backend_buffer_t device_buffer(ggml_backend_dev_t device, void *data, size_t size, size_t largest)
{
    (void)device;
    (void)largest;
    return ggml_backend_cpu_buffer_from_ptr(data, size);
}

static bool device_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op)
{
    (void)device;
    switch (op->op) {
    case GGML_OP_NONE:
    case GGML_OP_RESHAPE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
        return true;
    case GGML_OP_FLASH_ATTN_EXT:
        return library_serves(op);
    default:
        return false;
    }
}

static bool device_supports_buffer(ggml_backend_dev_t device, ggml_backend_buffer_type_t type)
{
    (void)device;
    return ggml_backend_buft_is_host(type);
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
    return library_get()->failure[0] == 0 ? 1 : 0;
}

static ggml_backend_dev_t registry_device(ggml_backend_reg_t registry, size_t index)
{
    static struct ggml_backend_device device = {.iface = {.get_name = device_name,
                                                          .get_description = device_description,
                                                          .get_memory = device_memory,
                                                          .get_type = device_type,
                                                          .get_props = device_props,
                                                          .init_backend = device_init,
                                                          .get_buffer_type = device_buffer_type,
                                                          .buffer_from_host_ptr = device_buffer,
                                                          .supports_op = device_supports_op,
                                                          .supports_buft = device_supports_buffer}};
    (void)index;
    device.reg = registry;
    return &device;
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
