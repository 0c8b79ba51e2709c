/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Handles on a mock: opening, any order of destruction, a lost device, fork, and the calls on plans. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attn/device.h"
#include "world.h"

#define PROBLEM "heads=8 kv_heads=2 head_dim=64 q=bf16 max_seqs=4 max_q=8 max_kv=64 max_rows=16"

/* A backend with a plan and a cache, and good arguments for every call. */
struct desk {
    struct world world;
    struct attn_backend *backend;
    struct attn_plan *plan;
    struct attn_kv *kv;
    struct attn_problem problem;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_kv_desc desc;
    struct attn_scratch scratch;
    struct attn_span schedule;
    struct attn_span staging;
    char memory[4096];
};

static void open_backend(struct desk *desk, const char *mock, const char *variables)
{
    struct attn_decision *decision;
    world_open(&desk->world, mock, variables);
    cr_assert_eq(world_select(&desk->world, PROBLEM, NULL, NULL, &decision), ATTN_OK, "%s",
                 desk->world.err.message);
    cr_assert_eq(attn_backend_open(desk->world.context, decision, NULL, &desk->backend, &desk->world.err),
                 ATTN_OK, "%s", desk->world.err.message);
    attn_decision_destroy(decision);
}

static void fill_span(struct desk *desk, struct attn_span *span, uint64_t size)
{
    span->buffer.data = desk->memory;
    span->size = size;
}

static void fill(struct desk *desk)
{
    ATTN_INIT(&desk->batch);
    desk->batch.seqs = 2;
    desk->batch.num_tokens = 3;
    desk->batch.max_q = 2;
    desk->batch.max_kv = 20;
    desk->batch.table_width = 2;
    desk->batch.table_stride = 8;
    desk->batch.q_offsets.data = desk->batch.kv_lens.data = desk->batch.table.data = desk->memory;
    ATTN_INIT(&desk->tensors);
    desk->tensors.softmax_scale = 0.125F;
    desk->tensors.q.buffer.data = desk->tensors.out.buffer.data = desk->memory;
    desk->tensors.q.token_stride = desk->tensors.out.token_stride = 1024;
    desk->tensors.q.head_stride = desk->tensors.out.head_stride = 128;
    ATTN_INIT(&desk->scratch);
    fill_span(desk, &desk->scratch.scratch, 256);
    fill_span(desk, &desk->scratch.counters, 64);
    fill_span(desk, &desk->schedule, 128);
    fill_span(desk, &desk->staging, 32);
}

static void desk_open(struct desk *desk, const char *extra)
{
    struct attn_kv_shape shape;
    struct attn_buffer memory = {desk->memory, 16};
    char text[256];
    memset(desk, 0, sizeof *desk);
    open_backend(desk, "gpu", NULL);
    snprintf(text, sizeof text, "%s %s", PROBLEM, extra);
    struct attn_error *err = &desk->world.err;
    cr_assert_eq(attn_problem_parse(text, &desk->problem, err), ATTN_OK, "%s", err->message);
    cr_assert_eq(attn_plan_create(desk->backend, &desk->problem, &desk->plan, err), ATTN_OK, "%s",
                 err->message);
    ATTN_INIT(&shape);
    cr_assert_eq(attn_kv_get_shape(desk->backend, &desk->problem, 4, &shape, err), ATTN_OK, "%s",
                 err->message);
    attn_kv_desc_init(&desk->desc, &shape, &memory);
    cr_assert_eq(desk->desc.v.byte_offset, 16 + shape.v_offset);
    cr_assert_eq(attn_kv_create(desk->backend, &desk->desc, &desk->kv, err), ATTN_OK, "%s", err->message);
    fill(desk);
    desk->tensors.kv = desk->kv;
}

static void desk_close(struct desk *desk)
{
    attn_plan_destroy(desk->plan);
    attn_kv_destroy(desk->kv);
    attn_backend_destroy(desk->backend);
    world_close(&desk->world);
}

static int32_t run(struct desk *desk)
{
    return attn_plan_run(desk->plan, &desk->batch, &desk->tensors, &desk->schedule, &desk->scratch, NULL,
                         &desk->world.err);
}

static void refused(struct desk *desk, int32_t status, const char *field, const char *piece)
{
    const int32_t got = run(desk);
    cr_assert_eq(got, status, "%s: %s", attn_status_name(got), desk->world.err.message);
    cr_assert_str_eq(desk->world.err.field, field, "%s: %s", desk->world.err.field, desk->world.err.message);
    cr_assert_not_null(strstr(desk->world.err.message, piece), "%s", desk->world.err.message);
}

Test(handles, any_order_of_destruction)
{
    for (int order = 0; order < 24; order++) {
        struct desk desk;
        desk_open(&desk, "");
        int left[] = {0, 1, 2, 3};
        int rest = order;
        for (int n = 4; n > 0; n--) {
            const int at = rest % n;
            rest /= n;
            switch (left[at]) {
            case 0:
                attn_plan_destroy(desk.plan);
                break;
            case 1:
                attn_kv_destroy(desk.kv);
                break;
            case 2:
                attn_backend_destroy(desk.backend);
                break;
            default:
                attn_context_destroy(desk.world.context);
                break;
            }
            left[at] = left[n - 1];
        }
        cr_assert_eq(world_said(&desk.world, "mock: plan destroy"), 1);
        cr_assert_eq(world_said(&desk.world, "mock: kv destroy"), 1);
        cr_assert_eq(world_said(&desk.world, "mock: close"), 1);
        cr_assert_lt(strstr(desk.world.log, "mock: plan destroy"), strstr(desk.world.log, "mock: close"));
        cr_assert_lt(strstr(desk.world.log, "mock: kv destroy"), strstr(desk.world.log, "mock: close"));
        malformed_remove(&desk.world.malformed);
    }
    attn_plan_destroy(NULL);
    attn_kv_destroy(NULL);
    attn_backend_destroy(NULL);
}

Test(handles, query)
{
    struct desk desk;
    struct attn_query query;
    struct attn_reason reason;
    struct attn_kernel_info kernel;
    memset(&desk, 0, sizeof desk);
    open_backend(&desk, "gpu", NULL);
    struct attn_error *err = &desk.world.err;
    cr_assert_eq(attn_problem_parse(PROBLEM, &desk.problem, NULL), ATTN_OK);
    ATTN_INIT(&query);
    query.reasons = &reason;
    query.kernels = &kernel;
    query.reason_capacity = query.kernel_capacity = 1;
    cr_assert_eq(attn_backend_query(desk.backend, &desk.problem, &query, err), ATTN_OK, "%s", err->message);
    cr_assert(query.accepted == 1 && query.kernel_count == 1 && query.reason_count == 0);
    cr_assert_eq(kernel.speed, ATTN_SPEED_OPTIMISED);
    desk.problem.head_dim = desk.problem.head_dim_vo = 512;
    cr_assert_eq(attn_backend_query(desk.backend, &desk.problem, &query, err), ATTN_OK, "%s", err->message);
    cr_assert(query.accepted == 0 && query.kernel_count == 0 && query.reason_count > 0);
    cr_assert_eq(reason.code, ATTN_REASON_HEAD_DIM);
    query.kernels = NULL;
    cr_assert_eq(attn_backend_query(desk.backend, &desk.problem, &query, err), ATTN_E_INVALID);
    cr_assert_str_eq(err->field, "query");
    query.kernels = &kernel;
    desk.problem.heads = 0;
    cr_assert_eq(attn_backend_query(desk.backend, &desk.problem, &query, err), ATTN_E_INVALID);
    cr_assert_str_eq(err->field, "heads");
    cr_assert_eq(attn_backend_query(NULL, &desk.problem, &query, err), ATTN_E_INVALID);
    attn_backend_destroy(desk.backend);
    world_close(&desk.world);
}

Test(handles, open)
{
    struct desk desk;
    memset(&desk, 0, sizeof desk);
    open_backend(&desk, "gpu", NULL);
    cr_assert_str_eq(attn_backend_get_name(desk.backend), "gpu/flash-attn");
    cr_assert_str_eq(attn_backend_get_device(desk.backend), "cuda:0");
    struct attn_decision *decision;
    struct attn_error *err = &desk.world.err;
    cr_assert_eq(world_select(&desk.world, PROBLEM, NULL, NULL, &decision), ATTN_OK);
    struct attn_open_config config;
    ATTN_INIT(&config);
    config.threads = 13;
    struct attn_backend *backend = desk.backend;
    cr_assert_eq(attn_backend_open(desk.world.context, decision, &config, &backend, err), ATTN_E_DEVICE);
    cr_assert_null(backend);
    cr_assert_str_eq(err->field, "threads");
    cr_assert_str_eq(err->message, "gpu/flash-attn: open: the mock opens no 13 threads");
    cr_assert_eq(err->reason, 0);
    config.struct_size = 4;
    cr_assert_eq(attn_backend_open(desk.world.context, decision, &config, &backend, err), ATTN_E_INVALID);
    cr_assert_eq(attn_backend_open(NULL, decision, NULL, &backend, err), ATTN_E_INVALID);
    cr_assert_eq(attn_backend_open(desk.world.context, NULL, NULL, &backend, err), ATTN_E_INVALID);
    cr_assert_eq(attn_backend_open(desk.world.context, decision, NULL, NULL, err), ATTN_E_INVALID);
    cr_assert_str_eq(err->field, "out");
    struct world other;
    world_open(&other, "host", NULL);
    cr_assert_eq(attn_backend_open(other.context, decision, NULL, &backend, err), ATTN_E_INVALID);
    cr_assert_str_eq(err->field, "decision");
    world_close(&other);
    attn_decision_destroy(decision);
    desk_close(&desk);
}

Test(handles, a_lost_device_stays_lost)
{
    struct desk desk;
    desk_open(&desk, "");
    cr_assert_eq(run(&desk), ATTN_OK, "%s", desk.world.err.message);
    desk.tensors.softmax_scale = 667;
    refused(&desk, ATTN_E_PLUGIN, "", "returned 42");
    desk.tensors.softmax_scale = 666;
    refused(&desk, ATTN_E_DEVICE_LOST, "device", "fell off the bus");
    desk.tensors.softmax_scale = 1;
    refused(&desk, ATTN_E_DEVICE_LOST, "device", "lost after an earlier error");
    cr_assert_eq(desk.world.err.reason, ATTN_REASON_DEVICE_LOST);
    struct attn_buffer buffer;
    struct attn_plan *plan;
    struct attn_error *err = &desk.world.err;
    cr_assert_eq(attn_memory_alloc(desk.backend, 64, &buffer, err), ATTN_E_DEVICE_LOST);
    cr_assert_eq(attn_plan_create(desk.backend, &desk.problem, &plan, err), ATTN_E_DEVICE_LOST);
    cr_assert_eq(attn_stream_synchronize(desk.backend, NULL, err), ATTN_E_DEVICE_LOST);
    desk_close(&desk);
    cr_assert_eq(world_said(&desk.world, "mock: close"), 1);
}

Test(handles, a_child_may_only_destroy)
{
    struct desk desk;
    desk_open(&desk, "");
    const pid_t child = fork();
    if (child == 0) {
        struct attn_plan_sizes sizes;
        ATTN_INIT(&sizes);
        const bool right = run(&desk) == ATTN_E_STATE && strstr(desk.world.err.message, "fork") != NULL &&
                           attn_plan_get_sizes(desk.plan, &sizes, NULL) == ATTN_E_STATE &&
                           attn_kv_write(desk.backend, NULL, NULL, NULL) == ATTN_E_STATE &&
                           attn_stream_synchronize(desk.backend, NULL, NULL) == ATTN_E_STATE;
        attn_plan_destroy(desk.plan);
        attn_kv_destroy(desk.kv);
        attn_backend_destroy(desk.backend);
        _exit(right && world_said(&desk.world, "destroy") == 0 && world_said(&desk.world, "mock: close") == 0
                  ? 0
                  : 1);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(run(&desk), ATTN_OK, "the parent goes on");
    desk_close(&desk);
}

Test(handles, plans)
{
    struct desk desk;
    desk_open(&desk, "");
    struct attn_error *err = &desk.world.err;
    struct attn_plan *plan;
    struct attn_problem problem = desk.problem;
    problem.max_kv = 0;
    cr_assert_eq(attn_plan_create(desk.backend, &problem, &plan, err), ATTN_E_INVALID);
    cr_assert_str_eq(err->field, "max_kv");
    problem = desk.problem;
    problem.head_dim = problem.head_dim_vo = 256;
    cr_assert_eq(attn_plan_create(desk.backend, &problem, &plan, err), ATTN_E_UNSUPPORTED);
    cr_assert_eq(err->reason, ATTN_REASON_HEAD_DIM);
    cr_assert_str_eq(err->field, "head_dim");
    cr_assert_not_null(strstr(err->message, "head_dim 256 is above 128"));
    problem.head_dim = problem.head_dim_vo = 96;
    cr_assert_eq(attn_plan_create(desk.backend, &problem, &plan, err), ATTN_E_MEMORY);
    cr_assert_str_eq(err->message, "gpu/flash-attn: plan create: no room for this plan");
    cr_assert_null(plan);
    struct attn_plan_sizes sizes;
    ATTN_INIT(&sizes);
    cr_assert_eq(attn_plan_get_sizes(desk.plan, &sizes, err), ATTN_OK);
    cr_assert_eq(sizes.scratch, 256);
    cr_assert_eq(sizes.struct_size, sizeof sizes);
    sizes.struct_size = 8;
    cr_assert_eq(attn_plan_get_sizes(desk.plan, &sizes, err), ATTN_E_INVALID);
    cr_assert_eq(attn_plan_get_sizes(desk.plan, NULL, err), ATTN_E_INVALID);
    cr_assert_eq(attn_plan_get_sizes(NULL, &sizes, err), ATTN_E_INVALID);
    struct attn_plan_info info;
    ATTN_INIT(&info);
    cr_assert_eq(attn_plan_describe(desk.plan, &info, err), ATTN_OK);
    cr_assert_str_eq(info.kernels, "mock_64", "the mock has no describe: the query's answer stands");
    cr_assert_eq(info.graph_level, ATTN_GRAPH_ALWAYS);
    desk_close(&desk);
}

Test(handles, prepare)
{
    struct desk desk;
    desk_open(&desk, "");
    struct attn_error *err = &desk.world.err;
    cr_assert_eq(attn_plan_prepare(desk.plan, &desk.batch, &desk.schedule, &desk.staging, NULL, err),
                 ATTN_OK);
    desk.schedule.size = 127;
    cr_assert_eq(attn_plan_prepare(desk.plan, &desk.batch, &desk.schedule, &desk.staging, NULL, err),
                 ATTN_E_SIZE);
    cr_assert_str_eq(err->message, "schedule has 127 bytes; the plan needs 128");
    desk.schedule.size = 128;
    cr_assert_eq(attn_plan_prepare(desk.plan, &desk.batch, &desk.schedule, NULL, NULL, err), ATTN_E_SIZE);
    cr_assert_str_eq(err->field, "staging");
    const struct attn_plan *plans[] = {desk.plan, desk.plan, desk.plan};
    const struct attn_batch *batches[] = {&desk.batch, &desk.batch, &desk.batch};
    const struct attn_span schedules[] = {desk.schedule, desk.schedule, desk.schedule};
    desk.staging.size = 95;
    cr_assert_eq(attn_plan_prepare_many(plans, batches, schedules, 3, &desk.staging, NULL, err), ATTN_E_SIZE);
    cr_assert_str_eq(err->message, "staging has 95 bytes; the plan needs 96");
    desk.staging.size = 96;
    cr_assert_eq(attn_plan_prepare_many(plans, batches, schedules, 3, &desk.staging, NULL, err), ATTN_OK);
    cr_assert_eq(world_said(&desk.world, "prepare at 32"), 1);
    cr_assert_eq(world_said(&desk.world, "prepare at 64"), 1);
    cr_assert_eq(world_said(&desk.world, "prepare at 96"), 0);
    struct attn_batch bad = desk.batch;
    bad.num_tokens = 17;
    batches[2] = &bad;
    cr_assert_eq(attn_plan_prepare_many(plans, batches, schedules, 3, &desk.staging, NULL, err),
                 ATTN_E_INVALID);
    cr_assert_eq(world_said(&desk.world, "prepare at 32"), 1, "nothing is prepared if one is wrong");
    cr_assert_eq(attn_plan_prepare_many(NULL, NULL, NULL, 0, NULL, NULL, err), ATTN_OK);
    cr_assert_eq(attn_plan_prepare_many(plans, NULL, schedules, 3, NULL, NULL, err), ATTN_E_INVALID);
    desk_close(&desk);
}

Test(handles, larger_structs_of_newer_callers)
{
    struct desk desk;
    desk_open(&desk, "");
    struct {
        struct attn_tensors now;
        uint64_t later;
    } tensors = {desk.tensors, 0};
    tensors.now.struct_size = sizeof tensors;
    struct attn_error *err = &desk.world.err;
    cr_assert_eq(
        attn_plan_run(desk.plan, &desk.batch, &tensors.now, &desk.schedule, &desk.scratch, NULL, err),
        ATTN_OK);
    tensors.later = 1;
    cr_assert_eq(
        attn_plan_run(desk.plan, &desk.batch, &tensors.now, &desk.schedule, &desk.scratch, NULL, err),
        ATTN_E_INVALID);
    cr_assert_str_eq(err->field, "tensors");
    desk_close(&desk);
}

Test(handles, run_checks_its_arguments)
{
    struct desk desk;
    desk_open(&desk, "");
    static const float bad[] = {0, -1, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        desk.tensors.softmax_scale = bad[i];
        refused(&desk, ATTN_E_INVALID, "softmax_scale", "finite and > 0");
    }
    fill(&desk);
    refused(&desk, ATTN_E_INVALID, "kv", "neither");
    desk.tensors.kv = desk.kv;
    desk.tensors.kv_desc = &desk.desc;
    refused(&desk, ATTN_E_INVALID, "kv_desc", "both given");
    desk.tensors.kv = NULL;
    cr_assert_eq(run(&desk), ATTN_OK, "%s", desk.world.err.message);
    desk.desc.block = 32;
    refused(&desk, ATTN_E_INVALID, "block", "cache's block is 32, but the plan's problem says 16");
    desk.tensors.kv_desc = NULL;
    desk.tensors.kv = desk.kv;
#define BAD(status, field, piece, change, back)                                                              \
    change;                                                                                                  \
    refused(&desk, status, field, piece);                                                                    \
    back
    struct attn_tensors *t = &desk.tensors;
    BAD(ATTN_E_INVALID, "q", "not given", t->q.buffer.data = NULL, t->q.buffer.data = desk.memory);
    BAD(ATTN_E_INVALID, "out", "not given", t->out.buffer.data = NULL, t->out.buffer.data = desk.memory);
    BAD(ATTN_E_INVALID, "q", "multiples of its element size 2", t->q.head_stride = 129,
        t->q.head_stride = 128);
    BAD(ATTN_E_INVALID, "out", "63 bits", t->out.token_stride = INT64_MIN, t->out.token_stride = 1024);
    BAD(ATTN_E_INVALID, "lse", "does not use it", t->lse.buffer.data = desk.memory,
        t->lse.buffer.data = NULL);
    BAD(ATTN_E_INVALID, "k_new", "does not use it", t->k_new.buffer.data = desk.memory,
        t->k_new.buffer.data = NULL);
    BAD(ATTN_E_INVALID, "q_rope", "does not use it", t->q_rope.buffer.data = desk.memory,
        t->q_rope.buffer.data = NULL);
    BAD(ATTN_E_INVALID, "alibi_slopes", "does not use it", t->alibi_slopes.data = desk.memory,
        t->alibi_slopes.data = NULL);
    BAD(ATTN_E_INVALID, "sinks", "does not use it", t->sinks.data = desk.memory, t->sinks.data = NULL);
    BAD(ATTN_E_INVALID, "mask", "does not use it", t->mask.data = desk.memory, t->mask.data = NULL);
    BAD(ATTN_E_INVALID, "mask_packed", "only mask=bits", t->mask_packed = 1, t->mask_packed = 0);
    BAD(ATTN_E_INVALID, "q_scale", "no scale", t->q_scale.kind = ATTN_SCALE_UNIT, t->q_scale.kind = 0);
    BAD(ATTN_E_INVALID, "q_offsets", "not given", desk.batch.q_offsets.data = NULL,
        desk.batch.q_offsets.data = desk.memory);
    BAD(ATTN_E_SIZE, "schedule", "has 0 bytes; the plan needs 128", desk.schedule.size = 0,
        desk.schedule.size = 128);
    BAD(ATTN_E_SIZE, "scratch", "has 255 bytes; the plan needs 256", desk.scratch.scratch.size = 255,
        desk.scratch.scratch.size = 256);
    BAD(ATTN_E_SIZE, "counters", "has 63 bytes; the plan needs 64", desk.scratch.counters.size = 63,
        desk.scratch.counters.size = 64);
    cr_assert_eq(run(&desk), ATTN_OK, "%s", desk.world.err.message);
    cr_assert_eq(attn_plan_run(desk.plan, &desk.batch, t, &desk.schedule, NULL, NULL, &desk.world.err),
                 ATTN_E_SIZE);
    cr_assert_eq(attn_plan_run(desk.plan, NULL, t, &desk.schedule, &desk.scratch, NULL, NULL),
                 ATTN_E_INVALID);
    cr_assert_eq(attn_plan_run(desk.plan, &desk.batch, NULL, &desk.schedule, &desk.scratch, NULL, NULL),
                 ATTN_E_INVALID);
    cr_assert_eq(attn_plan_run(NULL, &desk.batch, t, &desk.schedule, &desk.scratch, NULL, NULL),
                 ATTN_E_INVALID);
    desk.batch.num_tokens = desk.batch.seqs = 0;
    t->q.buffer.data = t->out.buffer.data = NULL;
    cr_assert_eq(run(&desk), ATTN_OK, "nothing to do is no error: %s", desk.world.err.message);
    desk_close(&desk);
}

Test(handles, run_wants_what_the_problem_says)
{
    struct desk desk;
    desk_open(&desk, "lse=1 alibi=key sinks=1 mask=bits kv_source=cache+new");
    struct attn_tensors *t = &desk.tensors;
    refused(&desk, ATTN_E_INVALID, "lse", "needs it");
    t->lse.buffer.data = desk.memory;
    refused(&desk, ATTN_E_INVALID, "lse", "rows of 4 bytes overlap");
    t->lse.token_stride = 32;
    t->lse.head_stride = 2;
    refused(&desk, ATTN_E_INVALID, "lse", "multiples of its element size 4");
    t->lse.head_stride = 4;
    refused(&desk, ATTN_E_INVALID, "k_new", "needs it");
    t->k_new.buffer.data = desk.memory;
    refused(&desk, ATTN_E_INVALID, "v_new", "needs it");
    t->v_new.buffer.data = desk.memory;
    t->k_new.token_stride = 1;
    refused(&desk, ATTN_E_INVALID, "k_new", "multiples of its element size 2");
    t->k_new.token_stride = 0;
    t->v_new.token_stride = INT64_MAX - 1;
    refused(&desk, ATTN_E_INVALID, "v_new", "do not fit 63 bits; smaller strides are accepted");
    t->v_new.token_stride = 0;
    t->k_new_scale.kind = ATTN_SCALE_UNIT;
    refused(&desk, ATTN_E_INVALID, "k_new_scale", "no scale");
    t->k_new_scale.kind = 0;
    t->v_new_scale.kind = ATTN_SCALE_UNIT;
    refused(&desk, ATTN_E_INVALID, "v_new_scale", "no scale");
    t->v_new_scale.kind = 0;
    refused(&desk, ATTN_E_INVALID, "alibi_slopes", "needs it");
    t->alibi_slopes.data = desk.memory;
    refused(&desk, ATTN_E_INVALID, "sinks", "needs it");
    t->sinks.data = desk.memory;
    refused(&desk, ATTN_E_INVALID, "sinks_dtype", "ATTN_BF16");
    t->sinks_dtype = ATTN_BF16;
    refused(&desk, ATTN_E_INVALID, "mask", "needs it");
    t->mask.data = desk.memory;
    t->mask_packed = 1;
    cr_assert_eq(run(&desk), ATTN_OK, "%s", desk.world.err.message);
    desk_close(&desk);
}

/* Rows of queries may lie on one another, rows of results may not. */
Test(handles, results_lie_apart)
{
    static const struct {
        int64_t token, head;
        bool good;
    } strides[] = {{1024, 128, true},  {128, 384, true},    {1024, 127 + 1, true}, {1024, 126, false},
                   {1022, 128, false}, {128, 382, false},   {0, 128, false},       {1024, 0, false},
                   {126, 384, false},  {-1024, 128, false}, {1024, -128, false}};
    struct desk desk;
    desk_open(&desk, "");
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        desk.tensors.out.token_stride = strides[i].token;
        desk.tensors.out.head_stride = strides[i].head;
        cr_expect_eq(run(&desk), strides[i].good ? ATTN_OK : ATTN_E_INVALID, "%zu: %s", i,
                     desk.world.err.message);
    }
    cr_assert_str_eq(desk.world.err.field, "out");
    desk.tensors.out.token_stride = 1024;
    desk.tensors.out.head_stride = 128;
    desk.tensors.q.token_stride = desk.tensors.q.head_stride = 0;
    cr_assert_eq(run(&desk), ATTN_OK, "%s", desk.world.err.message);
    desk.batch.num_tokens = desk.batch.max_q = desk.batch.seqs = 1;
    desk.tensors.out.token_stride = 0;
    cr_assert_eq(run(&desk), ATTN_OK, "%s", desk.world.err.message);
    desk.tensors.out.head_stride = 126;
    refused(&desk, ATTN_E_INVALID, "out", "overlap");
    desk_close(&desk);
}

Test(handles, strides_of_masks_are_whole_elements)
{
    struct desk desk;
    desk_open(&desk, "mask=f16");
    desk.tensors.mask.data = desk.memory;
    desk.tensors.mask_row_stride = 7;
    refused(&desk, ATTN_E_INVALID, "mask", "multiples of its element size 2");
    desk_close(&desk);
    desk_open(&desk, "mask=f32");
    struct attn_tensors *t = &desk.tensors;
    t->mask.data = desk.memory;
    int64_t *const strides[] = {&t->mask_seq_stride, &t->mask_head_stride, &t->mask_row_stride};
    for (int i = 0; i < 3; i++) {
        *strides[i] = 6;
        refused(&desk, ATTN_E_INVALID, "mask", "multiples of its element size 4");
        *strides[i] = 8;
    }
    cr_assert_eq(run(&desk), ATTN_OK, "%s", desk.world.err.message);
    t->mask_starts.data = desk.memory;
    t->mask_seq_stride = 6; /* nobody reads it */
    cr_assert_eq(run(&desk), ATTN_OK, "%s", desk.world.err.message);
    desk_close(&desk);
}

Test(handles, new_keys_need_no_cache)
{
    struct desk desk;
    desk_open(&desk, "type=encoder_only");
    desk.tensors.k_new.buffer.data = desk.tensors.v_new.buffer.data = desk.memory;
    refused(&desk, ATTN_E_INVALID, "kv", "does not use it");
    desk.tensors.kv = NULL;
    cr_assert_eq(run(&desk), ATTN_OK, "%s", desk.world.err.message);
    desk_close(&desk);
}
