/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plugin: note, and the tables of both flavours. */
#include "host.h"

#define TEXT2(x) #x
#define TEXT(x)  TEXT2(x)
#define VERSION  TEXT(LIBATTN_VERSION_MAJOR) "." TEXT(LIBATTN_VERSION_MINOR) "." TEXT(LIBATTN_VERSION_PATCH)

ATTN_PLUGIN_NOTE("cuda", "libattn", VERSION, "cuda/flash-attn,cuda/flashinfer", ATTN_CLASS_ACCELERATOR,
                 ATTN_CPU_BASELINE);

static int32_t query_flash_attn(struct attn_instance *instance, const struct attn_device *device,
                                const struct attn_problem *problem, struct attn_query *out)
{
    return gpu_query(instance, device, problem, 0, out);
}

static int32_t query_flashinfer(struct attn_instance *instance, const struct attn_device *device,
                                const struct attn_problem *problem, struct attn_query *out)
{
    return gpu_query(instance, device, problem, 1, out);
}

static int32_t shape_flash_attn(struct attn_backend_impl *backend, const struct attn_problem *problem,
                                uint32_t pages, struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend;
    return attn__kv_shape(ATTN_FLASH_ATTN, problem, pages, out, err);
}

static int32_t shape_flashinfer(struct attn_backend_impl *backend, const struct attn_problem *problem,
                                uint32_t pages, struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend;
    return attn__kv_shape(ATTN_FLASHINFER, problem, pages, out, err);
}

static const struct attn_kv_table kv_flash_attn = GPU_KV_TABLE(shape_flash_attn);
static const struct attn_kv_table kv_flashinfer = GPU_KV_TABLE(shape_flashinfer);
static const struct attn_backend_table flash_attn =
    GPU_BACKEND_TABLE("cuda/flash-attn", &kv_flash_attn, query_flash_attn);
static const struct attn_backend_table flashinfer =
    GPU_BACKEND_TABLE("cuda/flashinfer", &kv_flashinfer, query_flashinfer);
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

const struct attn_plugin gpu_vendor_plugin = {
    .struct_size = sizeof gpu_vendor_plugin,
    .abi_major = ATTN_ABI_MAJOR,
    .abi_minor = ATTN_ABI_MINOR,
    ATTN_PLUGIN_SIZES,
    .name = "cuda",
    .vendor = "libattn",
    .version = VERSION,
    .get_devices = gpu_get_devices,
    .get_backends = get_backends,
    .finish = gpu_instance_finish,
};
