/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the library makes of a backend that answers nonsense, and of optional entries that the mocks do not
 * have: the tables of an open mock are changed in place.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn/device.h"
#include "attn/layer.h"
#include "attn/serving.h"
#include "core.h"
#include "world.h"

#define PROBLEM "heads=8 kv_heads=2 head_dim=64 q=bf16 max_seqs=4 max_q=8 max_kv=64 max_rows=16"

static struct desk {
    struct world world;
    struct attn_decision *decision;
    struct attn_backend *backend;
    struct attn_problem problem;
    uint32_t asked_for;
} desk;

static struct attn__backend *set_up(void)
{
    struct attn_error *err = &desk.world.err;
    world_open(&desk.world, "gpu", NULL);
    cr_assert_eq(world_select(&desk.world, PROBLEM, NULL, NULL, &desk.decision), ATTN_OK, "%s", err->message);
    cr_assert_eq(attn_backend_open(desk.world.context, desk.decision, NULL, &desk.backend, err), ATTN_OK);
    cr_assert_eq(attn_problem_parse(PROBLEM, &desk.problem, err), ATTN_OK, "%s", err->message);
    return desk.backend->entry;
}

static void tear_down(void)
{
    attn_decision_destroy(desk.decision);
    attn_backend_destroy(desk.backend);
    world_close(&desk.world);
}

static void said(int32_t got, int32_t status, const char *piece)
{
    cr_assert_eq(got, status, "%s: %s", attn_status_name(got), desk.world.err.message);
    cr_assert_not_null(strstr(desk.world.err.message, piece), "%s", desk.world.err.message);
}

/* ---------------------------------------------------------------- success without a result */

static int32_t open_nothing(struct attn_instance *instance, const struct attn_device *device,
                            const struct attn_open_config *config, struct attn_backend_impl **out,
                            struct attn_error *err)
{
    (void)instance, (void)device, (void)config, (void)out, (void)err;
    return ATTN_OK;
}

static int32_t create_no_plan(struct attn_backend_impl *backend, const struct attn_problem *problem,
                              struct attn_plan_impl **out, struct attn_error *err)
{
    (void)backend, (void)problem, (void)out, (void)err;
    return ATTN_OK;
}

static struct attn_plan_impl *one_plan;

static void destroy_nothing(struct attn_plan_impl *plan)
{
    (void)plan;
}

/* Leaves words of an error behind, and succeeds. */
static int32_t create_with_words(struct attn_backend_impl *backend, const struct attn_problem *problem,
                                 struct attn_plan_impl **out, struct attn_error *err)
{
    (void)backend, (void)problem;
    snprintf(err->message, sizeof err->message, "words of no error");
    *out = one_plan;
    return ATTN_OK;
}

static int32_t measure_nothing(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    (void)plan, (void)out;
    return ATTN_E_MEMORY;
}

static int32_t create_strangely(struct attn_backend_impl *backend, const struct attn_problem *problem,
                                struct attn_plan_impl **out, struct attn_error *err)
{
    (void)backend, (void)problem, (void)out, (void)err;
    return -9999;
}

static int32_t create_no_cache(struct attn_backend_impl *backend, const struct attn_kv_desc *desc,
                               struct attn_kv_impl **out, struct attn_error *err)
{
    (void)backend, (void)desc, (void)out, (void)err;
    return ATTN_OK;
}

Test(liars, success_without_a_result)
{
    struct attn__backend *entry = set_up();
    struct attn_error *err = &desk.world.err;
    struct attn_backend *backend = NULL;
    struct attn_plan *plan = NULL;
    struct attn_kv *kv = NULL;
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;
    struct attn_buffer memory = {&desk, 0};
    entry->table.open = open_nothing;
    said(attn_backend_open(desk.world.context, desk.decision, NULL, &backend, err), ATTN_E_PLUGIN,
         "open succeeded without a backend");
    entry->plan.create = create_no_plan;
    said(attn_plan_create(desk.backend, &desk.problem, &plan, err), ATTN_E_PLUGIN,
         "plan create succeeded without a plan");
    const struct attn_plan_table kept = entry->plan;
    entry->plan.create = create_with_words;
    entry->plan.sizes = measure_nothing;
    entry->plan.destroy = destroy_nothing;
    one_plan = (struct attn_plan_impl *)(void *)&desk;
    said(attn_plan_create(desk.backend, &desk.problem, &plan, err), ATTN_E_MEMORY,
         attn_status_text(ATTN_E_MEMORY));
    entry->plan = kept;
    entry->plan.create = create_strangely;
    said(attn_plan_create(desk.backend, &desk.problem, &plan, err), ATTN_E_PLUGIN,
         "returned -9999, which is no status");
    entry->plan = kept;
    entry->kv.create = create_no_cache;
    ATTN_INIT(&shape);
    cr_assert_eq(attn_kv_get_shape(desk.backend, &desk.problem, 4, &shape, err), ATTN_OK);
    attn_kv_desc_init(&desc, &shape, &memory);
    said(attn_kv_create(desk.backend, &desc, &kv, err), ATTN_E_PLUGIN, "kv create succeeded without a cache");
    cr_assert(backend == NULL && plan == NULL && kv == NULL);
    tear_down();
}

/* ---------------------------------------------------------------- queries */

static int32_t query_fails(struct attn_instance *instance, const struct attn_device *device,
                           const struct attn_problem *problem, struct attn_query *out)
{
    (void)instance, (void)device, (void)problem, (void)out;
    return ATTN_E_DEVICE;
}

static int32_t query_refuses(struct attn_instance *instance, const struct attn_device *device,
                             const struct attn_problem *problem, struct attn_query *out)
{
    (void)instance, (void)device, (void)problem;
    out->accepted = out->reason_count = out->kernel_count = 0;
    return ATTN_OK;
}

/* Says that there is no end of reasons. */
static int32_t query_floods(struct attn_instance *instance, const struct attn_device *device,
                            const struct attn_problem *problem, struct attn_query *out)
{
    (void)instance, (void)device, (void)problem;
    out->accepted = 0;
    out->reason_count = UINT32_MAX;
    desk.asked_for = out->reason_capacity;
    return ATTN_OK;
}

/* A refusal in a code alone, and as many kernels as a text lists. */
static int32_t query_says_little(struct attn_instance *instance, const struct attn_device *device,
                                 const struct attn_problem *problem, struct attn_query *out)
{
    (void)instance, (void)device, (void)problem;
    out->accepted = 1;
    out->reason_count = 1;
    out->kernel_count = 4;
    out->reasons[0].code = ATTN_REASON_HEAD_DIM;
    for (int i = 0; i < 4; i++)
        out->kernels[i].name[0] = (char)('a' + i);
    return ATTN_OK;
}

static int32_t axes_fail(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count)
{
    (void)instance;
    *out = (const struct attn_axis *)&desk;
    *out_count = 7;
    return ATTN_E_DEVICE;
}

static int32_t query_shouts(struct attn_instance *instance, const struct attn_device *device,
                            const struct attn_problem *problem, struct attn_query *out)
{
    (void)instance, (void)device, (void)problem;
    out->accepted = 1;
    out->kernel_count = out->reason_count = 2;
    out->graph_level = ATTN_GRAPH_ALWAYS;
    for (int i = 0; i < 2; i++) { /* rows that differ: equal ones are one */
        if (out->kernel_capacity > 1)
            memset(&out->kernels[i], 'x' + i, sizeof *out->kernels);
        if (out->reason_capacity > 1)
            memset(&out->reasons[i], 'x' + i, sizeof *out->reasons);
    }
    return ATTN_OK;
}

#define LAST_OF(text) (text)[sizeof(text) - 1]

static void check_ends(const struct attn_kernel_info *kernels, const struct attn_reason *reasons)
{
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert_eq(LAST_OF(kernels[i].name), 0);
        cr_assert_eq(LAST_OF(kernels[i].when), 0);
        cr_assert_eq(LAST_OF(reasons[i].kernel), 0);
        cr_assert_eq(LAST_OF(reasons[i].field), 0);
        cr_assert_eq(LAST_OF(reasons[i].got), 0);
        cr_assert_eq(LAST_OF(reasons[i].wanted), 0);
        cr_assert_eq(LAST_OF(reasons[i].text), 0);
    }
}

Test(liars, texts_without_an_end)
{
    struct attn__backend *entry = set_up();
    struct attn_decision *decision;
    entry->table.query = query_shouts;
    cr_assert_eq(world_select(&desk.world, PROBLEM, NULL, NULL, &decision), ATTN_OK);
    const struct attn_candidate *candidate = world_candidate(decision, "gpu/flash-attn", "cuda:0");
    cr_assert_eq(candidate->kernel_count, 2);
    cr_assert_eq(candidate->reason_count, 2);
    check_ends(candidate->kernels, candidate->reasons);
    attn_decision_destroy(decision);
    struct attn_reason reasons[2];
    struct attn_kernel_info kernels[2];
    struct attn_query query = {
        .reasons = reasons, .reason_capacity = 2, .kernels = kernels, .kernel_capacity = 2};
    query.struct_size = sizeof query;
    cr_assert_eq(attn_context_query(desk.world.context, entry->table.name, NULL, &desk.problem, &query,
                                    &desk.world.err),
                 ATTN_OK, "%s", desk.world.err.message);
    check_ends(kernels, reasons);
    tear_down();
}

Test(liars, answers_in_few_words)
{
    struct attn__backend *entry = set_up();
    struct attn_decision *decision;
    entry->table.query = query_says_little;
    cr_assert_eq(world_select(&desk.world, PROBLEM, "gpu/flash-attn", NULL, &decision), ATTN_OK);
    const struct attn_candidate *candidate = world_candidate(decision, "gpu/flash-attn", "cuda:0");
    bool told = false;
    for (uint32_t i = 0; i < candidate->reason_count; i++)
        told |= strcmp(candidate->reasons[i].text, attn_reason_text(ATTN_REASON_HEAD_DIM)) == 0;
    cr_assert(told, "a reason without a text has that of its code");
    const char *text = attn_decision_get_info(decision)->text;
    cr_assert_not_null(strstr(text, ", kernels a"), "%s", text);
    cr_assert_null(strstr(text, "... (4)"), "%s", text);
    attn_decision_destroy(decision);
    tear_down();
}

Test(liars, queries_that_fail)
{
    struct attn__backend *entry = set_up();
    struct attn_context *context = desk.world.context;
    struct attn_error *err = &desk.world.err;
    struct attn_plan *plan = NULL;
    struct attn_query query;
    const struct attn_axis *axes = NULL;
    uint32_t count = 3;
    ATTN_INIT(&query);
    entry->table.query = query_fails;
    said(attn_context_query(context, entry->table.name, NULL, &desk.problem, &query, err), ATTN_E_PLUGIN,
         "query failed with ATTN_E_DEVICE");
    said(attn_backend_query(desk.backend, &desk.problem, &query, err), ATTN_E_PLUGIN,
         "query failed with ATTN_E_DEVICE");
    cr_assert_neq(attn_plan_create(desk.backend, &desk.problem, &plan, err), ATTN_OK);
    entry->table.query = query_refuses;
    said(attn_plan_create(desk.backend, &desk.problem, &plan, err), ATTN_E_UNSUPPORTED,
         "refuses the problem without a reason");
    entry->table.query = query_floods;
    struct attn_decision *decision;
    cr_assert_eq(world_select(&desk.world, PROBLEM, NULL, NULL, &decision), ATTN_OK, "another one serves");
    attn_decision_destroy(decision);
    cr_assert_eq(desk.asked_for, 65536, "room for %u reasons", desk.asked_for);
    entry->table.axes = axes_fail;
    said(attn_context_get_axes(context, entry->table.name, &axes, &count, err), ATTN_E_PLUGIN,
         "axes failed with ATTN_E_DEVICE");
    cr_assert(axes == NULL && count == 0, "what a failed call wrote is not passed on");
    said(attn_context_get_axes(context, entry->table.name, &axes, NULL, err), ATTN_E_INVALID, "out_count");
    said(attn_context_query(context, "gpo/flash-attn", NULL, &desk.problem, &query, err), ATTN_E_INVALID,
         "gpu/flash-attn");
    entry->table.name = "gpu/other";
    said(attn_context_query(context, "gpu/flash-attn", NULL, &desk.problem, &query, err), ATTN_E_PLUGIN,
         "gpu/flash-attn");
    entry->table.name = "gpu/flash-attn";
    entry->plugin->table.problem_size = (uint32_t)offsetof(struct attn_problem, softcap);
    desk.problem.softcap = 30;
    said(attn_context_query(context, "gpu/flash-attn", NULL, &desk.problem, &query, err), ATTN_E_UNSUPPORTED,
         "all that the plugin knows");
    said(attn_backend_query(desk.backend, &desk.problem, &query, err), ATTN_E_UNSUPPORTED,
         "all that the plugin knows");
    tear_down();
}

/* ---------------------------------------------------------------- optional entries of the memory table */

static unsigned freed;

static int32_t alloc_pinned(struct attn_backend_impl *backend, uint64_t size, void **out,
                            struct attn_error *err)
{
    (void)backend, (void)err;
    *out = &freed;
    return size == 64 ? ATTN_OK : ATTN_E_MEMORY;
}

static void free_pinned(struct attn_backend_impl *backend, void *memory)
{
    (void)backend;
    freed += memory == &freed;
}

static int32_t create_stream(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    (void)backend, (void)err;
    *out = &desk;
    return ATTN_OK;
}

static void destroy_stream(struct attn_backend_impl *backend, void *stream)
{
    (void)backend;
    freed += stream == (void *)&desk ? 16 : 0;
}

static int32_t synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err)
{
    (void)backend, (void)err;
    return stream == (void *)&desk ? ATTN_OK : ATTN_E_DEVICE;
}

static int32_t record_event(struct attn_backend_impl *backend, void *event, void *stream,
                            struct attn_error *err)
{
    (void)backend, (void)event, (void)stream, (void)err;
    return ATTN_OK;
}

static int32_t create_no_event(struct attn_backend_impl *backend, void **out, struct attn_error *err)
{
    (void)backend, (void)out, (void)err;
    return ATTN_E_MEMORY;
}

Test(liars, an_event_that_is_not_made)
{
    struct attn__backend *entry = set_up();
    void *event = &desk;
    entry->memory.event_create = create_no_event;
    entry->memory.event_record = record_event;
    entry->memory.event_query = entry->memory.event_synchronize = synchronize;
    entry->memory.event_destroy = destroy_stream;
    said(attn_event_create(desk.backend, &event, &desk.world.err), ATTN_E_MEMORY,
         "gpu/flash-attn: event create: ");
    cr_assert_null(event);
    cr_assert_eq(desk.world.err.reason, 0);
    tear_down();
}

Test(liars, optional_memory_is_passed_through)
{
    struct attn__backend *entry = set_up();
    struct attn_error *err = &desk.world.err;
    void *memory = &desk, *stream = NULL;
    said(attn_memory_alloc_pinned(desk.backend, 64, &memory, err), ATTN_E_UNSUPPORTED, "no pinned memory");
    cr_assert_null(memory);
    said(attn_stream_create(desk.backend, &stream, err), ATTN_E_UNSUPPORTED, "no streams");
    entry->memory.alloc_pinned = alloc_pinned;
    entry->memory.free_pinned = free_pinned;
    entry->memory.stream_create = create_stream;
    said(attn_stream_create(desk.backend, &stream, err), ATTN_E_UNSUPPORTED, "no streams");
    entry->memory.stream_destroy = destroy_stream;
    entry->memory.stream_synchronize = synchronize;
    cr_assert_eq(attn_memory_alloc_pinned(desk.backend, 64, &memory, err), ATTN_OK);
    cr_assert_eq(memory, &freed);
    cr_assert_eq(attn_memory_alloc_pinned(desk.backend, 65, &memory, err), ATTN_E_MEMORY);
    said(attn_memory_alloc_pinned(desk.backend, 0, &memory, err), ATTN_E_INVALID, "size is 0");
    said(attn_memory_alloc_pinned(desk.backend, 64, NULL, err), ATTN_E_INVALID, "out is NULL");
    attn_memory_free_pinned(desk.backend, &freed);
    attn_memory_free_pinned(desk.backend, NULL);
    attn_memory_free_pinned(NULL, &freed);
    cr_assert_eq(freed, 1);
    cr_assert_eq(attn_stream_create(desk.backend, &stream, err), ATTN_OK);
    cr_assert_eq(attn_stream_synchronize(desk.backend, stream, err), ATTN_OK);
    cr_assert_eq(attn_stream_synchronize(desk.backend, NULL, err), ATTN_E_DEVICE);
    said(attn_stream_create(desk.backend, NULL, err), ATTN_E_INVALID, "out is NULL");
    attn_stream_destroy(desk.backend, stream);
    attn_stream_destroy(NULL, stream);
    cr_assert_eq(freed, 17);
    tear_down();
}

static int32_t begin_no_graph(struct attn_backend_impl *backend, void *stream, struct attn_graph_impl **out,
                              struct attn_error *err)
{
    (void)backend, (void)stream, (void)out, (void)err;
    return ATTN_E_MEMORY;
}

/* What a call finds on the stack below this one. */
static __attribute__((noinline)) void fill_stack(void)
{
    volatile char bytes[8192];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = 'x';
}

Test(liars, a_graph_that_fails_without_words)
{
    static const size_t all[] = {
        offsetof(struct attn_memory_table, graph_begin), offsetof(struct attn_memory_table, graph_add_host),
        offsetof(struct attn_memory_table, graph_end), offsetof(struct attn_memory_table, graph_launch),
        offsetof(struct attn_memory_table, graph_destroy)};
    struct attn__backend *entry = set_up();
    struct attn_graph *graph = NULL;
    entry->memory.graph_begin = begin_no_graph;
    entry->memory.graph_add_host = (__typeof__(entry->memory.graph_add_host))abort;
    entry->memory.graph_end = (__typeof__(entry->memory.graph_end))abort;
    entry->memory.graph_launch = (__typeof__(entry->memory.graph_launch))abort;
    entry->memory.graph_destroy = (__typeof__(entry->memory.graph_destroy))abort;
    fill_stack();
    said(attn_graph_begin(desk.backend, &desk, &graph, &desk.world.err), ATTN_E_MEMORY,
         attn_status_text(ATTN_E_MEMORY));
    cr_assert_str_eq(desk.world.err.field, "");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const struct attn_memory_table whole = entry->memory;
        memset((char *)&entry->memory + all[i], 0, sizeof entry->memory.graph_end);
        said(attn_graph_begin(desk.backend, &desk, &graph, &desk.world.err), ATTN_E_UNSUPPORTED,
             "offers no graphs");
        entry->memory = whole;
    }
    tear_down();
}

/* ---------------------------------------------------------------- an older builder */

/* What a plugin does not know is told, whether the caller's struct is copied or not. */
Test(liars, a_builder_that_knows_fewer_parameters)
{
    struct attn_builder_table table = attn_serving_builder;
    struct {
        struct attn_builder_params params;
        uint64_t more;
    } newer = {.params = {.max_map = 1}};
    struct attn_builder *builder;
    set_up()->table.builder = &table;
    table.params_size = offsetof(struct attn_builder_params, max_map);
    for (int i = 0; i < 2; i++) {
        newer.params.struct_size = (uint32_t)(i == 0 ? sizeof newer.params : sizeof newer);
        said(attn_builder_create(desk.backend, &newer.params, &builder, &desk.world.err), ATTN_E_UNSUPPORTED,
             "params has a value beyond byte");
        cr_assert_eq(desk.world.err.reason, ATTN_REASON_UNKNOWN_TO_PLUGIN);
        cr_assert_str_eq(desk.world.err.field, "params");
    }
    tear_down();
}

/* ---------------------------------------------------------------- one call for several plans */

static struct attn_plan_impl *seen[2];
static unsigned calls;

static int32_t prepare_many(const struct attn_plan_impl *const *plans,
                            const struct attn_batch *const *batches, const struct attn_span *schedules,
                            uint32_t n, const struct attn_span *staging, void *stream, struct attn_error *err)
{
    (void)schedules, (void)staging, (void)stream, (void)err;
    calls++;
    for (uint32_t i = 0; i < n && i < 2; i++)
        seen[i] = (struct attn_plan_impl *)(uintptr_t)plans[i];
    return n == 2 && batches[0] == batches[1] ? ATTN_OK : ATTN_E_INVALID;
}

Test(liars, one_call_for_several_plans)
{
    struct attn__backend *entry = set_up();
    struct attn_error *err = &desk.world.err;
    struct attn_plan *plans[2];
    struct attn_batch batch;
    char memory[512];
    const struct attn_span span = {.buffer = {memory, 0}, .size = sizeof memory};
    const struct attn_span schedules[] = {span, span};
    const struct attn_batch *batches[] = {&batch, &batch};
    ATTN_INIT(&batch);
    batch.seqs = 2;
    batch.num_tokens = 3;
    batch.max_q = 2;
    batch.max_kv = 20;
    batch.table_width = 2;
    batch.table_stride = 8;
    batch.q_offsets.data = batch.kv_lens.data = batch.table.data = memory;
    for (int i = 0; i < 2; i++)
        cr_assert_eq(attn_plan_create(desk.backend, &desk.problem, &plans[i], err), ATTN_OK);
    entry->plan.prepare_many = prepare_many;
    const int32_t status = attn_plan_prepare_many((const struct attn_plan *const *)plans, batches, schedules,
                                                  2, &span, NULL, err);
    cr_assert_eq(status, ATTN_OK, "%s", err->message);
    cr_assert(seen[0] == plans[0]->impl && seen[1] == plans[1]->impl);
    /* More than fit the list that a plugin is given are prepared one by one. */
    enum { MANY = 33 };
    static char staging[MANY * 64];
    const struct attn_span large = {.buffer = {staging, 0}, .size = sizeof staging};
    const struct attn_plan *same[MANY];
    const struct attn_batch *batch_of[MANY];
    struct attn_span schedule_of[MANY];
    for (int i = 0; i < MANY; i++) {
        same[i] = plans[0];
        batch_of[i] = &batch;
        schedule_of[i] = span;
    }
    said(attn_plan_prepare_many(same, batch_of, schedule_of, MANY - 1, &large, NULL, err), ATTN_E_INVALID,
         "");
    cr_assert_eq(calls, 2);
    cr_assert_eq(attn_plan_prepare_many(same, batch_of, schedule_of, MANY, &large, NULL, err), ATTN_OK, "%s",
                 err->message);
    cr_assert_eq(calls, 2);
    /* Sizes that no plan has: their sum is checked before anything is called. */
    plans[0]->sizes.staging = plans[1]->sizes.staging = UINT64_MAX;
    said(attn_plan_prepare_many((const struct attn_plan *const *)plans, batches, schedules, 2, &span, NULL,
                                err),
         ATTN_E_SIZE, "overflows 64 bits");
    attn_plan_destroy(plans[0]);
    attn_plan_destroy(plans[1]);
    tear_down();
}

/* ---------------------------------------------------------------- services of the host */

static int32_t run_all(void *arg, attn_task_fn fn, void *task_arg, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        fn(task_arg, i);
    return *(int32_t *)arg;
}

static void add(void *arg, uint32_t index)
{
    *(uint32_t *)arg += index + 1;
}

Test(liars, services_of_the_host)
{
    int32_t answer = 5;
    uint32_t sum = 0;
    struct attn__backend *entry = set_up();
    struct attn__plugin *plugin = entry->plugin;
    const struct attn_host *host = &plugin->host;
    cr_assert_null(host->parallel_for, "a host without threads to lend offers none");
    plugin->context->parallel_for = run_all;
    plugin->context->parallel_for_arg = &answer;
    attn__host_init(plugin);
    cr_assert_eq(host->parallel_for(host->ctx, add, &sum, 4), 5);
    cr_assert_eq(sum, 10);
    const uint64_t first = host->clock(host->ctx), second = host->clock(host->ctx);
    cr_assert(first != 0 && first <= second);
    cr_assert_null(host->get_option(host->ctx, NULL));
    cr_assert_null(host->get_option(host->ctx, "PATH"));
    host->log(host->ctx, ATTN_LOG_WARN, NULL, "of nobody");
    host->log(host->ctx, ATTN_LOG_WARN, "part", NULL);
    cr_assert_eq(world_said(&desk.world, "gpu: of nobody"), 1);
    host->log(host->ctx, ATTN_LOG_WARN, "\xc3\xa9", "of a part");
    cr_assert_eq(world_said(&desk.world, "\xc3\xa9: of a part"), 1);
    plugin->context->parallel_for = NULL;
    tear_down();
}
