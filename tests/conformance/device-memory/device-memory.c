/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Entry, devices and query: those of the CPU plugin, under another name and device type. */
#include "device-memory.h"

#include <dlfcn.h>
#include <stdlib.h>

#define DEVICE_MEMORY_BACKEND "device-memory/flash-attn"

ATTN_PLUGIN_NOTE("device-memory", "libattn tests", "1", DEVICE_MEMORY_BACKEND,
                 ATTN_CLASS_PORTABLE_ACCELERATOR, ATTN_CPU_BASELINE);

struct attn_instance {
    const struct attn_plugin *plugin; /* the CPU's */
    struct attn_instance *instance;
};

static int32_t get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *out_count, struct attn_error *err)
{
    int32_t status = instance->plugin->get_devices(instance->instance, out, capacity, out_count, err);

    for (uint32_t i = 0; status == ATTN_OK && i < *out_count && i < capacity; i++) {
        out[i].device.type = ATTN_DEVICE_OPENCL;
        out[i].device_class = ATTN_CLASS_PORTABLE_ACCELERATOR;
    }
    return status;
}

static const struct attn_backend_table *near_table(struct attn_instance *instance)
{
    const struct attn_backend_table *const *tables = NULL;
    uint32_t count = 0;

    if (instance->plugin->get_backends(instance->instance, &tables, &count, NULL) != ATTN_OK || count == 0)
        return NULL;
    return tables[0];
}

static const struct attn_device *near_device(const struct attn_device *device, struct attn_device *copy)
{
    if (device == NULL)
        return NULL;
    *copy = *device;
    copy->type = ATTN_DEVICE_CPU;
    return copy;
}

static int32_t query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *problem, struct attn_query *out)
{
    struct attn_device copy;

    return near_table(instance)->query(instance->instance, near_device(device, &copy), problem, out);
}

static int32_t axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count)
{
    return near_table(instance)->axes(instance->instance, out, out_count);
}

static int32_t open_backend(struct attn_instance *instance, const struct attn_device *device,
                            const struct attn_open_config *config, struct attn_backend_impl **out,
                            struct attn_error *err)
{
    struct attn_backend_impl *backend = calloc(1, sizeof *backend);
    struct attn_device copy;

    if (backend == NULL)
        return ATTN_E_MEMORY;
    backend->table = near_table(instance);
    int32_t status =
        backend->table->open(instance->instance, near_device(device, &copy), config, &backend->impl, err);
    if (status == ATTN_OK)
        *out = backend;
    else
        free(backend);
    return status;
}

static void close_backend(struct attn_backend_impl *backend)
{
    backend->table->close(backend->impl);
    free(backend);
}

static int32_t get_backends(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *out_count, struct attn_error *err)
{
    static const struct attn_backend_table table = {
        .struct_size = sizeof table,
        .device_class = ATTN_CLASS_PORTABLE_ACCELERATOR,
        .name = DEVICE_MEMORY_BACKEND,
        .plan = &device_memory_plan,
        .kv = &device_memory_kv,
        .merge = &device_memory_merge,
        .memory = &device_memory_memory,
        .query = query,
        .axes = axes,
        .open = open_backend,
        .close = close_backend,
    };
    static const struct attn_backend_table *const tables[] = {&table};

    (void)instance;
    (void)err;
    *out = tables;
    *out_count = 1;
    return ATTN_OK;
}

static void finish(struct attn_instance *instance)
{
    instance->plugin->finish(instance->instance);
    free(instance);
}

int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
    static const struct attn_plugin plugin = {
        .struct_size = sizeof plugin,
        .abi_major = ATTN_ABI_MAJOR,
        .abi_minor = ATTN_ABI_MINOR,
        ATTN_PLUGIN_SIZES,
        .name = "device-memory",
        .vendor = "libattn tests",
        .version = "1",
        .get_devices = get_devices,
        .get_backends = get_backends,
        .finish = finish,
    };
    typedef int32_t (*entry_fn)(const struct attn_host *, const struct attn_plugin **, struct attn_error *);

    if (host->struct_size < sizeof *host)
        return ATTN_E_ABI;
    void *library = dlopen(DEVICE_MEMORY_CPU, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *symbol = library != NULL ? dlsym(library, "attn_plugin_entry_v1") : NULL;
    struct attn_instance *mine = calloc(1, sizeof *mine);
    struct attn_host other = *host;
    entry_fn entry;

    other.struct_size = sizeof other;
    memcpy(&entry, &symbol, sizeof entry);
    if (library != NULL)
        dlclose(library);
    if (symbol == NULL || mine == NULL) {
        free(mine);
        return ATTN_E_PLUGIN;
    }
    other.out_instance = &mine->instance;
    int32_t status = entry(&other, &mine->plugin, err);
    if (status != ATTN_OK) {
        free(mine);
        return status;
    }
    *host->out_instance = mine;
    *out = &plugin;
    return ATTN_OK;
}
