/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A plugin that computes nothing; -DHOSTILE_... gives it exactly one bad manner or one fault of its
 * interface.
 */
#define _GNU_SOURCE
#include "hostile.h"

#include "attn/plugin-util.h"

#ifndef HOSTILE_ACT
#define HOSTILE_ACT behave
#endif
#ifndef HOSTILE_FAULT
#define HOSTILE_FAULT NO_FAULT
#endif
#define BACKEND "hostile/flash-attn"

/* Faults of the interface. Those of the file are #ifdefs below. */
enum fault {
    NO_FAULT,
    OTHER_VERSION, /* in the table than in the note */
    OLD_SIZE,      /* of the problem */
    NO_CLOSE,      /* a required entry is NULL */
    MOVING_AXES,   /* a new list at every call */
    HEAP_TABLE,    /* the table of the first instance is not that of the second */
    ONE_INSTANCE,  /* refuses to be entered twice */
    WHOLE_HOST,    /* copies more of the host's table than there is */
    FEW_DEVICES,   /* counts no more than it may write */
    DEVICE_BEYOND, /* writes a record that has no room */
    FEW_KERNELS,   /* counts no more than it may write */
    REASON_BEYOND, /* writes a reason that has no room */
    ANY_VALUE,     /* serves what it has never heard of */
    WORDLESS,      /* fails without words */
    ALWAYS_WORDS   /* does not ask whether err is there */
};

static bool is(enum fault fault)
{
    return fault == HOSTILE_FAULT;
}

ATTN_PLUGIN_NOTE("hostile", "libattn", "1", BACKEND, ATTN_CLASS_PORTABLE_CPU, ATTN_CPU_BASELINE);

struct attn_instance {
    struct attn_host host;
    struct attn_plugin *table;
};

#ifdef HOSTILE_CONSTRUCTOR
__attribute__((constructor)) static void begin(void)
{
    __asm__ volatile("");
}
#endif
#ifdef HOSTILE_DESTRUCTOR
__attribute__((destructor)) static void end(void)
{
    __asm__ volatile("");
}
#endif

#ifdef HOSTILE_EXPORT
ATTN_PLUGIN_EXPORT int32_t hostile_export(void);
ATTN_PLUGIN_EXPORT int32_t hostile_export(void)
{
    return 1;
}
#endif
#ifdef HOSTILE_OPEN_SYMBOL
ATTN_PLUGIN_EXPORT int32_t attn_plugin_entry_v99(int32_t value);
ATTN_PLUGIN_EXPORT __attribute__((noinline)) int32_t attn_plugin_entry_v99(int32_t value)
{
    __asm__ volatile("" : "+r"(value));
    return value;
}
#else
#define attn_plugin_entry_v99(value) (value)
#endif
#ifdef HOSTILE_STATIC_TLS
__attribute__((tls_model("initial-exec"))) static __thread volatile int32_t of_thread;
#else
static int32_t of_thread;
#endif
#ifdef HOSTILE_RELOCATED_CODE
__asm__(".text\n.balign 8\nhostile_data:\n.quad hostile_data\n");
#endif
#ifdef HOSTILE_UNIQUE
__asm__(".data\n.globl attn_plugin_entry_v98\n.type attn_plugin_entry_v98, %gnu_unique_object\n"
        "attn_plugin_entry_v98: .long 1\n.size attn_plugin_entry_v98, 4\n.text\n");
#endif
#ifdef HOSTILE_NEED
int32_t attn_reason_is_absence(uint32_t reason);
#else
#define attn_reason_is_absence(reason) ((int32_t)(reason))
#endif

/* What a backend and a plan remember is the instance. */
static bool act(enum stage stage, const void *object)
{
    const struct attn_instance *instance = object;

    return HOSTILE_ACT(stage, &instance->host);
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

static const struct attn_backend_table backend_table = {
    .struct_size = sizeof backend_table,
    .device_class = ATTN_CLASS_PORTABLE_CPU,
    .name = BACKEND,
    .plan = &plan_table,
    .kv = &kv_table,
    .memory = &memory_table,
    .query = query,
    .axes = axes,
    .open = open_backend,
    .close = HOSTILE_FAULT == NO_CLOSE ? NULL : close_backend,
};

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
    static const struct attn_backend_table *const list[] = {&backend_table};

    (void)instance, (void)err;
    of_thread = attn_plugin_entry_v99(of_thread + attn_reason_is_absence(0));
    *out = list;
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
    .version = HOSTILE_FAULT == OTHER_VERSION ? "2" : "1",
    .get_devices = get_devices,
    .get_backends = get_backends,
    .finish = finish,
};

/* A copy of the table that differs, or that lies where it should not. */
static const struct attn_plugin *give_table(struct attn_instance *instance)
{
    static struct attn_plugin older;

    if (is(HEAP_TABLE) && (instance->table = malloc(sizeof plugin)) != NULL)
        return memcpy(instance->table, &plugin, sizeof plugin);
    if (!is(OLD_SIZE))
        return &plugin;
    older = plugin;
    older.problem_size -= 8;
    return &older;
}

int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
    if (!is(WHOLE_HOST) && host->struct_size < sizeof *host)
        return attn_util_fail(err, ATTN_E_ABI, "host", "the host's table is too small");
    if (!HOSTILE_ACT(AT_ENTRY, host) || (is(ONE_INSTANCE) && entered))
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
