/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A plugin with device memory and streams: every call launches on a stream and returns before it is done. */
#include <attn/serving.h>

#include "kernels.h"
#include "stream.h"

/* A real device has ATTN_CLASS_ACCELERATOR, and is then chosen before any CPU. */
ATTN_PLUGIN_NOTE("device", "your name", "0.1.0", "device/flash-attn", ATTN_CLASS_PORTABLE_CPU,
                 ATTN_CPU_BASELINE);

/* Numbers below ATTN_DEVICE_OTHER are DLPack's; its name is in the table at the end. */
#define DEVICE_TYPE (ATTN_DEVICE_OTHER + 11)

/* 1. What is served. */
static int32_t query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *p, struct attn_query *out)
{
    (void)instance;
    attn_util_refuse(out, device && device->type != DEVICE_TYPE, ATTN_REASON_DEVICE, "device", "device");
    attn_util_refuse(out, p->type != ATTN_DECODER, ATTN_REASON_ATTN_TYPE, "type", "decoder");
    attn_util_refuse(out, p->q_dtype != ATTN_F32, ATTN_REASON_DTYPE_Q, "q", "f32");
    attn_util_refuse(out, p->k_dtype != ATTN_F32, ATTN_REASON_DTYPE_K, "k", "f32");
    attn_util_refuse(out, p->v_dtype != ATTN_F32, ATTN_REASON_DTYPE_V, "v", "f32");
    attn_util_refuse(out, p->out_dtype != ATTN_F32, ATTN_REASON_DTYPE_OUT, "out", "f32");
    attn_util_refuse(out, p->addressing == ATTN_CSR, ATTN_REASON_ADDRESSING, "addr", "dense or table");
    attn_util_refuse_extras(out, p);
    return attn_util_answer(out, "attention_f32_rows", "always", ATTN_NUMERICS_P_F16, 100);
}

static int32_t axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *count)
{
    static const char *const f32[] = {"f32"}, *const addr[] = {"dense", "table"}, *const type[] = {"decoder"};
    static const struct attn_axis list[] = {
        {.key = "type", .values = type, .value_count = 1},
        {.key = "q", .values = f32, .value_count = 1},
        {.key = "k", .values = f32, .value_count = 1},
        {.key = "v", .values = f32, .value_count = 1},
        {.key = "addr", .values = addr, .value_count = 2},
        {.key = "head_dim", .first = 1, .last = 65536, .step = 1},
        {.key = "block", .first = 1, .last = 1048576, .step = 1},
    };
    (void)instance;
    *out = list;
    *count = sizeof list / sizeof *list;
    return ATTN_OK;
}

/* 2. A device, opened. */
static int32_t open_device(struct attn_instance *instance, const struct attn_device *device,
                           const struct attn_open_config *config, struct attn_backend_impl **out,
                           struct attn_error *err)
{
    struct attn_backend_impl *backend = calloc(1, sizeof *backend);
    (void)instance, (void)device, (void)config;
    *out = NULL;
    if (backend == NULL)
        return attn_util_fail(err, ATTN_E_MEMORY, "backend", "no memory for a backend");
    const int32_t status = stream_create(backend, &backend->null_stream, err);
    if (status == ATTN_OK)
        *out = backend;
    else
        free(backend);
    return status;
}

static void close_device(struct attn_backend_impl *backend)
{
    stream_destroy(backend, backend->null_stream);
    free(backend);
}

/* 3. Its memory: copies are in order of a stream, so host memory stays until the stream has passed. */
static int32_t copy(struct attn_backend_impl *backend, const struct attn_buffer *to,
                    const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                    struct attn_error *err)
{
    const struct copy_work work = {*to, *from, size};
    (void)kind; /* a runtime wants to know which of the two is its own */
    return stream_launch(backend, stream, kernel_copy, &work, sizeof work, err);
}

/* Host memory that the device can read by itself: pinned by the runtime. */
static int32_t alloc_pinned(struct attn_backend_impl *backend, uint64_t size, void **out,
                            struct attn_error *err)
{
    struct attn_buffer buffer = {NULL, 0};
    const int32_t status = attn_util_alloc(backend, size, &buffer, err);
    *out = buffer.data;
    return status;
}

static void free_pinned(struct attn_backend_impl *backend, void *memory)
{
    (void)backend;
    free(memory);
}

/* 4. The cache. */
static int32_t kv_shape(struct attn_backend_impl *backend, const struct attn_problem *problem, uint32_t pages,
                        struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend;
    return attn_util_shape(problem, pages, out, err);
}

static int32_t kv_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *w,
                        const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                        struct attn_error *err)
{
    struct write_work work = {.args = *w, .cache = *attn_util_kv(kv, desc)};
    if (w->k_dtype != ATTN_F32 || w->v_dtype != ATTN_F32 || work.cache.k_dtype != ATTN_F32 ||
        work.cache.v_dtype != ATTN_F32)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "k_dtype", "only f32 is written");
    if (!w->slot_mapping.data && w->addressing == ATTN_CSR)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "addressing", "give a slot mapping");
    if (w->batch != NULL)
        work.batch = *w->batch;
    return stream_launch(backend, stream, kernel_write, &work, sizeof work, err);
}

/* 5. A plan. */
struct attn_plan_impl {
    struct attn_backend_impl *backend;
    struct attn_problem problem;
};

static int32_t plan_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                           struct attn_plan_impl **out, struct attn_error *err)
{
    struct attn_plan_impl *plan = malloc(sizeof *plan);
    *out = plan;
    if (plan == NULL)
        return attn_util_fail(err, ATTN_E_MEMORY, "plan", "no memory for a plan");
    *plan = (struct attn_plan_impl){backend, *problem};
    return ATTN_OK;
}

static int32_t plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    out->alignment = 64;
    out->schedule = out->staging = plan->problem.max_rows * sizeof(struct item);
    out->counters = sizeof(uint32_t);
    return ATTN_OK;
}

/* With copies of the step's arrays the host makes the schedule in staging, else the device makes it. */
static int32_t plan_prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                            const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                            struct attn_error *err)
{
    const struct schedule_work work = {plan->problem, *batch, schedule->buffer};
    if (!(batch->given & ATTN_GIVEN_HOST_COPIES))
        return stream_launch(plan->backend, stream, kernel_schedule, &work, sizeof work, err);
    make_schedule(&plan->problem, batch->seqs, batch->host->q_offsets, batch->host->kv_lens,
                  (struct item *)(void *)attn_util_at(&staging->buffer));
    return copy(plan->backend, &schedule->buffer, &staging->buffer, batch->num_tokens * sizeof(struct item),
                ATTN_COPY_TO_DEVICE, stream, err);
}

static int32_t plan_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                        const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                        const struct attn_kv_desc *desc, const struct attn_span *schedule,
                        const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    const struct run_work work = {plan->problem,           *batch,           *tensors,
                                  *attn_util_kv(kv, desc), schedule->buffer, scratch->counters.buffer,
                                  scratch->counters_dirty};
    return stream_launch(plan->backend, stream, kernel_run, &work, sizeof work, err);
}

/* 6. The tables and the entry. */
static const struct attn_plan_table plan = {.struct_size = sizeof plan,
                                            .create = plan_create,
                                            .sizes = plan_sizes,
                                            .prepare = plan_prepare,
                                            .run = plan_run,
                                            .destroy = attn_util_plan_destroy};
static const struct attn_kv_table kv = {.struct_size = sizeof kv,
                                        .shape = kv_shape,
                                        .create = attn_util_kv_create,
                                        .destroy = attn_util_kv_destroy,
                                        .write = kv_write};
static const struct attn_memory_table memory = {.struct_size = sizeof memory,
                                                .alloc = attn_util_alloc,
                                                .free = attn_util_free,
                                                .copy = copy,
                                                .alloc_pinned = alloc_pinned,
                                                .free_pinned = free_pinned,
                                                .stream_create = stream_create,
                                                .stream_synchronize = stream_synchronize,
                                                .stream_destroy = stream_destroy,
                                                .event_create = event_create,
                                                .event_record = event_record,
                                                .event_query = event_query,
                                                .event_synchronize = event_synchronize,
                                                .event_destroy = event_destroy};
/* Builder, state and layer are those of libattn-serving, which is linked into the plugin. */
static const struct attn_backend_table backend = {.struct_size = sizeof backend,
                                                  .device_class = ATTN_CLASS_PORTABLE_CPU,
                                                  .name = "device/flash-attn",
                                                  .plan = &plan,
                                                  .kv = &kv,
                                                  .memory = &memory,
                                                  .query = query,
                                                  .axes = axes,
                                                  .open = open_device,
                                                  .close = close_device,
                                                  .builder = &attn_serving_builder,
                                                  .state = &attn_serving_state,
                                                  .layer = &attn_serving_layer};

static int32_t get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *count, struct attn_error *err)
{
    static const struct attn_device_info info = {.struct_size = sizeof info,
                                                 .device_class = ATTN_CLASS_PORTABLE_CPU,
                                                 .device = {.type = DEVICE_TYPE},
                                                 .units = 1,
                                                 .name = "a thread for each stream",
                                                 .arch = "C"};
    (void)instance, (void)err;
    if (capacity > 0)
        *out = info;
    *count = 1;
    return ATTN_OK;
}

static int32_t get_backends(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *count, struct attn_error *err)
{
    static const struct attn_backend_table *const list[] = {&backend};
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
                                              .name = "device",
                                              .vendor = "your name",
                                              .version = "0.1.0",
                                              .get_devices = get_devices,
                                              .get_backends = get_backends,
                                              .finish = attn_util_finish,
                                              .device_type = "device"};
    (void)host, (void)err;
    *out = &plugin;
    return ATTN_OK;
}
