/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plugin's note, its entry, and the function tables of all flavours. */
#include <stdlib.h>

#include "attn/serving.h"
#include "cpu.h"
#include "flavour.h"

#define TEXT2(x) #x
#define TEXT(x)  TEXT2(x)
#define VERSION  TEXT(LIBATTN_VERSION_MAJOR) "." TEXT(LIBATTN_VERSION_MINOR) "." TEXT(LIBATTN_VERSION_PATCH)

ATTN_PLUGIN_NOTE("cpu", "libattn", VERSION, "cpu/flash-attn,cpu/flashinfer,cpu/rocm-flash", ATTN_CLASS_CPU,
                 ATTN_CPU_BASELINE);

static int32_t query_flash_attn(struct attn_instance *instance, const struct attn_device *device,
                                const struct attn_problem *problem, struct attn_query *out)
{
    return cpu_query(instance, device, problem, 0, out);
}

static int32_t query_flashinfer(struct attn_instance *instance, const struct attn_device *device,
                                const struct attn_problem *problem, struct attn_query *out)
{
    return cpu_query(instance, device, problem, 1, out);
}

static int32_t query_rocm_flash(struct attn_instance *instance, const struct attn_device *device,
                                const struct attn_problem *problem, struct attn_query *out)
{
    return cpu_query(instance, device, problem, 2, out);
}

static int32_t open_backend(struct attn_instance *instance, const struct attn_device *device,
                            const struct attn_open_config *config, struct attn_backend_impl **out,
                            struct attn_error *err)
{
    uint32_t threads = config != NULL ? config->threads : 0;

    if (device == NULL || device->type != ATTN_DEVICE_CPU || device->ordinal != 0)
        return attn__fail(err, ATTN_E_INVALID, ATTN_REASON_DEVICE, "device",
                          "only the device cpu:0 is accepted");
    if (threads > CPU_THREADS_MAX)
        return attn__fail(err, ATTN_E_INVALID, 0, "threads", "threads is %u, at most %u are accepted",
                          threads, CPU_THREADS_MAX);
    if (threads == 0)
        threads = instance->threads;
    if (threads == 0) {
        threads = cpu_available("");
        threads = threads < CPU_THREADS_MAX ? threads : CPU_THREADS_MAX;
    }
    struct attn_backend_impl *backend = calloc(1, sizeof *backend);
    if (backend != NULL)
        backend->pool = cpu_pool_create(threads);
    if (backend == NULL || backend->pool == NULL) {
        free(backend);
        return attn__fail(err, ATTN_E_MEMORY, 0, "backend", "no memory for the backend");
    }
    backend->instance = instance;
    backend->threads = threads;
    *out = backend;
    return ATTN_OK;
}

static void close_backend(struct attn_backend_impl *backend)
{
    if (backend == NULL)
        return;
    cpu_pool_destroy(backend->pool);
    free(backend);
}

static const struct attn_plan_table plan_table = {
    .struct_size = sizeof plan_table,
    .create = cpu_plan_create,
    .sizes = cpu_plan_sizes,
    .prepare = cpu_prepare,
    .run = cpu_run_layer,
    .destroy = cpu_plan_destroy,
    .describe = cpu_plan_describe,
};

#define KV_TABLE(shape_)                                                                                     \
    {                                                                                                        \
        .struct_size = sizeof(struct attn_kv_table), .shape = (shape_), .create = attn__kv_create,           \
        .destroy = attn__kv_destroy, .write = cpu_kv_write, .slot_mapping = cpu_kv_slot_mapping,             \
        .copy_slots = cpu_kv_copy_slots, .copy_blocks = cpu_kv_copy_blocks,                                  \
        .swap_blocks = cpu_kv_swap_blocks, .gather = cpu_kv_gather, .convert = cpu_kv_convert,               \
        .advance_step = cpu_kv_advance_step                                                                  \
    }

static const struct attn_kv_table flash_attn_kv = KV_TABLE(attn__kv_shape_flash_attn);
static const struct attn_kv_table flashinfer_kv = KV_TABLE(attn__kv_shape_flashinfer);
static const struct attn_kv_table rocm_flash_kv = KV_TABLE(attn__kv_shape_rocm_flash);

static const struct attn_merge_table merge_table = {
    .struct_size = sizeof merge_table,
    .merge = cpu_merge,
    .rescale = cpu_rescale,
};

#define BACKEND_TABLE(name_, kv_, query_)                                                                    \
    {                                                                                                        \
        .struct_size = sizeof(struct attn_backend_table), .device_class = ATTN_CLASS_CPU, .name = (name_),   \
        .plan = &plan_table, .kv = (kv_), .merge = &merge_table, .memory = &cpu_memory_table,                \
        .query = (query_), .axes = cpu_axes, .open = open_backend, .close = close_backend,                   \
        .builder = &attn_serving_builder, .state = &attn_serving_state, .layer = &attn_serving_layer         \
    }

static const struct attn_backend_table flash_attn =
    BACKEND_TABLE("cpu/flash-attn", &flash_attn_kv, query_flash_attn);
static const struct attn_backend_table flashinfer =
    BACKEND_TABLE("cpu/flashinfer", &flashinfer_kv, query_flashinfer);
static const struct attn_backend_table rocm_flash =
    BACKEND_TABLE("cpu/rocm-flash", &rocm_flash_kv, query_rocm_flash);
static const struct attn_backend_table *const backends[] = {&flash_attn, &flashinfer, &rocm_flash};

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
    free(instance);
}

static const struct attn_plugin plugin = {
    .struct_size = sizeof plugin,
    .abi_major = ATTN_ABI_MAJOR,
    .abi_minor = ATTN_ABI_MINOR,
    ATTN_PLUGIN_SIZES,
    .name = "cpu",
    .vendor = "libattn",
    .version = VERSION,
    .get_devices = cpu_get_devices,
    .get_backends = get_backends,
    .finish = finish,
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
    instance->flags = cpu_flags_detect(instance);
    instance->threads = cpu_threads_option(instance);
    instance->far = cpu_prefetches_far();
    *host->out_instance = instance;
    *out = &plugin;
    return ATTN_OK;
}
