/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A plugin that computes nothing; -DMOCK_... makes of it a good one or one with exactly one fault. */
#include <signal.h>
#include <stdlib.h>

#include "attn/plugin.h"

#ifdef MOCK_ABI_MINOR
#undef ATTN_ABI_MINOR
#define ATTN_ABI_MINOR MOCK_ABI_MINOR
#endif
#ifndef MOCK_NAME
#define MOCK_NAME "mock"
#endif
#ifndef MOCK_NOTE_NAME
#define MOCK_NOTE_NAME MOCK_NAME
#endif
#ifndef MOCK_VERSION
#define MOCK_VERSION "1.0"
#endif
#ifndef MOCK_NOTE_BACKENDS
#define MOCK_NOTE_BACKENDS MOCK_NAME "/flash-attn"
#endif
#ifndef MOCK_DEVICES
#define MOCK_DEVICES 1
#endif
#ifndef MOCK_TABLE_VERSION
#define MOCK_TABLE_VERSION MOCK_VERSION
#endif
#ifndef MOCK_CPU_LEVEL
#define MOCK_CPU_LEVEL ATTN_CPU_BASELINE
#endif
#ifndef MOCK_CRASH_IN
#define MOCK_CRASH_IN ""
#endif
#ifndef MOCK_CLASS
#define MOCK_CLASS ATTN_CLASS_CPU
#endif

#ifndef MOCK_NO_NOTE
ATTN_PLUGIN_NOTE(MOCK_NOTE_NAME, "Mock Makers", MOCK_VERSION, MOCK_NOTE_BACKENDS, ATTN_CLASS_CPU,
                 MOCK_CPU_LEVEL);
#endif

#ifdef MOCK_STATIC_TLS
/* Far more than the dynamic linker keeps in reserve. */
static __thread volatile char mock_block[1 << 20] __attribute__((tls_model("initial-exec")));
#endif

static void reach(const char *step)
{
    if (strcmp(step, MOCK_CRASH_IN) == 0)
        (void)raise(SIGSEGV);
}

/* In front of which function a register of the caller is lost; -DMOCK_CLOBBER says. */
enum { NOWHERE, IN_QUERY, IN_OPEN, IN_FINISH, IN_ENTRY };
#ifndef MOCK_CLOBBER
#define MOCK_CLOBBER NOWHERE
#endif
#ifndef MOCK_SHIFT
#define MOCK_SHIFT 0
#endif

/* The first of the registers that a function preserves, or the last one. */
#if defined(__x86_64__)
#ifdef MOCK_LOSES_LAST
#define LOSE "movl $7, %r15d\n"
#else
#define LOSE "movl $7, %ebx\n"
#endif
#elif defined(MOCK_LOSES_LAST)
#define LOSE "fmov d15, xzr\n"
#else
#define LOSE "mov x19, #7\n"
#endif

/* mock_clobber goes on with mock_behind; mock_shift returns and takes 16 bytes of the stack along. */
extern void mock_clobber(void), mock_shift(void);
#if defined(__x86_64__)
__asm__(".text\n.hidden mock_clobber\n.globl mock_clobber\nmock_clobber:\n" LOSE "jmp *mock_behind(%rip)\n"
        ".hidden mock_shift\n.globl mock_shift\nmock_shift:\nret $16\n");
#else
__asm__(".text\n.hidden mock_clobber\n.globl mock_clobber\nmock_clobber:\n" LOSE "adrp x16, mock_behind\n"
        "ldr x16, [x16, :lo12:mock_behind]\nbr x16\n"
        ".hidden mock_shift\n.globl mock_shift\nmock_shift:\nadd sp, sp, #16\nret\n");
#endif

#ifdef MOCK_NEEDS_SYMBOL
extern int32_t mock_symbol_that_nobody_has(void);
#endif
#ifdef MOCK_NEEDS_LIBRARY
extern int32_t mock_dependency(void);
#endif
#ifdef MOCK_DEPENDENCY
extern int32_t mock_dependency(void);
__attribute__((visibility("default"))) int32_t mock_dependency(void)
{
    return 1;
}
#endif

/* What every entry allocates and finish frees: a forgotten finish is a leak. */
struct attn_instance {
    const struct attn_host *host;
};

static int32_t refuse(struct attn_error *err)
{
    if (err != NULL)
        memcpy(err->message, "a mock computes nothing", sizeof "a mock computes nothing");
    return ATTN_E_UNSUPPORTED;
}

static int32_t plan_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                           struct attn_plan_impl **out, struct attn_error *err)
{
    (void)backend, (void)problem, (void)out;
    return refuse(err);
}

static int32_t plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    (void)plan, (void)out;
    return ATTN_E_UNSUPPORTED;
}

static int32_t plan_prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                            const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                            struct attn_error *err)
{
    (void)plan, (void)batch, (void)schedule, (void)staging, (void)stream;
    return refuse(err);
}

#ifndef MOCK_NO_RUN
static int32_t plan_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                        const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                        const struct attn_kv_desc *desc, const struct attn_span *schedule,
                        const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    (void)plan, (void)batch, (void)tensors, (void)kv, (void)desc, (void)schedule, (void)scratch, (void)stream;
    return refuse(err);
}
#else
#define plan_run NULL
#endif

static void plan_destroy(struct attn_plan_impl *plan)
{
    (void)plan;
}

static int32_t kv_shape(struct attn_backend_impl *backend, const struct attn_problem *problem, uint32_t pages,
                        struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend, (void)problem, (void)pages, (void)out;
    return refuse(err);
}

static int32_t kv_create(struct attn_backend_impl *backend, const struct attn_kv_desc *desc,
                         struct attn_kv_impl **out, struct attn_error *err)
{
    (void)backend, (void)desc, (void)out;
    return refuse(err);
}

static void kv_destroy(struct attn_kv_impl *kv)
{
    (void)kv;
}

static int32_t kv_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                        const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                        struct attn_error *err)
{
    (void)backend, (void)args, (void)kv, (void)desc, (void)stream;
    return refuse(err);
}

static int32_t memory_alloc(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                            struct attn_error *err)
{
    (void)backend, (void)size, (void)out;
    reach("alloc");
    return refuse(err);
}

static void memory_free(struct attn_backend_impl *backend, const struct attn_buffer *buffer)
{
    (void)backend, (void)buffer;
}

static int32_t memory_copy(struct attn_backend_impl *backend, const struct attn_buffer *to,
                           const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                           struct attn_error *err)
{
    (void)backend, (void)to, (void)from, (void)size, (void)kind, (void)stream;
    return refuse(err);
}

static int32_t query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *problem, struct attn_query *out)
{
    (void)instance, (void)device, (void)problem;
    reach("query");
#ifdef MOCK_BESIDE /* as an offset with one bit changed does */
    ((volatile uint32_t *)(uintptr_t)out)[-21] = 0;
#endif
#ifdef MOCK_NO_ENCODERS
    if (problem->type == ATTN_ENCODER || problem->type == ATTN_ENCODER_DECODER) {
        if (out->reason_capacity > 0)
            out->reasons[0] = (struct attn_reason){
                .code = ATTN_REASON_ENC_DEC_ROCM_HIP,
                .field = "type",
                .text = "ROCm/HIP is not currently supported with encoder/decoder models."};
        out->accepted = out->kernel_count = 0;
        out->reason_count = 1;
        return ATTN_OK;
    }
#endif
#ifdef MOCK_SERVES
    out->accepted = 1;
#else
    out->accepted = 0;
#endif
    out->reason_count = out->kernel_count = 0;
    return ATTN_OK;
}

static int32_t axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count)
{
    (void)instance;
    reach("axes");
    *out = NULL;
    *out_count = 0;
    return ATTN_OK;
}

static int32_t open_backend(struct attn_instance *instance, const struct attn_device *device,
                            const struct attn_open_config *config, struct attn_backend_impl **out,
                            struct attn_error *err)
{
    (void)instance, (void)device, (void)config;
#ifdef MOCK_SERVES
    static char impl;
    (void)err;
    *out = (struct attn_backend_impl *)(void *)&impl;
    return ATTN_OK;
#else
    (void)out;
    return refuse(err);
#endif
}

static void close_backend(struct attn_backend_impl *backend)
{
    (void)backend;
}

static const struct attn_plan_table plan = {
#ifdef MOCK_SHORT_PLAN
    .struct_size = sizeof(uint32_t),
#else
    .struct_size = sizeof plan,
#endif
    .create = plan_create,
    .sizes = plan_sizes,
    .prepare = plan_prepare,
    .run = plan_run,
    .destroy = plan_destroy};
static const struct attn_kv_table kv = {.struct_size = sizeof kv,
                                        .shape = kv_shape,
                                        .create = kv_create,
                                        .destroy = kv_destroy,
                                        .write = kv_write};
static const struct attn_memory_table memory = {
    .struct_size = sizeof memory, .alloc = memory_alloc, .free = memory_free, .copy = memory_copy};

#ifdef MOCK_SERVING
/* Builder, state and layer that are never called: what of them there is, MOCK_SERVING says. */
enum { ALL, BUILDER_ALONE, HALF_OF_GRAPHS, NO_SIZES, NO_DESTROY };

static void never(void)
{
    abort();
}

#define NEVER(type, member) .member = (__typeof__(((struct type *)NULL)->member))never
static const struct attn_builder_table serving_builder = {.struct_size = sizeof serving_builder,
                                                          ATTN_BUILDER_SIZES,
                                                          NEVER(attn_builder_table, create),
                                                          NEVER(attn_builder_table, destroy),
                                                          NEVER(attn_builder_table, reset),
                                                          NEVER(attn_builder_table, add),
                                                          NEVER(attn_builder_table, set_row),
                                                          NEVER(attn_builder_table, build),
                                                          NEVER(attn_builder_table, get)};
static const struct attn_state_table serving_state = {
    .struct_size = sizeof serving_state,
    .params_size = MOCK_SERVING == NO_SIZES ? 0 : sizeof(struct attn_state_params),
    NEVER(attn_state_table, create),
    NEVER(attn_state_table, destroy),
    NEVER(attn_state_table, begin_forward),
#if MOCK_SERVING == 2
    NEVER(attn_state_table, begin_capture),
    NEVER(attn_state_table, end_capture),
#endif
};
static const struct attn_layer_table serving_layer = {.struct_size = sizeof serving_layer,
                                                      ATTN_LAYER_SIZES,
#if MOCK_SERVING != 4
                                                      NEVER(attn_layer_table, destroy),
#endif
                                                      NEVER(attn_layer_table, create),
                                                      NEVER(attn_layer_table, forward)};
#endif

static const struct attn_backend_table backend = {
#ifdef MOCK_SERVING
    .builder = &serving_builder,
    .state = MOCK_SERVING == BUILDER_ALONE ? NULL : &serving_state,
    .layer = &serving_layer,
#endif
    .struct_size = sizeof backend,
    .device_class = MOCK_CLASS,
    .name = MOCK_NAME "/flash-attn",
    .plan = &plan,
    .kv = &kv,
    .memory = &memory,
    .query = MOCK_CLOBBER == IN_QUERY ? (__typeof__(&query))mock_clobber : query,
    .axes = axes,
    .open = MOCK_CLOBBER == IN_OPEN ? (__typeof__(&open_backend))mock_clobber : open_backend,
    .close = MOCK_SHIFT ? (__typeof__(&close_backend))mock_shift : close_backend};

__attribute__((unused)) static int32_t get_devices(struct attn_instance *instance,
                                                   struct attn_device_info *out, uint32_t capacity,
                                                   uint32_t *out_count, struct attn_error *err)
{
    (void)instance;
    reach("get_devices");
#ifdef MOCK_NO_DRIVER
    (void)out, (void)capacity, (void)out_count;
    err->reason = ATTN_REASON_NO_DRIVER;
    memcpy(err->message, "libmock.so.1 is not installed", sizeof "libmock.so.1 is not installed");
    return ATTN_E_DEVICE;
#else
    (void)err;
    *out_count = MOCK_DEVICES;
    for (uint32_t i = 0; i < capacity && i < MOCK_DEVICES; i++) {
        out[i].device_class = MOCK_CLASS;
        out[i].device.type = ATTN_DEVICE_CPU;
        out[i].device.ordinal = (int32_t)i;
        out[i].units = 4;
        memcpy(out[i].name, "Mock CPU", sizeof "Mock CPU");
    }
    return ATTN_OK;
#endif
}

static int32_t get_backends(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *out_count, struct attn_error *err)
{
    static const struct attn_backend_table *const backends[] = {&backend};
    (void)instance, (void)err;
    reach("get_backends");
    *out = backends;
    *out_count = 1;
    return ATTN_OK;
}

static void finish(struct attn_instance *instance)
{
    reach("finish");
    instance->host->log(instance->host->ctx, ATTN_LOG_DEBUG, "", "finish");
    free(instance);
}

/* Members of interfaces to come. */
static char plugin_of_the_future;
struct newer {
    struct attn_plugin plugin;
    void *members[4];
};
static const struct newer table __attribute__((unused)) = {
    .plugin =
        {
#if defined(MOCK_SHORT_TABLE)
            .struct_size = offsetof(struct attn_plugin, finish),
#elif defined(MOCK_LONG_TABLE)
            .struct_size = sizeof table,
#else
            .struct_size = sizeof table.plugin,
#endif
            .abi_major = ATTN_ABI_MAJOR,
            .abi_minor = ATTN_ABI_MINOR,
            ATTN_PLUGIN_SIZES,
            .name = MOCK_NAME,
#ifdef MOCK_DEVICE_NAME
            .device_type = MOCK_DEVICE_NAME,
#endif
            .vendor = "Mock Makers",
            .version = MOCK_TABLE_VERSION,
#ifndef MOCK_NO_DEVICES_FUNCTION
            .get_devices = get_devices,
#endif
            .get_backends = get_backends,
            .finish = MOCK_CLOBBER == IN_FINISH ? (__typeof__(&finish))mock_clobber : finish,
        },
    .members = {&plugin_of_the_future, &plugin_of_the_future, NULL, NULL}};

#ifdef MOCK_NO_ENTRY
extern const struct attn_plugin *mock_entry_of_another_name(void);
__attribute__((visibility("default"))) const struct attn_plugin *mock_entry_of_another_name(void)
{
#ifdef MOCK_NEEDS_LIBRARY
    if (mock_dependency() == 0)
        return NULL;
#endif
    return &table.plugin;
}
#else
int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
#ifdef MOCK_ENTRY_FAILS
    memcpy(err->message, "the mock does not want to", sizeof "the mock does not want to");
    (void)host, (void)out, (void)table;
    return ATTN_E_PLUGIN;
#else
    reach("entry");
#ifdef MOCK_STATIC_TLS
    mock_block[0]++;
#endif
#ifdef MOCK_NEEDS_SYMBOL
    if (mock_symbol_that_nobody_has() == 0)
        return ATTN_E_PLUGIN;
#endif
#ifndef MOCK_SHORT_TABLE /* a host that cannot reach finish could not end what is begun here */
    struct attn_instance *instance = malloc(sizeof *instance);
    if (instance == NULL)
        return ATTN_E_MEMORY;
    instance->host = host;
    *host->out_instance = instance;
#endif
    (void)host, (void)err;
#ifdef MOCK_NULL_TABLE
    *out = NULL;
    free(instance);
#elif defined MOCK_FOREIGN_TABLE
    *out = (const void *)host;
    free(instance);
    (void)table;
#else
    *out = &table.plugin;
#endif
    return ATTN_OK;
#endif
}
#endif

#if defined(MOCK_ENTRY)
/* The entry of the file is a jump to the function above, which has another name then. */
#if defined(__x86_64__)
__asm__(".text\n.globl attn_plugin_entry_v1\n.type attn_plugin_entry_v1, @function\nattn_plugin_entry_v1:\n"
        "jmp mock_clobber\n");
#else
__asm__(".text\n.globl attn_plugin_entry_v1\n.type attn_plugin_entry_v1, %function\nattn_plugin_entry_v1:\n"
        "b mock_clobber\n");
#endif
#endif

/* Where mock_clobber goes on. */
extern void (*const mock_behind)(void);
__attribute__((visibility("hidden"))) void (*const mock_behind)(void) =
    MOCK_CLOBBER == IN_QUERY    ? (void (*)(void))query
    : MOCK_CLOBBER == IN_OPEN   ? (void (*)(void))open_backend
    : MOCK_CLOBBER == IN_FINISH ? (void (*)(void))finish
#ifdef MOCK_ENTRY
                                : (void (*)(void))attn_plugin_entry_v1;
#else
                                : NULL;
#endif
