/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The recording plugin: backends of every flavour that accept every problem, compute nothing, and keep what
 * their plan tables were called with. Its memory is the host's.
 */
#include "recorder.h"

#include <stdlib.h>

#include "attn/plugin-util.h"

#define NAME  "golden"
#define MAKER "libattn"

ATTN_PLUGIN_NOTE(NAME, MAKER, "1", "golden/flash-attn,golden/flashinfer,golden/rocm-flash",
                 ATTN_CLASS_PORTABLE_CPU, ATTN_CPU_BASELINE);

enum { MOST = 256 };

static struct recorded_call calls[MOST];
static uint32_t count;

__attribute__((visibility("default"))) const struct recorded_call *golden_recorder_calls(uint32_t *out_count);
__attribute__((visibility("default"))) void golden_recorder_clear(void);

const struct recorded_call *golden_recorder_calls(uint32_t *out_count)
{
    *out_count = count;
    return calls;
}

void golden_recorder_clear(void)
{
    for (uint32_t i = 0; i < count; i++) {
        free(calls[i].q_offsets);
        free(calls[i].kv_lens);
        free(calls[i].csr_indptr);
        free(calls[i].csr_indices);
        free(calls[i].last_page_lens);
        free(calls[i].kv_offsets);
        free(calls[i].table);
        free(calls[i].slopes);
        free(calls[i].slots);
    }
    count = 0;
}

static int32_t *copy(const void *host, const struct attn_buffer *buffer, uint32_t elements)
{
    const void *from = host != NULL ? host : buffer->data != NULL ? attn_util_at(buffer) : NULL;
    int32_t *to = from != NULL ? calloc((size_t)elements + 1, sizeof *to) : NULL;

    if (to != NULL)
        memcpy(to, from, elements * sizeof *to);
    return to;
}

/* Bytes of memory that is the host's own. */
static void *copy_bytes(const struct attn_buffer *buffer, size_t size)
{
    void *to = buffer->data != NULL ? calloc(size + 1, 1) : NULL;

    if (to != NULL)
        memcpy(to, attn_util_at(buffer), size);
    return to;
}

static int32_t *copy_table(const struct attn_batch *batch)
{
    const size_t row = (size_t)batch->table_width * 4;
    char *to = batch->table.data != NULL ? calloc(batch->seqs + (size_t)1, row + 4) : NULL;

    for (uint32_t i = 0; to != NULL && i < batch->seqs; i++)
        memcpy(to + i * row, (const char *)attn_util_at(&batch->table) + i * batch->table_stride, row);
    return (int32_t *)(void *)to;
}

/* The call that is written down next; NULL if there is no room. */
static struct recorded_call *keep(uint32_t kind, const struct attn_plan_impl *plan,
                                  const struct attn_problem *problem, const struct attn_batch *batch)
{
    static const struct attn_batch_host none;

    if (count == MOST)
        return NULL;
    struct recorded_call *call = &calls[count++];
    *call = (struct recorded_call){.kind = kind, .plan = plan, .problem = *problem};
    if (batch == NULL)
        return call;
    const struct attn_batch_host *host =
        (batch->given & ATTN_GIVEN_HOST_COPIES) != 0 && batch->host != NULL ? batch->host : &none;
    call->seqs = batch->seqs;
    call->rows = batch->num_tokens;
    call->q_offsets = copy(host->q_offsets, &batch->q_offsets, batch->seqs + 1);
    call->kv_lens = copy(host->kv_lens, &batch->kv_lens, batch->seqs);
    call->csr_indptr = copy(host->csr_indptr, &batch->csr_indptr, batch->seqs + 1);
    call->last_page_lens = copy(host->last_page_lens, &batch->last_page_lens, batch->seqs);
    if (call->csr_indptr != NULL)
        call->csr_indices =
            copy(host->csr_indices, &batch->csr_indices, (uint32_t)call->csr_indptr[batch->seqs]);
    return call;
}

static int32_t plan_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                           struct attn_plan_impl **out, struct attn_error *err)
{
    int32_t status = attn_util_plan_create(backend, problem, out, err);

    if (status == ATTN_OK)
        keep(RECORDED_CREATE, *out, problem, NULL);
    return status;
}

static int32_t plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    (void)plan;
    out->alignment = 64;
    out->schedule = out->scratch = out->counters = 64;
    return ATTN_OK;
}

static int32_t plan_prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                            const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                            struct attn_error *err)
{
    (void)schedule, (void)staging, (void)stream, (void)err;
    keep(RECORDED_PREPARE, plan, attn_util_problem(plan), batch);
    return ATTN_OK;
}

static int32_t plan_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                        const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                        const struct attn_kv_desc *desc, const struct attn_span *schedule,
                        const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    const struct attn_problem *problem = attn_util_problem(plan);
    struct recorded_call *call = keep(RECORDED_RUN, plan, problem, batch);

    (void)schedule, (void)scratch, (void)stream, (void)err;
    if (call == NULL)
        return ATTN_OK;
    call->kv_offsets = copy(NULL, &batch->kv_offsets, batch->seqs + 1);
    call->table = copy_table(batch);
    call->table_width = batch->table_width;
    call->max_q = batch->max_q;
    call->max_kv = batch->max_kv;
    call->softmax_scale = tensors->softmax_scale;
    call->slopes = copy_bytes(&tensors->alibi_slopes, problem->heads * sizeof(float));
    call->cached = attn_util_kv(kv, desc) != NULL;
    if (call->cached)
        call->cache = *attn_util_kv(kv, desc);
    return ATTN_OK;
}

static const struct attn_plan_table plan_table = {
    .struct_size = sizeof plan_table,
    .create = plan_create,
    .sizes = plan_sizes,
    .prepare = plan_prepare,
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
    static const struct attn_problem none;
    struct recorded_call *call = keep(RECORDED_WRITE, NULL, &none, NULL);

    (void)backend, (void)stream, (void)err;
    if (call == NULL)
        return ATTN_OK;
    call->rows = args->num_tokens;
    call->new_dtype = args->k_dtype;
    call->slots = copy_bytes(&args->slot_mapping, args->num_tokens * sizeof(int64_t));
    call->cached = true;
    call->cache = *attn_util_kv(kv, desc);
    return ATTN_OK;
}

static const struct attn_kv_table kv_table = {
    .struct_size = sizeof kv_table,
    .shape = kv_shape,
    .create = attn_util_kv_create,
    .destroy = attn_util_kv_destroy,
    .write = kv_write,
};

/* Everything is done when a call returns, so every mark is reached. */
static int32_t event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    static char mark;

    (void)backend, (void)err;
    *out = &mark;
    return ATTN_OK;
}

static int32_t event_record(struct attn_backend_impl *backend, void *event, void *stream,
                            struct attn_error *err)
{
    (void)backend, (void)event, (void)stream, (void)err;
    return ATTN_OK;
}

static int32_t event_reached(struct attn_backend_impl *backend, void *event, struct attn_error *err)
{
    (void)backend, (void)event, (void)err;
    return ATTN_OK;
}

static void event_destroy(struct attn_backend_impl *backend, void *event)
{
    (void)backend, (void)event;
}

static const struct attn_memory_table memory_table = {
    .struct_size = sizeof memory_table,
    .alloc = attn_util_alloc,
    .free = attn_util_free,
    .copy = attn_util_copy,
    .event_create = event_create,
    .event_record = event_record,
    .event_query = event_reached,
    .event_synchronize = event_reached,
    .event_destroy = event_destroy,
};

static int32_t query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *problem, struct attn_query *out)
{
    (void)instance, (void)device;
    attn_util_refuse_unknown(out, problem);
    int32_t status = attn_util_answer(out, NAME, "always", ATTN_NUMERICS_UNROUNDED, 1000);
    attn_util_speed(out, ATTN_SPEED_OPTIMISED);
    out->graph_level = ATTN_GRAPH_ALWAYS;
    return status;
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

#define BACKEND(flavour)                                                                                     \
    {                                                                                                        \
        .struct_size = sizeof(struct attn_backend_table), .device_class = ATTN_CLASS_PORTABLE_CPU,           \
        .name = NAME "/" flavour, .plan = &plan_table, .kv = &kv_table, .memory = &memory_table,             \
        .query = query, .axes = axes, .open = attn_util_open, .close = attn_util_close                       \
    }

static const struct attn_backend_table backends[] = {BACKEND("flash-attn"), BACKEND("flashinfer"),
                                                     BACKEND("rocm-flash")};

static int32_t get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *out_count, struct attn_error *err)
{
    static const struct attn_device_info nothing = {
        .struct_size = sizeof nothing,
        .device_class = ATTN_CLASS_PORTABLE_CPU,
        .device = {.type = ATTN_DEVICE_CPU},
        .units = 1,
        .name = "a notebook",
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
    static const struct attn_backend_table *const list[] = {&backends[0], &backends[1], &backends[2]};

    (void)instance, (void)err;
    *out = list;
    *out_count = sizeof list / sizeof *list;
    return ATTN_OK;
}

static const struct attn_plugin plugin = {
    .struct_size = sizeof plugin,
    .abi_major = ATTN_ABI_MAJOR,
    .abi_minor = ATTN_ABI_MINOR,
    ATTN_PLUGIN_SIZES,
    .name = NAME,
    .vendor = MAKER,
    .version = "1",
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
