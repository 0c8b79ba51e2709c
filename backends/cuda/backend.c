/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plugin: note, entry, and the tables of both flavours. */
#include <stdlib.h>

#include "cuda.h"

#define TEXT2(x) #x
#define TEXT(x)  TEXT2(x)
#define VERSION  TEXT(LIBATTN_VERSION_MAJOR) "." TEXT(LIBATTN_VERSION_MINOR) "." TEXT(LIBATTN_VERSION_PATCH)

ATTN_PLUGIN_NOTE("cuda", "libattn", VERSION, "cuda/flash-attn,cuda/flashinfer", ATTN_CLASS_ACCELERATOR,
                 ATTN_CPU_BASELINE);

static int32_t query_flash_attn(struct attn_instance *instance, const struct attn_device *device,
                                const struct attn_problem *problem, struct attn_query *out)
{
    return cuda_query(instance, device, problem, 0, out);
}

static int32_t query_flashinfer(struct attn_instance *instance, const struct attn_device *device,
                                const struct attn_problem *problem, struct attn_query *out)
{
    return cuda_query(instance, device, problem, 1, out);
}

static int32_t check_device(const struct attn_instance *instance, const struct attn_device *device,
                            const struct cuda_device_record **out, struct attn_error *err)
{
    *out = device != NULL ? cuda_device_find(instance, device) : NULL;
    if (*out == NULL)
        return cuda_fail(err, ATTN_E_INVALID, ATTN_REASON_DEVICE, "device",
                         "only the devices cuda:0 to cuda:N that attn-info devices lists are accepted");
    if ((*out)->arch < CUDA_ARCH_LEAST)
        return cuda_fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_DEVICE_ARCH, "device",
                         "cuda:%d is %s (%s); sm_%d and newer are served", device->ordinal, (*out)->info.name,
                         (*out)->info.arch, CUDA_ARCH_LEAST);
    return ATTN_OK;
}

static int32_t open_backend(struct attn_instance *instance, const struct attn_device *device,
                            const struct attn_open_config *config, struct attn_backend_impl **out,
                            struct attn_error *err)
{
    const struct cuda_device_record *record;
    int32_t status = cuda_instance_open(instance, err);

    *out = NULL;
    if (status == ATTN_OK)
        status = check_device(instance, device, &record, err);
    if (status != ATTN_OK)
        return status;
    struct attn_backend_impl *backend = calloc(1, sizeof *backend);
    if (backend == NULL)
        return cuda_fail(err, ATTN_E_MEMORY, 0, "backend", "no memory for the backend");
    backend->instance = instance;
    status = cuda_context_open(instance, record, config != NULL ? config->native_context : NULL,
                               &backend->context, err);
    if (status == ATTN_OK) {
        status = cuda_kv_open(backend, err);
        if (status != ATTN_OK)
            cuda_context_close(backend->context);
    }
    if (status != ATTN_OK) {
        free(backend);
        return status;
    }
    pthread_mutex_init(&backend->lock, NULL);
    *out = backend;
    return ATTN_OK;
}

static void close_backend(struct attn_backend_impl *backend)
{
    if (backend == NULL)
        return;
    cuda_context_close(backend->context);
    pthread_mutex_destroy(&backend->lock);
    free(backend);
}

static const struct attn_plan_table plan_table = {
    .struct_size = sizeof plan_table,
    .create = cuda_plan_create,
    .sizes = cuda_plan_sizes,
    .prepare = cuda_plan_prepare,
    .prepare_many = cuda_plan_prepare_many,
    .run = cuda_plan_run,
    .destroy = cuda_plan_destroy,
    .describe = cuda_plan_describe,
};

#define BACKEND_TABLE(name_, kv_, query_)                                                                    \
    {                                                                                                        \
        .struct_size = sizeof(struct attn_backend_table), .device_class = ATTN_CLASS_ACCELERATOR,            \
        .name = (name_), .plan = &plan_table, .kv = (kv_), .merge = &cuda_merge_table,                       \
        .memory = &cuda_memory_table, .query = (query_), .axes = cuda_axes, .open = open_backend,            \
        .close = close_backend                                                                               \
    }

static const struct attn_backend_table flash_attn =
    BACKEND_TABLE("cuda/flash-attn", &cuda_kv_flash_attn, query_flash_attn);
static const struct attn_backend_table flashinfer =
    BACKEND_TABLE("cuda/flashinfer", &cuda_kv_flashinfer, query_flashinfer);
static const struct attn_backend_table *const backends[] = {&flash_attn, &flashinfer};

static int32_t get_backends(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *out_count, struct attn_error *err)
{
    (void)instance;
    (void)err;
    *out = backends;
    *out_count = sizeof backends / sizeof backends[0];
    return ATTN_OK;
}

static void finish(struct attn_instance *instance)
{
    if (instance == NULL)
        return;
    cuda_driver_close(&instance->driver);
    pthread_mutex_destroy(&instance->lock);
    free(instance->devices);
    free(instance);
}

static const struct attn_plugin plugin = {
    .struct_size = sizeof plugin,
    .abi_major = ATTN_ABI_MAJOR,
    .abi_minor = ATTN_ABI_MINOR,
    ATTN_PLUGIN_SIZES,
    .name = "cuda",
    .vendor = "libattn",
    .version = VERSION,
    .get_devices = cuda_get_devices,
    .get_backends = get_backends,
    .finish = finish,
};

int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
    const uint32_t least = offsetof(struct attn_host, get_option) + sizeof host->get_option;

    if (host == NULL || out == NULL)
        return cuda_fail(err, ATTN_E_INVALID, 0, "host", "host and out are needed");
    if (host->struct_size < least || host->out_instance == NULL)
        return cuda_fail(err, ATTN_E_ABI, 0, "host", "the host's table has %u bytes, at least %u are needed",
                         host->struct_size, least);
    struct attn_instance *instance = calloc(1, sizeof *instance);
    if (instance == NULL)
        return cuda_fail(err, ATTN_E_MEMORY, 0, "instance", "no memory for the instance");
    memcpy(&instance->host, host,
           host->struct_size < sizeof instance->host ? host->struct_size : sizeof instance->host);
    pthread_mutex_init(&instance->lock, NULL);
    *host->out_instance = instance;
    *out = &plugin;
    return ATTN_OK;
}
