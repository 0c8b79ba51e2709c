/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The note, instances and backends, and the plugin's entry. */
#include <attn/serving.h>

#include "opencl.h"

#define TEXT2(x) #x
#define TEXT(x)  TEXT2(x)
#define VERSION  TEXT(LIBATTN_VERSION_MAJOR) "." TEXT(LIBATTN_VERSION_MINOR) "." TEXT(LIBATTN_VERSION_PATCH)

ATTN_PLUGIN_NOTE("opencl", "libattn", VERSION, "opencl/flash-attn,opencl/flashinfer",
                 ATTN_CLASS_PORTABLE_ACCELERATOR, ATTN_CPU_BASELINE);

/* The caller's context, or the device's own, which is made now if it is not there yet. */
static int32_t open_context(struct attn_backend_impl *backend, void *native, struct attn_error *err)
{
    struct attn_instance *instance = backend->instance;
    struct opencl_device *device = backend->device;
    cl_int result = CL_SUCCESS;

    pthread_mutex_lock(&instance->lock);
    if (native == NULL && device->context == NULL)
        device->context = instance->cl.clCreateContext(NULL, 1, &device->device, NULL, NULL, &result);
    pthread_mutex_unlock(&instance->lock);
    if (result != CL_SUCCESS)
        return opencl_check(result, "device", "clCreateContext", err);
    cl_context context = native != NULL ? (cl_context)native : device->context;
    const int32_t status =
        opencl_check(instance->cl.clRetainContext(context), "native_context", "clRetainContext", err);
    if (status == ATTN_OK)
        backend->context = context;
    return status;
}

static void close_backend(struct attn_backend_impl *backend)
{
    if (backend == NULL)
        return;
    for (uint32_t i = 0; i < OPENCL_KERNELS; i++)
        if (backend->kernels[i] != NULL)
            backend->cl->clReleaseKernel(backend->kernels[i]);
    if (backend->queue != NULL)
        backend->cl->clReleaseCommandQueue(backend->queue);
    if (backend->context != NULL)
        backend->cl->clReleaseContext(backend->context);
    pthread_mutex_destroy(&backend->lock);
    free(backend);
}

static int32_t open_kernels(struct attn_backend_impl *backend, struct attn_error *err)
{
    static const char *const names[] = {
#define OPENCL_KERNEL(name) "attn_" #name,
        OPENCL_FOR_KERNELS(OPENCL_KERNEL)
#undef OPENCL_KERNEL
    };
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < OPENCL_KERNELS && status == ATTN_OK; i++)
        status = opencl_kernel_create(backend, "", names[i], &backend->kernels[i], err);
    return status;
}

static int32_t open_backend(struct attn_instance *instance, const struct attn_device *device,
                            const struct attn_open_config *config, struct attn_backend_impl **out,
                            struct attn_error *err)
{
    int32_t status = opencl_instance_open(instance, err);

    *out = NULL;
    if (status != ATTN_OK)
        return status;
    struct opencl_device *found = device != NULL ? opencl_device_find(instance, device) : NULL;
    if (found == NULL)
        return opencl_fail(err, ATTN_E_INVALID, ATTN_REASON_DEVICE, "device",
                           "only the devices opencl:0 to opencl:N that attn-info devices lists are accepted");
    if (found->wanted != NULL)
        return opencl_fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_DEVICE_ARCH, "device",
                           "device: only %s is served", found->wanted);
    struct attn_backend_impl *backend = calloc(1, sizeof *backend);
    if (backend == NULL)
        return opencl_fail(err, ATTN_E_MEMORY, 0, "backend", "no memory for the backend");
    pthread_mutex_init(&backend->lock, NULL);
    backend->instance = instance;
    backend->cl = &instance->cl;
    backend->device = found;
    void *queue = NULL;
    status = open_context(backend, config != NULL ? config->native_context : NULL, err);
    if (status == ATTN_OK)
        status = opencl_stream_create(backend, &queue, err);
    backend->queue = queue;
    if (status == ATTN_OK)
        status = open_kernels(backend, err);
    if (status != ATTN_OK) {
        close_backend(backend);
        return status;
    }
    *out = backend;
    return ATTN_OK;
}

static int32_t open_flashinfer(struct attn_instance *instance, const struct attn_device *device,
                               const struct attn_open_config *config, struct attn_backend_impl **out,
                               struct attn_error *err)
{
    const int32_t status = open_backend(instance, device, config, out, err);

    if (status == ATTN_OK)
        (*out)->in_pairs = true;
    return status;
}

/* The same kernels: behind opencl/flash-attn, so that it is used by name. */
static int32_t query_flashinfer(struct attn_instance *instance, const struct attn_device *device,
                                const struct attn_problem *problem, struct attn_query *out)
{
    const int32_t status = opencl_query(instance, device, problem, out);

    out->cost_rank++;
    return status;
}

#define BACKEND_TABLE(name_, query_, open_)                                                                  \
    {                                                                                                        \
        .struct_size = sizeof(struct attn_backend_table), .device_class = ATTN_CLASS_PORTABLE_ACCELERATOR,   \
        .name = (name_), .plan = &opencl_plan_table, .kv = &opencl_kv_table, .merge = &opencl_merge_table,   \
        .memory = &opencl_memory_table, .query = (query_), .axes = opencl_axes, .open = (open_),             \
        .close = close_backend, .builder = &attn_serving_builder, .state = &attn_serving_state,              \
        .layer = &attn_serving_layer                                                                         \
    }

static const struct attn_backend_table flash_attn =
    BACKEND_TABLE("opencl/flash-attn", opencl_query, open_backend);
static const struct attn_backend_table flashinfer =
    BACKEND_TABLE("opencl/flashinfer", query_flashinfer, open_flashinfer);

static int32_t get_backends(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *out_count, struct attn_error *err)
{
    static const struct attn_backend_table *const list[] = {&flash_attn, &flashinfer};

    (void)instance, (void)err;
    *out = list;
    *out_count = sizeof list / sizeof list[0];
    return ATTN_OK;
}

static void finish(struct attn_instance *instance)
{
    if (instance == NULL)
        return;
    opencl_instance_close(instance);
    pthread_mutex_destroy(&instance->lock);
    free(instance);
}

static const struct attn_plugin plugin = {
    .struct_size = sizeof plugin,
    .abi_major = ATTN_ABI_MAJOR,
    .abi_minor = ATTN_ABI_MINOR,
    ATTN_PLUGIN_SIZES,
    .name = "opencl",
    .vendor = "libattn",
    .version = VERSION,
    .get_devices = opencl_get_devices,
    .get_backends = get_backends,
    .finish = finish,
};

int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
    const uint32_t needed = offsetof(struct attn_host, get_option) + sizeof host->get_option;

    if (host == NULL || out == NULL)
        return opencl_fail(err, ATTN_E_INVALID, 0, "host", "host and out are needed");
    if (host->struct_size < needed || host->out_instance == NULL)
        return opencl_fail(err, ATTN_E_ABI, 0, "host",
                           "the host's table has %u bytes, at least %u are needed", host->struct_size,
                           needed);
    struct attn_instance *instance = calloc(1, sizeof *instance);
    if (instance == NULL)
        return opencl_fail(err, ATTN_E_MEMORY, 0, "instance", "no memory for the instance");
    memcpy(&instance->host, host,
           host->struct_size < sizeof instance->host ? host->struct_size : sizeof instance->host);
    pthread_mutex_init(&instance->lock, NULL);
    *host->out_instance = instance;
    *out = &plugin;
    return ATTN_OK;
}
