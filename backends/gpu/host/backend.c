/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Instances and backends, the table of plans, and the plugin's entry. */
#include <stdlib.h>

#include "host.h"

static int32_t check_device(const struct attn_instance *instance, const struct attn_device *device,
                            const struct gpu_device_record **out, struct attn_error *err)
{
    const char *served = NULL;

    *out = device != NULL ? gpu_device_find(instance, device) : NULL;
    if (*out == NULL)
        return attn__fail(err, ATTN_E_INVALID, ATTN_REASON_DEVICE, "device",
                          "only the devices " GPU_VENDOR_DEVICE ":0 to " GPU_VENDOR_DEVICE
                          ":N that attn-info devices lists are accepted");
    if (!gpu_vendor_serves(*out, &served))
        return attn__fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_DEVICE_ARCH, "device",
                          GPU_VENDOR_DEVICE ":%d is %s (%s); served: %s", device->ordinal, (*out)->info.name,
                          (*out)->info.arch, served);
    return ATTN_OK;
}

int32_t gpu_backend_open(struct attn_instance *instance, const struct attn_device *device,
                         const struct attn_open_config *config, struct attn_backend_impl **out,
                         struct attn_error *err)
{
    const struct gpu_device_record *record;
    int32_t status = gpu_instance_open(instance, err);

    *out = NULL;
    if (status == ATTN_OK)
        status = check_device(instance, device, &record, err);
    if (status != ATTN_OK)
        return status;
    struct attn_backend_impl *backend = calloc(1, sizeof *backend);
    if (backend == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "backend", "no memory for the backend");
    backend->instance = instance;
    status = gpu_context_open(instance, record, config != NULL ? config->native_context : NULL,
                              &backend->context, err);
    if (status == ATTN_OK) {
        status = gpu_kv_open(backend, err);
        if (status != ATTN_OK)
            gpu_context_close(backend->context);
    }
    if (status != ATTN_OK) {
        free(backend);
        return status;
    }
    pthread_mutex_init(&backend->lock, NULL);
    *out = backend;
    return ATTN_OK;
}

void gpu_backend_close(struct attn_backend_impl *backend)
{
    if (backend == NULL)
        return;
    gpu_context_close(backend->context);
    pthread_mutex_destroy(&backend->lock);
    free(backend);
}

const struct attn_plan_table gpu_plan_table = {
    .struct_size = sizeof gpu_plan_table,
    .create = gpu_plan_create,
    .sizes = gpu_plan_sizes,
    .prepare = gpu_plan_prepare,
    .prepare_many = gpu_plan_prepare_many,
    .run = gpu_plan_run,
    .destroy = gpu_plan_destroy,
    .describe = gpu_plan_describe,
};

static void finish(struct attn_instance *instance)
{
    if (instance == NULL)
        return;
    gpu_driver_close(&instance->driver);
    pthread_mutex_destroy(&instance->lock);
    free(instance->devices);
    free(instance);
}

static int32_t get_backends(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *out_count, struct attn_error *err)
{
    (void)instance;
    (void)err;
    *out = gpu_vendor_backends;
    *out_count = gpu_vendor_backend_count;
    return ATTN_OK;
}

static const struct attn_plugin plugin = {
    .struct_size = sizeof plugin,
    .abi_major = ATTN_ABI_MAJOR,
    .abi_minor = ATTN_ABI_MINOR,
    ATTN_PLUGIN_SIZES,
    .name = GPU_VENDOR_NAME,
    .vendor = "libattn",
    .version = GPU_PLUGIN_VERSION,
    .get_devices = gpu_get_devices,
    .get_backends = get_backends,
    .finish = finish,
    .device_type = GPU_VENDOR_DEVICE,
};

int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
    const uint32_t needed = offsetof(struct attn_host, get_option) + sizeof host->get_option;

    if (host == NULL || out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "host", "host and out are needed");
    if (host->struct_size < needed || host->out_instance == NULL)
        return attn__fail(err, ATTN_E_ABI, 0, "host", "the host's table has %u bytes, at least %u are needed",
                          host->struct_size, needed);
    struct attn_instance *instance = calloc(1, sizeof *instance);
    if (instance == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "instance", "no memory for the instance");
    memcpy(&instance->host, host,
           host->struct_size < sizeof instance->host ? host->struct_size : sizeof instance->host);
    pthread_mutex_init(&instance->lock, NULL);
    *host->out_instance = instance;
    *out = &plugin;
    return ATTN_OK;
}
