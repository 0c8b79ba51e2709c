/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The no-op plugin: a complete plugin that accepts every problem and computes nothing, so that what is left
 * to measure is the library. It lies on no search path. Its memory is the host's.
 */
#include "attn/plugin-util.h"

#define NAME    "noop"
#define BACKEND "noop/flash-attn"
#define MAKER   "libattn"
#define VERSION "1"

ATTN_PLUGIN_NOTE(NAME, MAKER, VERSION, BACKEND, ATTN_CLASS_PORTABLE_CPU, ATTN_CPU_BASELINE);

/* Every block is asked for, so that the host has every block to check. */
static int32_t plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    (void)plan;
    out->alignment = 64;
    out->schedule = 64;
    out->scratch = 64;
    out->counters = 64;
    return ATTN_OK;
}

static int32_t plan_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                        const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                        const struct attn_kv_desc *desc, const struct attn_span *schedule,
                        const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    (void)plan, (void)batch, (void)tensors, (void)kv, (void)desc;
    (void)schedule, (void)scratch, (void)stream, (void)err;
    return ATTN_OK;
}

static const struct attn_plan_table plan_table = {
    .struct_size = sizeof plan_table,
    .create = attn_util_plan_create,
    .sizes = plan_sizes,
    .prepare = attn_util_plan_prepare,
    .run = plan_run,
    .destroy = attn_util_plan_destroy,
};

static int32_t kv_shape(struct attn_backend_impl *backend, const struct attn_problem *problem, uint32_t pages,
                        struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend;
    return attn_util_shape(problem, pages, out, err);
}

static int32_t kv_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                        const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                        struct attn_error *err)
{
    (void)backend, (void)args, (void)kv, (void)desc, (void)stream, (void)err;
    return ATTN_OK;
}

static int32_t kv_copy_blocks(struct attn_backend_impl *backend, const struct attn_kv_copy_blocks_args *args,
                              const struct attn_kv_ref *caches, void *stream, struct attn_error *err)
{
    (void)backend, (void)args, (void)caches, (void)stream, (void)err;
    return ATTN_OK;
}

static int32_t kv_swap_blocks(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                              const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                              struct attn_error *err)
{
    (void)backend, (void)args, (void)from, (void)to, (void)stream, (void)err;
    return ATTN_OK;
}

static const struct attn_kv_table kv_table = {
    .struct_size = sizeof kv_table,
    .shape = kv_shape,
    .create = attn_util_kv_create,
    .destroy = attn_util_kv_destroy,
    .write = kv_write,
    .copy_blocks = kv_copy_blocks,
    .swap_blocks = kv_swap_blocks,
};

static const struct attn_memory_table memory_table = {
    .struct_size = sizeof memory_table,
    .alloc = attn_util_alloc,
    .free = attn_util_free,
    .copy = attn_util_copy,
};

static int32_t query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *problem, struct attn_query *out)
{
    (void)instance, (void)device;
    attn_util_refuse_unknown(out, problem);
    attn_util_answer(out, NAME, "always", ATTN_NUMERICS_UNROUNDED, 1000);
    attn_util_speed(out, ATTN_SPEED_OPTIMISED);
    return ATTN_OK;
}

static int32_t axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count)
{
    static const struct attn_axis list[] = {
        {.key = "head_dim", .first = 1, .last = 65536, .step = 1},
        {.key = "block", .first = 1, .last = 1048576, .step = 1},
    };

    (void)instance;
    *out = list;
    *out_count = sizeof list / sizeof *list;
    return ATTN_OK;
}

static const struct attn_backend_table backend_table = {
    .struct_size = sizeof backend_table,
    .device_class = ATTN_CLASS_PORTABLE_CPU,
    .name = BACKEND,
    .plan = &plan_table,
    .kv = &kv_table,
    .memory = &memory_table,
    .query = query,
    .axes = axes,
    .open = attn_util_open,
    .close = attn_util_close,
};

static int32_t get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *out_count, struct attn_error *err)
{
    static const struct attn_device_info nothing = {
        .struct_size = sizeof nothing,
        .device_class = ATTN_CLASS_PORTABLE_CPU,
        .device = {.type = ATTN_DEVICE_CPU},
        .units = 1,
        .name = "nothing at all",
        .arch = "none",
    };

    (void)instance, (void)err;
    if (capacity > 0)
        *out = nothing;
    *out_count = 1;
    return ATTN_OK;
}

static int32_t get_backends(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *out_count, struct attn_error *err)
{
    static const struct attn_backend_table *const list[] = {&backend_table};

    (void)instance, (void)err;
    *out = list;
    *out_count = 1;
    return ATTN_OK;
}

static const struct attn_plugin plugin = {
    .struct_size = sizeof plugin,
    .abi_major = ATTN_ABI_MAJOR,
    .abi_minor = ATTN_ABI_MINOR,
    ATTN_PLUGIN_SIZES,
    .name = NAME,
    .vendor = MAKER,
    .version = VERSION,
    .get_devices = get_devices,
    .get_backends = get_backends,
    .finish = attn_util_finish,
};

int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
    (void)host, (void)err;
    *out = &plugin;
    return ATTN_OK;
}
