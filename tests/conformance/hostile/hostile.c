/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A plugin that computes nothing; variant.c gives it exactly one side effect or one fault. */
#include "hostile.h"

#include <stdlib.h>
#include <string.h>

#include "attn/plugin-util.h"

#define BACKEND "hostile/flash-attn"

static bool is(enum fault fault)
{
    return fault == hostile_fault;
}

ATTN_PLUGIN_NOTE("hostile", "libattn", "1", BACKEND, ATTN_CLASS_PORTABLE_CPU, ATTN_CPU_BASELINE);

struct attn_instance {
    struct attn_host host;
    struct attn_plugin *table;
};

/* What a backend and a plan remember is the instance. */
static bool act(enum stage stage, const void *object)
{
    const struct attn_instance *instance = object;

    return hostile_act(stage, &instance->host);
}

static int32_t judge(bool good, struct attn_error *err, const char *field)
{
    return good ? ATTN_OK : attn_util_fail(err, ATTN_E_STATE, field, "this is hostile");
}

static int32_t plan_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                           struct attn_plan_impl **out, struct attn_error *err)
{
    (void)problem, (void)err;
    *out = (struct attn_plan_impl *)(void *)backend;
    return ATTN_OK;
}

static void plan_destroy(struct attn_plan_impl *plan)
{
    (void)plan;
}

static void do_nothing(void *arg, uint32_t index)
{
    (void)arg, (void)index;
}

static int32_t plan_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                        const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                        const struct attn_kv_desc *desc, const struct attn_span *schedule,
                        const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    const struct attn_cpu_executor *executor = stream;
    int32_t status = judge(act(AT_RUN, plan), err, "run");

    (void)batch, (void)tensors, (void)kv, (void)desc, (void)schedule, (void)scratch;
    if (status == ATTN_OK && executor != NULL && executor->kind == ATTN_EXECUTOR_PARALLEL_FOR)
        status = executor->parallel_for(executor->arg, do_nothing, NULL, 2);
    return status == ATTN_OK ? judge(act(AFTER_TASKS, plan), err, "run") : status;
}

static const struct attn_plan_table plan_table = {
    .struct_size = sizeof plan_table,
    .create = plan_create,
    .sizes = attn_util_plan_sizes,
    .prepare = attn_util_plan_prepare,
    .run = plan_run,
    .destroy = plan_destroy,
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

static const struct attn_kv_table kv_table = {
    .struct_size = sizeof kv_table,
    .shape = kv_shape,
    .create = attn_util_kv_create,
    .destroy = attn_util_kv_destroy,
    .write = kv_write,
};

static int32_t memory_alloc(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                            struct attn_error *err)
{
    return attn_util_alloc(backend, size, out, is(WORDLESS) ? NULL : err);
}

static const struct attn_memory_table memory_table = {
    .struct_size = sizeof memory_table,
    .alloc = memory_alloc,
    .free = attn_util_free,
    .copy = attn_util_copy,
};

static int32_t query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *problem, struct attn_query *out)
{
    (void)device;
    if (!act(AT_QUERY, instance))
        return ATTN_E_STATE;
    if (is(REASON_BEYOND))
        out->reasons[out->reason_capacity].code = 0;
    if (!is(ANY_VALUE))
        attn_util_refuse_unknown(out, problem);
    int32_t status = attn_util_answer(out, "nothing", "always", ATTN_NUMERICS_UNROUNDED, 1000);
    if (is(ODD_SPEED))
        attn_util_speed(out, ATTN_SPEED_GENERIC + 1);
    if (is(FEW_KERNELS) && out->kernel_count > out->kernel_capacity)
        out->kernel_count = out->kernel_capacity;
    return status;
}

static int32_t axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count)
{
    static const struct attn_axis list[] = {{.key = "head_dim", .first = 1, .last = 65536, .step = 1},
                                            {.key = "head_dim", .first = 1, .last = 65536, .step = 1}};
    static unsigned call;

    (void)instance;
    *out = is(MOVING_AXES) ? list + ++call % 2 : list;
    *out_count = 1;
    return ATTN_OK;
}

static int32_t open_backend(struct attn_instance *instance, const struct attn_device *device,
                            const struct attn_open_config *config, struct attn_backend_impl **out,
                            struct attn_error *err)
{
    (void)device, (void)config;
    *out = (struct attn_backend_impl *)(void *)instance;
    if (is(ALWAYS_WORDS))
        err->reason = 0;
    return judge(act(AT_OPEN, instance), err, "open");
}

static void close_backend(struct attn_backend_impl *backend)
{
    act(AT_CLOSE, backend);
}

#define BACKEND_TABLE(close_)                                                                                \
    {                                                                                                        \
        .struct_size = sizeof(struct attn_backend_table), .device_class = ATTN_CLASS_PORTABLE_CPU,           \
        .name = BACKEND, .plan = &plan_table, .kv = &kv_table, .memory = &memory_table, .query = query,      \
        .axes = axes, .open = open_backend, .close = (close_)                                                \
    }
static const struct attn_backend_table backend_table = BACKEND_TABLE(close_backend);
static const struct attn_backend_table no_close = BACKEND_TABLE(NULL);

static int32_t get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *out_count, struct attn_error *err)
{
    static const struct attn_device_info cpu = {.struct_size = sizeof cpu,
                                                .device_class = ATTN_CLASS_PORTABLE_CPU,
                                                .device = {.type = ATTN_DEVICE_CPU},
                                                .name = "hostile"};

    if (capacity > 0 || is(DEVICE_BEYOND))
        *out = cpu;
    *out_count = is(FEW_DEVICES) && capacity == 0 ? 0 : 1;
    return judge(act(AT_DEVICES, instance), err, "devices");
}

static int32_t get_backends(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *out_count, struct attn_error *err)
{
    static const struct attn_backend_table *const list[] = {&backend_table, &no_close};

    (void)instance, (void)err;
    (void)hostile_use();
    *out = is(NO_CLOSE) ? list + 1 : list;
    *out_count = 1;
    return ATTN_OK;
}

static bool entered;

static void finish(struct attn_instance *instance)
{
    act(AT_FINISH, instance);
    free(instance->table);
    free(instance);
    entered = false;
}

static const struct attn_plugin plugin = {
    .struct_size = sizeof plugin,
    .abi_major = ATTN_ABI_MAJOR,
    .abi_minor = ATTN_ABI_MINOR,
    ATTN_PLUGIN_SIZES,
    .name = "hostile",
    .vendor = "libattn",
    .version = "1",
    .get_devices = get_devices,
    .get_backends = get_backends,
    .finish = finish,
};

/* A copy of the table that differs, or that lies where it should not. */
static const struct attn_plugin *give_table(struct attn_instance *instance)
{
    static struct attn_plugin other;

    if (is(HEAP_TABLE) && (instance->table = malloc(sizeof plugin)) != NULL)
        return memcpy(instance->table, &plugin, sizeof plugin);
    if (!is(OLD_SIZE) && !is(OTHER_VERSION))
        return &plugin;
    other = plugin;
    if (is(OLD_SIZE))
        other.problem_size -= 8;
    else
        other.version = "2";
    return &other;
}

int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
    if (!is(WHOLE_HOST) && host->struct_size < sizeof *host)
        return attn_util_fail(err, ATTN_E_ABI, "host", "the host's table is too small");
    if (!hostile_act(AT_ENTRY, host) || (is(ONE_INSTANCE) && entered))
        return attn_util_fail(err, ATTN_E_STATE, "entry", "this is hostile");
    struct attn_instance *instance = calloc(1, sizeof *instance);
    if (instance == NULL)
        return attn_util_fail(err, ATTN_E_MEMORY, "instance", "out of memory");
    instance->host = *host;
    *host->out_instance = instance;
    *out = give_table(instance);
    entered = true;
    return ATTN_OK;
}
