/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every call of a plugin's tables, without the library between. */
#include <stdio.h>

#include "faults.h"

static int32_t enter(struct bench *bench, struct attn_error *err)
{
    struct attn_host host = bench->direct.host;

    bench->made_instance = NULL;
    bench->made_plugin = NULL;
    host.out_instance = &bench->made_instance;
    return bench->direct.entry(&host, &bench->made_plugin, err);
}

static void leave(struct bench *bench)
{
    bench->made_plugin->finish(bench->made_instance);
}

static bool check_plugin(struct bench *bench, char *why, size_t size)
{
    if (bench->made_plugin == bench->direct.plugin)
        return true;
    snprintf(why, size, "it gave another table than before");
    return false;
}

static int32_t get_devices(struct bench *bench, struct attn_error *err)
{
    struct attn_device_info devices[4];
    uint32_t count = 0;

    memset(devices, 0, sizeof devices);
    for (uint32_t i = 0; i < 4; i++)
        ATTN_INIT(&devices[i]);
    int32_t status = bench->direct.plugin->get_devices(bench->direct.instance, devices, 4, &count, err);
    if (status == ATTN_OK && count == 0 && err != NULL)
        snprintf(err->message, sizeof err->message, "no device is listed any more");
    return status == ATTN_OK && count == 0 ? ATTN_E_STATE : status;
}

static int32_t get_backends(struct bench *bench, struct attn_error *err)
{
    const struct attn_backend_table *const *tables = NULL;
    uint32_t count = 0;

    return bench->direct.plugin->get_backends(bench->direct.instance, &tables, &count, err);
}

static int32_t open(struct bench *bench, struct attn_error *err)
{
    bench->made_impl = NULL;
    return bench_open(bench, &bench->made_impl, err);
}

static void close(struct bench *bench)
{
    bench->direct.table->close(bench->made_impl);
}

static int32_t create_plan(struct bench *bench, struct attn_error *err)
{
    bench->made_plan_impl = NULL;
    return bench->direct.table->plan->create(bench->impl, &bench->fixture.step.problem,
                                             &bench->made_plan_impl, err);
}

static void destroy_plan(struct bench *bench)
{
    bench->direct.table->plan->destroy(bench->made_plan_impl);
}

static int32_t create_kv(struct bench *bench, struct attn_error *err)
{
    bench->made_kv_impl = NULL;
    return bench->direct.table->kv->create(bench->impl, &bench->fixture.step.kv, &bench->made_kv_impl, err);
}

static void destroy_kv(struct bench *bench)
{
    bench->direct.table->kv->destroy(bench->made_kv_impl);
}

static int32_t prepare(struct bench *bench, struct attn_error *err)
{
    const struct fixture *fixture = &bench->fixture;

    return bench->direct.table->plan->prepare(bench->plan_impl, &fixture->step.batch, &fixture->schedule,
                                              &fixture->staging, NULL, err);
}

static int32_t run(struct bench *bench, struct attn_error *err)
{
    const struct fixture *fixture = &bench->fixture;

    return bench->direct.table->plan->run(bench->plan_impl, &fixture->step.batch, &fixture->step.tensors,
                                          bench->kv_impl, NULL, &fixture->schedule, &fixture->scratch, NULL,
                                          err);
}

static bool check_run(struct bench *bench, char *why, size_t size)
{
    return fixture_judge(&bench->fixture, why, size);
}

static void clear_run(struct bench *bench)
{
    fixture_clear(&bench->fixture);
}

static int32_t write(struct bench *bench, struct attn_error *err)
{
    return bench->direct.table->kv->write(bench->impl, &bench->fixture.write, NULL, &bench->fixture.write_kv,
                                          NULL, err);
}

static int32_t merge(struct bench *bench, struct attn_error *err)
{
    const struct attn_merge_table *table = bench->direct.table->merge;

    return table == NULL || table->merge == NULL ? ATTN_E_UNSUPPORTED
                                                 : table->merge(bench->impl, &bench->merge, NULL, err);
}

static int32_t rescale(struct bench *bench, struct attn_error *err)
{
    const struct attn_merge_table *table = bench->direct.table->merge;

    return table == NULL || table->rescale == NULL ? ATTN_E_UNSUPPORTED
                                                   : table->rescale(bench->impl, &bench->rescale, NULL, err);
}

static int32_t allocate(struct bench *bench, struct attn_error *err)
{
    bench->made_buffer = (struct attn_buffer){NULL, 0};
    return bench->direct.table->memory->alloc(bench->impl, 5000, &bench->made_buffer, err);
}

static void release(struct bench *bench)
{
    bench->direct.table->memory->free(bench->impl, &bench->made_buffer);
}

static int32_t allocate_pinned(struct bench *bench, struct attn_error *err)
{
    const struct attn_memory_table *table = bench->direct.table->memory;

    bench->made_memory = NULL;
    return table->alloc_pinned == NULL ? ATTN_E_UNSUPPORTED
                                       : table->alloc_pinned(bench->impl, 5000, &bench->made_memory, err);
}

static void release_pinned(struct bench *bench)
{
    bench->direct.table->memory->free_pinned(bench->impl, bench->made_memory);
}

static int32_t copy(struct bench *bench, struct attn_error *err)
{
    char from[64] = {1}, to[64];
    const struct attn_buffer source = {from, 0}, destination = {to, 0};

    return bench->direct.table->memory->copy(bench->impl, &destination, &source, sizeof to,
                                             ATTN_COPY_TO_DEVICE, NULL, err);
}

/* The plan's first use of a backend's threads. */
static int32_t live(struct bench *bench, struct attn_error *err)
{
    const struct attn_backend_table *table = bench->direct.table;
    struct attn_backend_impl *impl = bench->impl;
    struct attn_plan_impl *plan = bench->plan_impl;
    struct attn_kv_impl *kv = bench->kv_impl;

    bench->impl = NULL;
    bench->plan_impl = NULL;
    bench->kv_impl = NULL;
    int32_t status = open(bench, err);
    bench->impl = bench->made_impl;
    if (status == ATTN_OK && (status = create_plan(bench, err)) == ATTN_OK) {
        bench->plan_impl = bench->made_plan_impl;
        if ((status = create_kv(bench, err)) == ATTN_OK) {
            bench->kv_impl = bench->made_kv_impl;
            status = prepare(bench, err);
            status = status == ATTN_OK ? run(bench, err) : status;
            table->kv->destroy(bench->kv_impl);
        }
        table->plan->destroy(bench->plan_impl);
    }
    if (bench->impl != NULL)
        table->close(bench->impl);
    bench->impl = impl;
    bench->plan_impl = plan;
    bench->kv_impl = kv;
    return status;
}

const struct call direct_calls[] = {
    {"entry", enter, check_plugin, leave, false, false},
    {"get_devices", get_devices, NULL, NULL, false, false},
    {"get_backends", get_backends, NULL, NULL, false, false},
    {"open", open, NULL, close, false, false},
    {"plan.create", create_plan, NULL, destroy_plan, false, false},
    {"kv.create", create_kv, NULL, destroy_kv, false, false},
    {"plan.prepare", prepare, NULL, NULL, true, false},
    {"plan.run", run, check_run, clear_run, true, false},
    {"kv.write", write, NULL, NULL, true, false},
    {"merge.merge", merge, NULL, NULL, true, true},
    {"merge.rescale", rescale, NULL, NULL, true, true},
    {"memory.alloc", allocate, NULL, release, false, false},
    {"memory.alloc_pinned", allocate_pinned, NULL, release_pinned, false, true},
    {"memory.copy", copy, NULL, NULL, true, false},
    {NULL, NULL, NULL, NULL, false, false},
};

const struct call life_calls[] = {
    {"open to close", live, check_run, clear_run, false, false},
    {NULL, NULL, NULL, NULL, false, false},
};
