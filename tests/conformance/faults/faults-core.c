/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every call of the library that reaches a plugin. */
#include <stdio.h>

#include "faults.h"

static int32_t create_context(struct bench *bench, struct attn_error *err)
{
    int32_t status = bench_create_context(bench, &bench->made_context, err);

    if (status != ATTN_OK)
        return status;
    status = attn_context_load_all(bench->made_context, err);
    if (status != ATTN_OK)
        attn_context_destroy(bench->made_context);
    return status;
}

static void destroy_context(struct bench *bench)
{
    attn_context_destroy(bench->made_context);
}

/* A plugin that could not be loaded says so; one that was is complete. */
static bool check_context(struct bench *bench, char *why, size_t size)
{
    const struct attn_file_record *record;
    struct attn_report *report = NULL;
    bool good = true;

    if (attn_context_get_report(bench->made_context, &report, NULL) != ATTN_OK) {
        snprintf(why, size, "no report of a context that was made");
        return false;
    }
    for (uint32_t i = 0; good && (record = attn_report_get_file(report, i)) != NULL; i++) {
        good = record->stage == ATTN_STAGE_READY || (record->reason != 0 && record->text[0] != '\0');
        if (!good)
            snprintf(why, size, "%s is not ready, and no reason is given", record->path);
    }
    attn_report_destroy(report);
    return good;
}

static int32_t rescan(struct bench *bench, struct attn_error *err)
{
    int32_t status = create_context(bench, err);

    if (status != ATTN_OK)
        return status;
    status = attn_context_rescan(bench->made_context, err);
    if (status != ATTN_OK)
        attn_context_destroy(bench->made_context);
    return status;
}

static int32_t get_report(struct bench *bench, struct attn_error *err)
{
    return attn_context_get_report(bench->context, &bench->made_report, err);
}

static int32_t inspect(struct bench *bench, struct attn_error *err)
{
    return attn_context_inspect(bench->context, bench->plugin_path, &bench->made_report, err);
}

static void destroy_report(struct bench *bench)
{
    attn_report_destroy(bench->made_report);
}

static int32_t choose(struct bench *bench, struct attn_error *err)
{
    struct attn_select_options options;

    ATTN_INIT(&options);
    options.backend = bench->target->name;
    bench->made_decision = NULL;
    int32_t status =
        attn_select(bench->context, &bench->fixture.step.problem, 1, &options, &bench->made_decision, err);
    if (status != ATTN_OK)
        attn_decision_destroy(bench->made_decision);
    return status;
}

static void destroy_decision(struct bench *bench)
{
    attn_decision_destroy(bench->made_decision);
}

/* Two phases, of which one has a list of its own. */
static int32_t choose_parts(struct bench *bench, struct attn_error *err)
{
    struct attn_model_part parts[2];

    for (uint32_t i = 0; i < 2; i++) {
        ATTN_INIT(&parts[i]);
        parts[i].phase = i == 0 ? ATTN_PHASE_PREFILL : ATTN_PHASE_DECODE;
        parts[i].problem = &bench->fixture.step.problem;
    }
    parts[1].backend = bench->target->name;
    bench->made_parts = NULL;
    int32_t status = attn_select_parts(bench->context, parts, 2, NULL, &bench->made_parts, err);
    if (status != ATTN_OK)
        attn_parts_destroy(bench->made_parts);
    return status;
}

static void destroy_parts(struct bench *bench)
{
    attn_parts_destroy(bench->made_parts);
}

static int32_t open_backend(struct bench *bench, struct attn_error *err)
{
    bench->made_backend = NULL;
    struct attn_open_config config;

    ATTN_INIT(&config);
    config.threads = BENCH_THREADS;
    return attn_backend_open(bench->context, bench->decision, &config, &bench->made_backend, err);
}

static void destroy_backend(struct bench *bench)
{
    attn_backend_destroy(bench->made_backend);
}

static int32_t create_plan(struct bench *bench, struct attn_error *err)
{
    bench->made_plan = NULL;
    return attn_plan_create(bench->target->backend, &bench->fixture.step.problem, &bench->made_plan, err);
}

static void destroy_plan(struct bench *bench)
{
    attn_plan_destroy(bench->made_plan);
}

static int32_t create_kv(struct bench *bench, struct attn_error *err)
{
    bench->made_kv = NULL;
    return attn_kv_create(bench->target->backend, &bench->fixture.step.kv, &bench->made_kv, err);
}

static void destroy_kv(struct bench *bench)
{
    attn_kv_destroy(bench->made_kv);
}

static int32_t prepare(struct bench *bench, struct attn_error *err)
{
    const struct fixture *fixture = &bench->fixture;

    return attn_plan_prepare(bench->plan, &fixture->step.batch, &fixture->schedule, &fixture->staging, NULL,
                             err);
}

static int32_t run(struct bench *bench, struct attn_error *err)
{
    const struct fixture *fixture = &bench->fixture;

    return attn_plan_run(bench->plan, &fixture->step.batch, &bench->tensors, &fixture->schedule,
                         &fixture->scratch, NULL, err);
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
    return attn_kv_write(bench->target->backend, &bench->fixture.write, NULL, err);
}

static int32_t merge(struct bench *bench, struct attn_error *err)
{
    return attn_merge(bench->target->backend, &bench->merge, NULL, err);
}

static int32_t rescale(struct bench *bench, struct attn_error *err)
{
    return attn_rescale(bench->target->backend, &bench->rescale, NULL, err);
}

static int32_t live(struct bench *bench, struct attn_error *err)
{
    struct attn_plan *plan = bench->plan;
    struct attn_kv *kv = bench->kv;
    int32_t status = open_backend(bench, err);

    if (status != ATTN_OK)
        return status;
    status = attn_plan_create(bench->made_backend, &bench->fixture.step.problem, &bench->plan, err);
    if (status == ATTN_OK) {
        status = attn_kv_create(bench->made_backend, &bench->fixture.step.kv, &bench->kv, err);
        bench->tensors.kv = bench->kv;
        status = status == ATTN_OK ? prepare(bench, err) : status;
        status = status == ATTN_OK ? run(bench, err) : status;
        attn_kv_destroy(bench->kv);
        attn_plan_destroy(bench->plan);
    }
    destroy_backend(bench);
    bench->plan = plan;
    bench->kv = bench->tensors.kv = kv;
    return status;
}

const struct call core_calls[] = {
    {"attn_context_create and load_all", create_context, check_context, destroy_context, false, false},
    {"attn_context_rescan", rescan, NULL, destroy_context, false, false},
    {"attn_context_get_report", get_report, NULL, destroy_report, false, false},
    {"attn_context_inspect", inspect, NULL, destroy_report, false, false},
    {"attn_select", choose, NULL, destroy_decision, false, false},
    {"attn_select_parts", choose_parts, NULL, destroy_parts, false, false},
    {"attn_backend_open", open_backend, NULL, destroy_backend, false, false},
    {"attn_plan_create", create_plan, NULL, destroy_plan, false, false},
    {"attn_kv_create", create_kv, NULL, destroy_kv, false, false},
    {"attn_plan_prepare", prepare, NULL, NULL, true, false},
    {"attn_plan_run", run, check_run, clear_run, true, false},
    {"attn_kv_write", write, NULL, NULL, true, false},
    {"attn_merge", merge, NULL, NULL, true, true},
    {"attn_rescale", rescale, NULL, NULL, true, true},
    {"attn_backend_open to destroy", live, check_run, clear_run, false, false},
    {NULL, NULL, NULL, NULL, false, false},
};
