/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Plugins for the tests of selection and handles. One source, built many ways by macros: what it is called,
 * which devices it has, what it refuses. It computes nothing, and logs what is done to it.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn/plugin-util.h"
#include "attn/plugin.h"

#ifndef MOCK_NAME
#error "MOCK_NAME: the plugin's name"
#endif
#ifdef MOCK_CALLED /* another file of the same name */
#undef MOCK_NAME
#define MOCK_NAME MOCK_CALLED
#endif
#ifndef MOCK_CLASS
#define MOCK_CLASS ATTN_CLASS_ACCELERATOR /* of the note and the backends */
#endif
#ifndef MOCK_DEVICE_CLASS
#define MOCK_DEVICE_CLASS MOCK_CLASS
#endif
#ifndef MOCK_DEVICE_TYPE
#define MOCK_DEVICE_TYPE ATTN_DEVICE_CUDA
#endif
#ifndef MOCK_DEVICE_NAME
#define MOCK_DEVICE_NAME "cuda"
#endif
#ifndef MOCK_DEVICES
#define MOCK_DEVICES 1 /* -1: no driver */
#endif
#ifndef MOCK_COST
#define MOCK_COST 1
#endif
#ifndef MOCK_HEAD_DIM
#define MOCK_HEAD_DIM 256 /* the largest that is served */
#endif
#ifndef MOCK_OPTIMISED_DIM
#define MOCK_OPTIMISED_DIM MOCK_HEAD_DIM /* the largest that no generic kernel serves */
#endif
#ifndef MOCK_SPEED
#define MOCK_SPEED ATTN_SPEED_OPTIMISED /* of other kernels */
#endif
#ifndef MOCK_REFUSED_Q
#define MOCK_REFUSED_Q > UINT32_MAX - 1 /* which max_q is refused */
#endif
#ifndef MOCK_REASONS
#define MOCK_REASONS 1U /* of each refusal */
#endif
#ifndef MOCK_QUERY_STATUS
#define MOCK_QUERY_STATUS ATTN_OK
#endif
#ifndef MOCK_ENTRY_STATUS
#define MOCK_ENTRY_STATUS ATTN_OK
#endif
#ifndef MOCK_STAGING
#define MOCK_STAGING 32 /* bytes of a plan */
#endif
#ifndef MOCK_FLAVOUR
#define MOCK_FLAVOUR "flash-attn" /* of the first backend */
#endif
#ifndef MOCK_PROBLEM_SIZE
#define MOCK_PROBLEM_SIZE sizeof(struct attn_problem)
#endif
#ifndef MOCK_COPY_SLOTS_SIZE
#define MOCK_COPY_SLOTS_SIZE sizeof(struct attn_kv_copy_slots_args)
#endif

/* softmax scales that make a run fail */
#define SCALE_LOST    666.0F
#define SCALE_FOREIGN 667.0F

#define SECOND MOCK_NAME "/flashinfer"
#define FIRST  MOCK_NAME "/" MOCK_FLAVOUR

ATTN_PLUGIN_NOTE(MOCK_NAME, "libattn tests", "0.1.0", FIRST "," SECOND, MOCK_CLASS, ATTN_CPU_BASELINE);

static const struct attn_host *services;

static void say(const char *text)
{
    services->log(services->ctx, ATTN_LOG_INFO, "mock", text);
}

static int32_t fail(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                    const char *text)
{
    if (err != NULL) {
        err->status = status;
        err->reason = reason;
        snprintf(err->field, sizeof err->field, "%s", field);
        snprintf(err->message, sizeof err->message, "%s", text);
    }
    return status;
}

/* ---------------------------------------------------------------- objects: memory and a word in the log */

static void *make(void)
{
    return calloc(1, 16);
}

static int32_t plan_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                           struct attn_plan_impl **out, struct attn_error *err)
{
    (void)backend;
    if (problem->head_dim == 96)
        return fail(err, ATTN_E_MEMORY, ATTN_REASON_MEMORY, "max_kv", "no room for this plan");
    if (problem->det)
        say("plan det");
    *out = make();
    return *out != NULL ? ATTN_OK : ATTN_E_MEMORY;
}

static int32_t plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    (void)plan;
    out->alignment = 64;
    out->schedule = 128;
    out->scratch = 256;
    out->counters = 64;
    out->staging = MOCK_STAGING;
    return ATTN_OK;
}

static int32_t plan_prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                            const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                            struct attn_error *err)
{
    (void)plan;
    (void)batch;
    (void)schedule;
    (void)stream;
    (void)err;
    char text[64];
    snprintf(text, sizeof text, "prepare at %u", (unsigned)staging->buffer.byte_offset);
    say(text);
    return ATTN_OK;
}

static int32_t plan_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                        const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                        const struct attn_kv_desc *desc, const struct attn_span *schedule,
                        const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    (void)plan;
    (void)batch;
    (void)kv;
    (void)desc;
    (void)schedule;
    (void)scratch;
    (void)stream;
    if (tensors->softmax_scale == SCALE_LOST)
        return fail(err, ATTN_E_DEVICE_LOST, ATTN_REASON_DEVICE_LOST, "device", "the mock fell off the bus");
    return tensors->softmax_scale == SCALE_FOREIGN ? 42 : ATTN_OK;
}

static void plan_destroy(struct attn_plan_impl *plan)
{
    say("plan destroy");
    free(plan);
}

static int32_t kv_shape(struct attn_backend_impl *backend, const struct attn_problem *problem, uint32_t pages,
                        struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend;
    (void)err;
    const uint32_t size = (problem->k_dtype >> 8 & 0xff) / 8;
    const int64_t head = (int64_t)problem->head_dim * size;
    const int64_t token = head * problem->kv_heads;
    const int64_t page = token * problem->block;
    out->rank = 5;
    out->dims[0] = 2;
    out->dims[1] = pages;
    out->dims[2] = problem->block;
    out->dims[3] = problem->kv_heads;
    out->dims[4] = problem->head_dim;
    out->bytes = 2 * (uint64_t)page * pages;
    out->v_offset = (uint64_t)page * pages;
    struct attn_kv_desc *desc = &out->desc;
    desc->k_dtype = problem->k_dtype;
    desc->v_dtype = problem->v_dtype;
    desc->layout = ATTN_STRIDED;
    desc->pages = pages;
    desc->block = problem->block;
    desc->kv_heads = problem->kv_heads;
    desc->head_dim = problem->head_dim;
    desc->head_dim_vo = problem->head_dim_vo;
    desc->k_page_stride = desc->v_page_stride = page;
    desc->k_token_stride = desc->v_token_stride = token;
    desc->k_head_stride = desc->v_head_stride = head;
#ifdef MOCK_PAGES_FIRST
    out->dims[0] = pages;
    out->dims[1] = 2;
    out->v_offset = (uint64_t)page;
    desc->k_page_stride = desc->v_page_stride = 2 * page;
#endif
    return ATTN_OK;
}

static int32_t kv_create(struct attn_backend_impl *backend, const struct attn_kv_desc *desc,
                         struct attn_kv_impl **out, struct attn_error *err)
{
    (void)backend;
    (void)err;
    const struct attn_scale *scale = &desc->k_scale;
    if (scale->kind == ATTN_SCALE_DEVICE) {
        char text[100];
        snprintf(text, sizeof text, "k_scale lies %lld, %lld, %lld apart", (long long)scale->outer_stride,
                 (long long)scale->token_stride, (long long)scale->head_stride);
        say(text);
    }
#ifdef MOCK_OWN_STRIDES
    if (desc->k_page_stride != 2 * desc->k_token_stride * desc->block)
        return fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_LAYOUT, "kv", "keys and values take turns");
#endif
    say("kv create");
    *out = make();
    return *out != NULL ? ATTN_OK : ATTN_E_MEMORY;
}

static void kv_destroy(struct attn_kv_impl *kv)
{
    say("kv destroy");
    free(kv);
}

static int32_t kv_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                        const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                        struct attn_error *err)
{
    (void)backend, (void)args, (void)stream;
    if ((kv != NULL) == (desc != NULL))
        return fail(err, ATTN_E_INVALID, 0, "kv", "exactly one of kv and desc is expected");
    say("kv write");
    return ATTN_OK;
}

#ifdef MOCK_KV
#include "mock-kv.h"
#endif

#ifdef MOCK_MERGE
static int32_t merge(struct attn_backend_impl *backend, const struct attn_merge_args *args, void *stream,
                     struct attn_error *err)
{
    (void)backend;
    (void)args;
    (void)stream;
    (void)err;
    say("merge");
    return ATTN_OK;
}
static const struct attn_merge_table merge_table = {.struct_size = sizeof merge_table, .merge = merge};
#endif

static int32_t memory_alloc(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                            struct attn_error *err)
{
    (void)backend;
    out->data = aligned_alloc(64, (size + 63) / 64 * 64);
    return out->data != NULL ? ATTN_OK : fail(err, ATTN_E_MEMORY, 0, "size", "no memory");
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
    (void)backend, (void)kind, (void)stream, (void)err;
    memcpy((char *)to->data + to->byte_offset, (const char *)from->data + from->byte_offset, size);
    return ATTN_OK;
}

/* ---------------------------------------------------------------- the backends */

static void refuse(const struct attn_problem *problem, struct attn_query *out)
{
    const uint32_t count = MOCK_REASONS;
    for (uint32_t i = 0; i < count; i++) {
        if (i < out->reason_capacity) {
            struct attn_reason *reason = &out->reasons[i];
            reason->code = ATTN_REASON_HEAD_DIM;
            snprintf(reason->kernel, sizeof reason->kernel, "row_%u", i);
            snprintf(reason->field, sizeof reason->field, "head_dim");
            snprintf(reason->got, sizeof reason->got, "%u", problem->head_dim);
            snprintf(reason->wanted, sizeof reason->wanted, "up to %d", MOCK_HEAD_DIM);
            snprintf(reason->text, sizeof reason->text, "head_dim %u is above %d", problem->head_dim,
                     MOCK_HEAD_DIM);
        }
    }
    out->reason_count = count;
}

/* Rows that refuse: of other element types, one that came near, and one that is farther off; what serves is a
 * row as fast as MOCK_SPEED. */
static void explain_rows(struct attn_query *out)
{
#ifdef MOCK_ROWS
    static const struct attn_reason rows[] = {
        {.code = ATTN_REASON_DTYPE_K, .kernel = "mock_f32", .text = "k is not f32"},
        {.code = ATTN_REASON_MASK, .kernel = "mock_f32", .text = "masks are not served"},
        {.code = ATTN_REASON_ALIBI, .kernel = "mock_far", .text = "ALiBi is not served"},
        {.code = ATTN_REASON_MASK, .kernel = "mock_far", .text = "masks are not served"},
        {.code = ATTN_REASON_DTYPE_K, .kernel = "mock_f16", .text = "k is not f16"},
        {.code = ATTN_REASON_MASK, .kernel = "mock_near", .text = "masks are not served"},
        {.code = ATTN_REASON_CPU_FLAGS, .text = "the whole mock lacks a flag"},
    };
    out->reason_count = sizeof rows / sizeof rows[0];
    for (uint32_t i = 0; i < out->reason_count && i < out->reason_capacity; i++)
        out->reasons[i] = rows[i];
    if (out->kernel_capacity > 0)
        out->kernels[0].speed = MOCK_SPEED;
#else
    (void)out;
#endif
}

/* An explicit refusal behind a common one, which it leads nevertheless. */
static bool refuses_encoders(const struct attn_problem *problem, struct attn_query *out)
{
#ifdef MOCK_NO_ENCODERS
    if (problem->type != ATTN_ENCODER && problem->type != ATTN_ENCODER_DECODER)
        return false;
    if (problem->head_dim > MOCK_HEAD_DIM)
        refuse(problem, out);
    if (out->reason_count < out->reason_capacity) {
        struct attn_reason *reason = &out->reasons[out->reason_count];
        reason->code = ATTN_REASON_ENC_DEC_ROCM_HIP;
        snprintf(reason->field, sizeof reason->field, "type");
        snprintf(reason->text, sizeof reason->text,
                 "ROCm/HIP is not currently supported with encoder/decoder models.");
    }
    out->reason_count++;
    return true;
#else
    (void)problem, (void)out;
    return false;
#endif
}

static bool refuses_phase(const struct attn_problem *problem, struct attn_query *out)
{
    if (!(problem->max_q MOCK_REFUSED_Q))
        return false;
    out->reason_count = 1;
    if (out->reason_capacity > 0) {
        out->reasons[0].code = ATTN_REASON_MAX_Q;
        snprintf(out->reasons[0].field, sizeof out->reasons[0].field, "max_q");
        snprintf(out->reasons[0].text, sizeof out->reasons[0].text, "max_q %u is not its phase",
                 problem->max_q);
    }
    return true;
}

/* A plugin that has generic kernels takes them for sinks too. */
static bool is_generic(const struct attn_problem *problem)
{
    return problem->head_dim > MOCK_OPTIMISED_DIM ||
           (problem->sinks != 0 && MOCK_OPTIMISED_DIM < MOCK_HEAD_DIM);
}

/* What keeps the optimised kernel; the words of a whole backend are not meant. */
static void explain_generic(const struct attn_problem *problem, struct attn_query *out)
{
    for (uint32_t i = 0; i < 2 && i < out->reason_capacity; i++) {
        struct attn_reason *reason = &out->reasons[i];
        snprintf(reason->kernel, sizeof reason->kernel, "%s", i == 0 ? "" : "mock_fast");
        if (problem->head_dim <= MOCK_OPTIMISED_DIM) {
            reason->code = ATTN_REASON_SINKS;
            snprintf(reason->text, sizeof reason->text, "it has no sinks");
            continue;
        }
        reason->code = ATTN_REASON_HEAD_DIM;
        snprintf(reason->field, sizeof reason->field, "head_dim");
        snprintf(reason->got, sizeof reason->got, "%u", problem->head_dim);
        snprintf(reason->wanted, sizeof reason->wanted, "up to %d", MOCK_OPTIMISED_DIM);
    }
    out->reason_count = 2;
}

/* Blocks are of no plugin that knows only types of elements. */
static bool refuses_types(const struct attn_problem *problem, struct attn_query *out)
{
    attn_util_refuse(out, !attn_util_is_dtype(problem->k_dtype), ATTN_REASON_DTYPE_K, "k",
                     "a type of elements");
    attn_util_refuse(out, !attn_util_is_dtype(problem->v_dtype), ATTN_REASON_DTYPE_V, "v",
                     "a type of elements");
    return out->reason_count != 0;
}

static int32_t answer(const struct attn_problem *problem, struct attn_query *out, uint32_t cost)
{
    if (MOCK_QUERY_STATUS != ATTN_OK)
        return MOCK_QUERY_STATUS;
    out->cost_rank = cost;
    if (refuses_types(problem, out) || refuses_encoders(problem, out))
        return ATTN_OK;
    out->graph_level = ATTN_GRAPH_ALWAYS;
    if (problem->head_dim > MOCK_HEAD_DIM) {
        refuse(problem, out);
        explain_rows(out);
        return ATTN_OK;
    }
    explain_rows(out);
    if (refuses_phase(problem, out))
        return ATTN_OK;
    out->accepted = 1;
    out->kernel_count = 1;
    if (is_generic(problem))
        explain_generic(problem, out);
    if (out->kernel_capacity > 0) {
        snprintf(out->kernels[0].name, sizeof out->kernels[0].name, "mock_%u", problem->head_dim);
        snprintf(out->kernels[0].when, sizeof out->kernels[0].when, "always");
        out->kernels[0].graph_level = ATTN_GRAPH_ALWAYS;
        out->kernels[0].speed = is_generic(problem) ? ATTN_SPEED_GENERIC : MOCK_SPEED;
    }
    return ATTN_OK;
}

static int32_t query_first(struct attn_instance *instance, const struct attn_device *device,
                           const struct attn_problem *problem, struct attn_query *out)
{
    (void)instance;
    (void)device;
    if (problem->det)
        say("query det");
    return answer(problem, out, MOCK_COST);
}

static int32_t query_second(struct attn_instance *instance, const struct attn_device *device,
                            const struct attn_problem *problem, struct attn_query *out)
{
    (void)instance;
    (void)device;
    return answer(problem, out, MOCK_COST + 1);
}

static int32_t axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count)
{
    static const struct attn_axis rows[] = {{"head_dim", NULL, 0, 0, 1, MOCK_HEAD_DIM, 1}};
    (void)instance;
    *out = rows;
    *out_count = 1;
    return ATTN_OK;
}

static int32_t open_backend(struct attn_instance *instance, const struct attn_device *device,
                            const struct attn_open_config *config, struct attn_backend_impl **out,
                            struct attn_error *err)
{
    (void)instance;
    (void)device;
#ifdef MOCK_NO_OPEN
    return fail(err, ATTN_E_DEVICE, 0, "device", "the mock does not open");
#endif
    say("open");
    if (config != NULL && config->threads == 13)
        return fail(err, ATTN_E_DEVICE, 0, "threads", "the mock opens no 13 threads");
    *out = make();
    return *out != NULL ? ATTN_OK : ATTN_E_MEMORY;
}

static void close_backend(struct attn_backend_impl *backend)
{
    say("close");
    free(backend);
}

static const struct attn_plan_table plan_table = {.struct_size = sizeof plan_table,
                                                  .create = plan_create,
                                                  .sizes = plan_sizes,
                                                  .prepare = plan_prepare,
                                                  .run = plan_run,
                                                  .destroy = plan_destroy};
static const struct attn_kv_table kv_table = {
    .struct_size = sizeof kv_table,
    .shape = kv_shape,
    .create = kv_create,
    .destroy = kv_destroy,
    .write = kv_write,
#ifdef MOCK_KV
    .slot_mapping = kv_slot_mapping,
    .copy_slots = kv_copy_slots,
    .copy_blocks = kv_copy_blocks,
    .swap_blocks = kv_swap_blocks,
    .gather = kv_gather,
    .convert = kv_convert,
#endif
};
static const struct attn_memory_table memory_table = {
    .struct_size = sizeof memory_table, .alloc = memory_alloc, .free = memory_free, .copy = memory_copy};

#ifdef MOCK_MERGE
#define MERGE &merge_table
#else
#define MERGE NULL
#endif
#define BACKEND(name_, query_)                                                                               \
    {                                                                                                        \
        .struct_size = sizeof(struct attn_backend_table), .device_class = MOCK_CLASS, .name = name_,         \
        .plan = &plan_table, .kv = &kv_table, .merge = MERGE, .memory = &memory_table, .query = query_,      \
        .axes = axes, .open = open_backend, .close = close_backend                                           \
    }
static const struct attn_backend_table first = BACKEND(FIRST, query_first);
static const struct attn_backend_table second = BACKEND(SECOND, query_second);

/* ---------------------------------------------------------------- the plugin */

static int32_t get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *out_count, struct attn_error *err)
{
    (void)instance;
    say("devices of " MOCK_NAME);
    if (MOCK_DEVICES < 0)
        return fail(err, ATTN_E_DEVICE, ATTN_REASON_NO_DRIVER, "driver", "libmock.so.1 is not there");
    const uint32_t count = MOCK_DEVICES < 0 ? 0 : (uint32_t)MOCK_DEVICES;
    for (uint32_t i = 0; i < count && i < capacity; i++) {
        out[i].device_class = MOCK_DEVICE_CLASS;
        out[i].device.type = MOCK_DEVICE_TYPE;
        out[i].device.ordinal = (int32_t)i;
    }
    *out_count = count;
    return ATTN_OK;
}

static int32_t get_backends(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *out_count, struct attn_error *err)
{
    static const struct attn_backend_table *const list[] = {&first, &second};
    (void)instance;
    (void)err;
    *out = list;
    *out_count = 2;
    return ATTN_OK;
}

static void finish(struct attn_instance *instance)
{
    (void)instance;
}

static const struct attn_plugin plugin = {.struct_size = sizeof plugin,
                                          .abi_major = ATTN_ABI_MAJOR,
                                          .abi_minor = ATTN_ABI_MINOR,
                                          .device_type =
                                              MOCK_DEVICE_TYPE == ATTN_DEVICE_CPU ? NULL : MOCK_DEVICE_NAME,
                                          .problem_size = MOCK_PROBLEM_SIZE,
                                          .batch_size = sizeof(struct attn_batch),
                                          .tensors_size = sizeof(struct attn_tensors),
                                          .kv_desc_size = sizeof(struct attn_kv_desc),
                                          .kv_write_size = sizeof(struct attn_kv_write_args),
                                          .merge_size = sizeof(struct attn_merge_args),
                                          .rescale_size = sizeof(struct attn_rescale_args),
                                          .scratch_size = sizeof(struct attn_scratch),
                                          .open_config_size = sizeof(struct attn_open_config),
                                          .slot_mapping_size = sizeof(struct attn_kv_slot_mapping_args),
                                          .copy_slots_size = MOCK_COPY_SLOTS_SIZE,
                                          .copy_blocks_size = sizeof(struct attn_kv_copy_blocks_args),
                                          .swap_blocks_size = sizeof(struct attn_kv_swap_blocks_args),
                                          .gather_size = sizeof(struct attn_kv_gather_args),
                                          .convert_size = sizeof(struct attn_kv_convert_args),
                                          .advance_step_size = sizeof(struct attn_kv_advance_step_args),
                                          .name = MOCK_NAME,
                                          .vendor = "libattn tests",
                                          .version = "0.1.0",
                                          .get_devices = get_devices,
                                          .get_backends = get_backends,
                                          .finish = finish};

int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
    services = host;
    if (MOCK_ENTRY_STATUS != ATTN_OK)
        return fail(err, MOCK_ENTRY_STATUS, 0, "entry", "the mock refuses to start");
    *out = &plugin;
    return ATTN_OK;
}
