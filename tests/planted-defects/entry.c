/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Entry, device and tables of the defective plugin. */
#include <fcntl.h>
#include <unistd.h>

#include "defect.h"

ATTN_PLUGIN_NOTE("defect", "libattn tests", "0.1.0", "defect/flash-attn", ATTN_CLASS_PORTABLE_CPU,
                 ATTN_CPU_BASELINE);

static int32_t open_backend(struct attn_instance *instance, const struct attn_device *device,
                            const struct attn_open_config *config, struct attn_backend_impl **out,
                            struct attn_error *err)
{
    struct attn_backend_impl *backend = calloc(1, sizeof *backend);

    (void)config;
    *out = NULL;
    if (device == NULL || device->type != ATTN_DEVICE_CPU || device->ordinal != 0) {
        free(backend);
        return attn_util_fail(err, ATTN_E_DEVICE, "device", "there is cpu:0 alone");
    }
    if (backend == NULL)
        return attn_util_fail(err, ATTN_E_MEMORY, "backend", "out of memory");
    backend->instance = instance;
    backend->pool = pool_create();
    if (backend->pool == NULL) {
        free(backend);
        return attn_util_fail(err, ATTN_E_MEMORY, "pool", "no thread can be started");
    }
    instance->host->log(instance->host->ctx, ATTN_LOG_DEBUG, "defect", "one worker was started");
    *out = backend;
    return ATTN_OK;
}

static void close_backend(struct attn_backend_impl *backend)
{
    if (!IS(thread))
        pool_destroy(backend->pool);
    free(backend);
}

static int32_t alloc(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                     struct attn_error *err)
{
    return attn_util_alloc(backend, IS(memory) ? (size & 0xffffffff) + 1 : size, out, err);
}

static const struct attn_memory_table memory = {
    .struct_size = sizeof memory, .alloc = alloc, .free = attn_util_free, .copy = attn_util_copy};

static const struct attn_backend_table backend_table = {.struct_size = sizeof backend_table,
                                                        .device_class = ATTN_CLASS_PORTABLE_CPU,
                                                        .name = "defect/flash-attn",
                                                        .plan = &defect_plan,
                                                        .kv = &defect_kv,
                                                        .merge = &defect_merge,
                                                        .memory = &memory,
                                                        .query = defect_query,
                                                        .axes = defect_axes,
                                                        .open = open_backend,
                                                        .close = close_backend};

/* The highest number of a CPU, and one: the list ends with it. */
static uint32_t count_cpus(void)
{
    char text[128];
    uint32_t number = 0;
    const int file = open("/sys/devices/system/cpu/online", O_RDONLY | O_CLOEXEC);

    if (file < 0)
        return 1;
    const ssize_t size = read(file, text, sizeof text);
    if (!IS(descriptor))
        close(file);
    for (ssize_t i = 0; i < size && text[i] != '\n'; i++)
        number = text[i] >= '0' && text[i] <= '9' ? 10 * number + (uint32_t)(text[i] - '0') : 0;
    return number + 1;
}

static int32_t get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *count, struct attn_error *err)
{
    const struct attn_device_info cpu = {.struct_size = sizeof cpu,
                                         .device_class = ATTN_CLASS_PORTABLE_CPU,
                                         .device = {.type = ATTN_DEVICE_CPU},
                                         .units = count_cpus(),
                                         .name = "any CPU",
                                         .arch = "C"};
    (void)instance, (void)err;
    if (capacity > 0)
        *out = cpu;
    *count = 1;
    return ATTN_OK;
}

static int32_t get_backends(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *count, struct attn_error *err)
{
    static const struct attn_backend_table *const list[] = {&backend_table};

    (void)instance, (void)err;
    *out = list;
    *count = 1;
    return ATTN_OK;
}

static void finish(struct attn_instance *instance)
{
    free(instance);
}

int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
    static const struct attn_host *kept;
    static const struct attn_plugin plugin = {.struct_size = sizeof plugin,
                                              .abi_major = ATTN_ABI_MAJOR,
                                              .abi_minor = ATTN_ABI_MINOR,
                                              ATTN_PLUGIN_SIZES,
                                              .name = "defect",
                                              .vendor = "libattn tests",
                                              .version = "0.1.0",
                                              .get_devices = get_devices,
                                              .get_backends = get_backends,
                                              .finish = finish};
    struct attn_instance *instance = NULL;

    if (host == NULL || out == NULL || host->struct_size < sizeof *host)
        return attn_util_fail(err, ATTN_E_ABI, "host", "a table and a place for the result are needed");
    instance = malloc(sizeof *instance);
    if (instance == NULL)
        return attn_util_fail(err, ATTN_E_MEMORY, "instance", "out of memory");
    if (kept == NULL && IS(host))
        kept = host;
    instance->host = IS(host) ? kept : host;
    *host->out_instance = instance;
    *out = &plugin;
    return ATTN_OK;
}
