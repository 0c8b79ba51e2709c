/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A plugin whose runs are GPU kernels on fibers, so that attn-check judges the source of the kernels where
 * there is no GPU. It computes attention and writes no cache.
 */
#include <attn/plugin-util.h>
#include <pthread.h>

#include "axes.h"
#include "fiber-kernels.h"
#include "reference/instances.h"
#include "resolve.h"

ATTN_PLUGIN_NOTE("fiber", "libattn", "0.1.0", "fiber/flash-attn", ATTN_CLASS_PORTABLE_CPU, ATTN_CPU_BASELINE);

/* Rows of a grid beyond those of the batch: padding, which a kernel leaves alone. */
enum { MORE_ROWS = 1 };

static int32_t query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *p, struct attn_query *out)
{
    const uint32_t chunk = p->layout == ATTN_PAGED_X ? 16 / ((p->k_dtype >> 8 & 0xff) / 8) : 1;

    (void)instance;
    attn_util_refuse_unknown(out, p);
    attn_util_refuse(out, device && device->type != ATTN_DEVICE_CPU, ATTN_REASON_DEVICE, "device", "cpu");
    attn_util_refuse(out, p->head_dim > REFERENCE_MAX_DIM, ATTN_REASON_HEAD_DIM, "head_dim", "up to 576");
    attn_util_refuse(out, p->head_dim_vo > REFERENCE_MAX_DIM, ATTN_REASON_HEAD_DIM_VO, "head_dim",
                     "up to 576");
    attn_util_refuse(out, p->head_dim % chunk != 0, ATTN_REASON_HEAD_DIM, "head_dim", "whole chunks");
    attn_util_refuse(out, p->out_scale == ATTN_SCALES_TOKEN_HEAD, ATTN_REASON_SCALES, "out_scale",
                     "none, unit, tensor, head");
    attn_util_refuse(out, p->graph != ATTN_GRAPH_NEVER, ATTN_REASON_GRAPH, "graph", "never");
    attn_util_answer(out, "attn_reference", "always", ATTN_NUMERICS_UNROUNDED, 100);
    attn_util_speed(out, ATTN_SPEED_GENERIC);
    return ATTN_OK;
}

static const struct attn_axis axis_list[] = {ATTN__AXIS_TYPES, ATTN__AXES(576),
                                             ATTN__AXIS_LIST("graph", "never")};

static int32_t axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *count)
{
    (void)instance;
    *out = axis_list;
    *count = sizeof axis_list / sizeof *axis_list;
    return ATTN_OK;
}

static int32_t kv_shape(struct attn_backend_impl *backend, const struct attn_problem *problem, uint32_t pages,
                        struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend;
    if (problem->mla != 0 || problem->layout == ATTN_PAGED_X)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "layout",
                              "only strided caches of keys and values have a shape here");
    return attn_util_shape(problem, pages, out, err);
}

static int32_t kv_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                        const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                        struct attn_error *err)
{
    (void)backend, (void)args, (void)kv, (void)desc, (void)stream;
    return attn_util_fail(err, ATTN_E_UNSUPPORTED, "kv", "this plugin reads caches that others wrote");
}

/* One run at a time: the fibers are the process's. */
static int32_t run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                   const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                   const struct attn_kv_desc *desc, const struct attn_span *schedule,
                   const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    uint32_t members;
    struct gpu_run resolved;

    (void)schedule, (void)scratch, (void)err;
    if (attn_util_member(stream, &members) == 0) {
        gpu_resolve(&resolved, attn_util_problem(plan), batch, tensors, attn_util_kv(kv, desc));
        pthread_mutex_lock(&lock);
        fiber_run_reference(&resolved, batch->num_tokens + MORE_ROWS, batch->num_tokens);
        pthread_mutex_unlock(&lock);
    }
    return attn_util_join(stream);
}

static const struct attn_plan_table plan_table = {.struct_size = sizeof plan_table,
                                                  .create = attn_util_plan_create,
                                                  .sizes = attn_util_plan_sizes,
                                                  .prepare = attn_util_plan_prepare,
                                                  .run = run,
                                                  .destroy = attn_util_plan_destroy};
static const struct attn_kv_table kv_table = {.struct_size = sizeof kv_table,
                                              .shape = kv_shape,
                                              .create = attn_util_kv_create,
                                              .destroy = attn_util_kv_destroy,
                                              .write = kv_write};
static const struct attn_memory_table memory_table = {.struct_size = sizeof memory_table,
                                                      .alloc = attn_util_alloc,
                                                      .free = attn_util_free,
                                                      .copy = attn_util_copy};
static const struct attn_backend_table backend_table = {.struct_size = sizeof backend_table,
                                                        .device_class = ATTN_CLASS_PORTABLE_CPU,
                                                        .name = "fiber/flash-attn",
                                                        .plan = &plan_table,
                                                        .kv = &kv_table,
                                                        .memory = &memory_table,
                                                        .query = query,
                                                        .axes = axes,
                                                        .open = attn_util_open,
                                                        .close = attn_util_close};

static int32_t get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *count, struct attn_error *err)
{
    (void)instance, (void)err;
    if (capacity > 0)
        *out = (struct attn_device_info){.struct_size = sizeof *out,
                                         .device_class = ATTN_CLASS_PORTABLE_CPU,
                                         .device = {.type = ATTN_DEVICE_CPU},
                                         .units = 1,
                                         .name = "fibers",
                                         .arch = "C"};
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

int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
    static const struct attn_plugin plugin = {.struct_size = sizeof plugin,
                                              .abi_major = ATTN_ABI_MAJOR,
                                              .abi_minor = ATTN_ABI_MINOR,
                                              ATTN_PLUGIN_SIZES,
                                              .name = "fiber",
                                              .vendor = "libattn",
                                              .version = "0.1.0",
                                              .get_devices = get_devices,
                                              .get_backends = get_backends,
                                              .finish = attn_util_finish};

    (void)host, (void)err;
    *out = &plugin;
    return ATTN_OK;
}
