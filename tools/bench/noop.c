/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The no-op plugin: a complete plugin that accepts every problem and computes nothing, so that what is left
 * to measure is the library. It lies on no search path. Its memory is the host's.
 */
#include <stdlib.h>

#include "attn/plugin.h"

#define NAME    "noop"
#define BACKEND "noop/flash-attn"
#define MAKER   "libattn"
#define VERSION "1"

ATTN_PLUGIN_NOTE(NAME, MAKER, VERSION, BACKEND, ATTN_CLASS_PORTABLE_CPU, ATTN_CPU_BASELINE);

enum { ALIGNMENT = 64 };

static const struct attn_device device = {.type = ATTN_DEVICE_CPU};

struct attn_backend_impl {
    uint32_t open;
};
struct attn_plan_impl {
    uint32_t rows;
};
struct attn_kv_impl {
    uint32_t pages;
};

static int32_t fail(struct attn_error *err, int32_t status, const char *field, const char *message)
{
    if (err != NULL) {
        err->status = status;
        strncpy(err->field, field, sizeof err->field - 1);
        strncpy(err->message, message, sizeof err->message - 1);
    }
    return status;
}

/* Memory for an object, or ATTN_E_MEMORY. */
static int32_t object_alloc(size_t size, void **out, struct attn_error *err)
{
    *out = calloc(1, size);
    return *out != NULL ? ATTN_OK : fail(err, ATTN_E_MEMORY, "", "noop: out of memory");
}

/* ---------------------------------------------------------------- plan */

static int32_t plan_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                           struct attn_plan_impl **out, struct attn_error *err)
{
    void *plan;
    int32_t status = object_alloc(sizeof **out, &plan, err);

    (void)backend;
    if (status != ATTN_OK)
        return status;
    *out = plan;
    (*out)->rows = problem->max_rows;
    return ATTN_OK;
}

/* Every block is asked for, so that the host has every block to check. */
static int32_t plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    (void)plan;
    out->alignment = ALIGNMENT;
    out->schedule = ALIGNMENT;
    out->scratch = ALIGNMENT;
    out->counters = ALIGNMENT;
    out->staging = 0;
    return ATTN_OK;
}

static int32_t plan_prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                            const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                            struct attn_error *err)
{
    (void)plan;
    (void)batch;
    (void)schedule;
    (void)staging;
    (void)stream;
    (void)err;
    return ATTN_OK;
}

static int32_t plan_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                        const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                        const struct attn_kv_desc *desc, const struct attn_span *schedule,
                        const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    (void)plan;
    (void)batch;
    (void)tensors;
    (void)kv;
    (void)desc;
    (void)schedule;
    (void)scratch;
    (void)stream;
    (void)err;
    return ATTN_OK;
}

static void plan_destroy(struct attn_plan_impl *plan)
{
    free(plan);
}

static const struct attn_plan_table plan_table = {
    .struct_size = sizeof plan_table,
    .create = plan_create,
    .sizes = plan_sizes,
    .prepare = plan_prepare,
    .run = plan_run,
    .destroy = plan_destroy,
};

/* ---------------------------------------------------------------- cache */

/* Bytes of one element of a cache. */
static int64_t element_size(uint32_t dtype)
{
    return (int64_t)(dtype >> 8 & 0xff) / 8;
}

/* [2, pages, block, kv heads, dim], values behind keys. */
static int32_t kv_shape(struct attn_backend_impl *backend, const struct attn_problem *problem, uint32_t pages,
                        struct attn_kv_shape *out, struct attn_error *err)
{
    struct attn_kv_desc *desc = &out->desc;
    uint64_t bytes;

    (void)backend;
    desc->k_dtype = problem->k_dtype;
    desc->v_dtype = problem->v_dtype;
    desc->layout = ATTN_STRIDED;
    desc->pages = pages;
    desc->block = problem->block;
    desc->kv_heads = problem->kv_heads;
    desc->head_dim = problem->head_dim;
    desc->head_dim_vo = problem->head_dim_vo;
    desc->k_head_stride = problem->head_dim * element_size(problem->k_dtype);
    desc->k_token_stride = desc->k_head_stride * problem->kv_heads;
    desc->v_head_stride = problem->head_dim_vo * element_size(problem->v_dtype);
    desc->v_token_stride = desc->v_head_stride * problem->kv_heads;
    if (__builtin_mul_overflow((uint64_t)pages * problem->block,
                               (uint64_t)(desc->k_token_stride + desc->v_token_stride), &bytes) ||
        bytes > INT64_MAX)
        return fail(err, ATTN_E_INVALID, "pages", "noop: the cache is larger than an address space");
    desc->k_page_stride = desc->k_token_stride * problem->block;
    desc->v_page_stride = desc->v_token_stride * problem->block;
    out->rank = 5;
    out->dims[0] = 2;
    out->dims[1] = pages;
    out->dims[2] = problem->block;
    out->dims[3] = problem->kv_heads;
    out->dims[4] = problem->head_dim;
    out->bytes = bytes;
    out->v_offset = (uint64_t)desc->k_page_stride * pages;
    return ATTN_OK;
}

static int32_t kv_create(struct attn_backend_impl *backend, const struct attn_kv_desc *desc,
                         struct attn_kv_impl **out, struct attn_error *err)
{
    void *kv;
    int32_t status = object_alloc(sizeof **out, &kv, err);

    (void)backend;
    if (status != ATTN_OK)
        return status;
    *out = kv;
    (*out)->pages = desc->pages;
    return ATTN_OK;
}

static void kv_destroy(struct attn_kv_impl *kv)
{
    free(kv);
}

static int32_t kv_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                        const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                        struct attn_error *err)
{
    (void)backend;
    (void)args;
    (void)kv;
    (void)desc;
    (void)stream;
    (void)err;
    return ATTN_OK;
}

static const struct attn_kv_table kv_table = {
    .struct_size = sizeof kv_table,
    .shape = kv_shape,
    .create = kv_create,
    .destroy = kv_destroy,
    .write = kv_write,
};

/* ---------------------------------------------------------------- memory */

static int32_t memory_alloc(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                            struct attn_error *err)
{
    (void)backend;
    if (size > INT64_MAX - ALIGNMENT)
        return fail(err, ATTN_E_MEMORY, "size", "noop: more than an address space was asked for");
    *out = (struct attn_buffer){aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT), 0};
    return out->data != NULL ? ATTN_OK : fail(err, ATTN_E_MEMORY, "size", "noop: out of memory");
}

static void memory_free(struct attn_backend_impl *backend, const struct attn_buffer *buffer)
{
    (void)backend;
    free(buffer->data);
}

static int32_t memory_copy(struct attn_backend_impl *backend, const struct attn_buffer *to,
                           const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                           struct attn_error *err)
{
    (void)backend;
    (void)kind;
    (void)stream;
    (void)err;
    memcpy((char *)to->data + to->byte_offset, (const char *)from->data + from->byte_offset, size);
    return ATTN_OK;
}

static const struct attn_memory_table memory_table = {
    .struct_size = sizeof memory_table,
    .alloc = memory_alloc,
    .free = memory_free,
    .copy = memory_copy,
};

/* ---------------------------------------------------------------- backend */

static int32_t query(struct attn_instance *instance, const struct attn_device *on,
                     const struct attn_problem *problem, struct attn_query *out)
{
    (void)instance;
    (void)on;
    (void)problem;
    out->accepted = 1;
    out->cost_rank = 1000;
    out->graph_level = ATTN_GRAPH_NEVER;
    out->reason_count = 0;
    out->kernel_count = 1;
    if (out->kernel_capacity > 0) {
        struct attn_kernel_info info = {.name = "noop",
                                        .when = "always",
                                        .graph_level = ATTN_GRAPH_NEVER,
                                        .numerics = ATTN_NUMERICS_UNROUNDED};
        out->kernels[0] = info;
    }
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

static int32_t backend_open(struct attn_instance *instance, const struct attn_device *on,
                            const struct attn_open_config *config, struct attn_backend_impl **out,
                            struct attn_error *err)
{
    void *backend;
    int32_t status = object_alloc(sizeof **out, &backend, err);

    (void)instance;
    (void)on;
    (void)config;
    if (status != ATTN_OK)
        return status;
    *out = backend;
    (*out)->open = 1;
    return ATTN_OK;
}

static void backend_close(struct attn_backend_impl *backend)
{
    free(backend);
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
    .open = backend_open,
    .close = backend_close,
};

/* ---------------------------------------------------------------- plugin */

static int32_t get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *out_count, struct attn_error *err)
{
    (void)instance;
    (void)err;
    *out_count = 1;
    if (capacity == 0)
        return ATTN_OK;
    out[0].device_class = ATTN_CLASS_PORTABLE_CPU;
    out[0].device = device;
    out[0].units = 1;
    strcpy(out[0].name, "nothing at all");
    strcpy(out[0].arch, "none");
    return ATTN_OK;
}

static int32_t get_backends(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *out_count, struct attn_error *err)
{
    static const struct attn_backend_table *const list[] = {&backend_table};

    (void)instance;
    (void)err;
    *out = list;
    *out_count = 1;
    return ATTN_OK;
}

static void finish(struct attn_instance *instance)
{
    (void)instance;
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
    .finish = finish,
};

int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
    (void)host;
    (void)err;
    *out = &plugin;
    return ATTN_OK;
}
