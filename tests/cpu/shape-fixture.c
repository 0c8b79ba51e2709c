/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens the CPU plugin through the library, and runs a batch on it. */
#include "shape-fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

void fixture_open(struct shape_fixture *fixture, const char *flags)
{
    char variable[64];
    const char *variables[] = {variable};
    struct attn_context_options options;
    struct attn_open_config config;
    struct attn_decision *decision = NULL;
    struct attn_problem problem;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&options);
    ATTN_INIT(&config);
    fixture->scratch_byte = 0xff;
    snprintf(variable, sizeof variable, "ATTN_CPU_FLAGS=%s", flags != NULL ? flags : "");
    options.variables = variables;
    options.variable_count = flags != NULL;
    config.threads = 2;
    cr_assert_eq(attn_context_create(&options, &fixture->context, &err), ATTN_OK, "%s", err.message);
    fixture_problem("heads=1 head_dim=8 q=bf16", &problem);
    cr_assert_eq(attn_select(fixture->context, &problem, 1, NULL, &decision, &err), ATTN_OK, "%s",
                 err.message);
    cr_assert_eq(attn_backend_open(fixture->context, decision, &config, &fixture->backend, &err), ATTN_OK,
                 "%s", err.message);
    attn_decision_destroy(decision);
}

void fixture_close(struct shape_fixture *fixture)
{
    attn_backend_destroy(fixture->backend);
    attn_context_destroy(fixture->context);
}

void fixture_problem(const char *text, struct attn_problem *out)
{
    char full[512];
    struct attn_error err;

    ATTN_INIT(&err);
    snprintf(full, sizeof full, "%s max_seqs=8 max_q=128 max_kv=512 max_rows=256", text);
    cr_assert_eq(attn_problem_parse(full, out, &err), ATTN_OK, "%s", err.message);
}

static struct attn_span make_span(uint64_t size, uint32_t alignment, int byte)
{
    struct attn_span span = {{aligned_alloc(alignment, (size / alignment + 1) * alignment), 0}, size};

    memset(span.buffer.data, byte, size);
    return span;
}

int32_t fixture_run(const struct shape_fixture *fixture, const struct attn_problem *problem,
                    const struct attn_batch *batch, const struct attn_tensors *tensors,
                    struct attn_error *err)
{
    struct attn_plan *plan = NULL;
    struct attn_plan_sizes sizes;
    struct attn_scratch scratch;

    ATTN_INIT(&sizes);
    ATTN_INIT(&scratch);
    int32_t status = attn_plan_create(fixture->backend, problem, &plan, err);
    if (status != ATTN_OK)
        return status;
    cr_assert_eq(attn_plan_get_sizes(plan, &sizes, err), ATTN_OK);
    struct attn_span schedule = make_span(sizes.schedule, sizes.alignment, 0);
    scratch.scratch = make_span(sizes.scratch, sizes.alignment, fixture->scratch_byte);
    scratch.counters = make_span(sizes.counters, sizes.alignment, 0);
    status = attn_plan_prepare(plan, batch, &schedule, NULL, NULL, err);
    if (status == ATTN_OK)
        status = attn_plan_run(plan, batch, tensors, &schedule, &scratch, NULL, err);
    free(schedule.buffer.data);
    free(scratch.scratch.buffer.data);
    free(scratch.counters.buffer.data);
    attn_plan_destroy(plan);
    return status;
}
