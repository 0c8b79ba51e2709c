/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs a step on a target through the public calls, with every block of memory between guard pages. */
#include "conform.h"

#include <stdarg.h>
#include <stdio.h>

static int say(char *why, size_t size, int result, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static int say(char *why, size_t size, int result, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, size, format, arguments);
    va_end(arguments);
    return result;
}

bool target_accepts(const struct target *target, const struct attn_problem *problem, uint32_t *out_numerics,
                    char *why, size_t size)
{
    struct attn_reason reasons[4];
    struct attn_kernel_info kernels[16];
    struct attn_query query;
    struct attn_error err;

    ATTN_INIT(&query);
    ATTN_INIT(&err);
    memset(reasons, 0, sizeof reasons);
    query.reasons = reasons;
    query.reason_capacity = 4;
    memset(kernels, 0, sizeof kernels);
    query.kernels = kernels;
    query.kernel_capacity = 16;
    if (attn_context_query(target->context, target->name, &target->device, problem, &query, &err) !=
        ATTN_OK) {
        snprintf(why, size, "query failed: %s", err.message);
        return false;
    }
    if (query.accepted == 0)
        snprintf(why, size, "%s %s", attn_reason_name(reasons[0].code), reasons[0].text);
    /* Rows of different classes may share a batch: the widest bound holds. */
    for (uint32_t i = 0; out_numerics != NULL && i < query.kernel_count && i < 16; i++)
        *out_numerics = kernels[i].numerics > *out_numerics ? kernels[i].numerics : *out_numerics;
    return query.accepted != 0;
}

/* One attempt: handles, and the blocks that the plan asks for. */
struct job {
    struct step *step;
    struct attn_plan *plan;
    uint32_t detours;
    struct attn_tensors tensors;
    struct attn_span schedule;
    struct attn_span second; /* schedule of the second plan */
    struct attn_span staging;
    struct attn_scratch scratch;
};

static int32_t call_prepare(void *arg, void *stream, struct attn_error *err)
{
    struct job *job = arg;

    const struct attn_span *staging = job->staging.size > 0 ? &job->staging : NULL;
    const struct attn_plan *plans[2] = {job->plan, job->plan};
    const struct attn_batch *batches[2] = {&job->step->batch, &job->step->batch};
    const struct attn_span schedules[2] = {job->second, job->schedule};

    if ((job->detours & DETOUR_MANY) != 0)
        return attn_plan_prepare_many(plans, batches, schedules, 2, staging, stream, err);
    return attn_plan_prepare(job->plan, &job->step->batch, &job->schedule, staging, stream, err);
}

static int32_t call_run(void *arg, void *stream, struct attn_error *err)
{
    struct job *job = arg;

    return attn_plan_run(job->plan, &job->step->batch, &job->tensors, &job->schedule, &job->scratch, stream,
                         err);
}

static struct attn_span make_span(struct arena *arena, const char *name, uint64_t size, uint32_t alignment,
                                  uint8_t fill)
{
    struct attn_span span = {{NULL, 0}, size};

    if (size > 0)
        span.buffer.data = arena_add(arena, name, size, alignment > 0 ? alignment : 1, fill)->data;
    return span;
}

static int make_blocks(struct job *job, struct arena *arena, char *why, size_t size)
{
    struct attn_plan_sizes sizes;
    struct attn_error err;
    uint8_t rubbish = job->step->the_case->poison;

    ATTN_INIT(&sizes);
    ATTN_INIT(&err);
    if (attn_plan_get_sizes(job->plan, &sizes, &err) != ATTN_OK)
        return say(why, size, -1, "sizes: %s", err.message);
    job->schedule = make_span(arena, "schedule", sizes.schedule, sizes.alignment, rubbish);
    if ((job->detours & (DETOUR_MANY | DETOUR_COPY)) != 0)
        job->second = make_span(arena, "schedule", sizes.schedule, sizes.alignment, rubbish);
    job->staging = make_span(arena, "staging", 2 * sizes.staging, sizes.alignment, rubbish);
    ATTN_INIT(&job->scratch);
    job->scratch.scratch = make_span(arena, "scratch", sizes.scratch, sizes.alignment, rubbish);
    job->scratch.counters = make_span(arena, "counters", sizes.counters, sizes.alignment,
                                      (job->detours & DETOUR_DIRTY) != 0 ? 0xff : 0);
    job->scratch.counters_dirty = (job->detours & DETOUR_DIRTY) != 0;
    return 1;
}

/* A schedule has no pointers inside: it may lie elsewhere when it is read. */
static void move_schedule(struct job *job)
{
    struct attn_span swap = job->second;

    if ((job->detours & DETOUR_COPY) == 0 || job->schedule.size == 0)
        return;
    memcpy(job->second.buffer.data, job->schedule.buffer.data, job->schedule.size);
    memset(job->schedule.buffer.data, 0xff, job->schedule.size);
    job->second = job->schedule;
    job->schedule = swap;
}

static bool counters_clean(const struct job *job)
{
    const unsigned char *bytes = job->scratch.counters.buffer.data;

    for (uint64_t i = 0; i < job->scratch.counters.size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static int prepare_and_run(struct job *job, const struct attempt *attempt, char *why, size_t size)
{
    struct arena arena;
    struct attn_error err;
    const char *name = "";
    int result;

    ATTN_INIT(&err);
    arena_init(&arena, job->step->layout.before);
    result = make_blocks(job, &arena, why, size);
    bool graph = (attempt->detours & DETOUR_GRAPH) != 0;
    if (result == 1 && graph &&
        replay(job->step, attempt->backend, call_prepare, call_run, job, &err) != ATTN_OK)
        result = say(why, size, -1, "captured and launched: %s (%s)", err.message, err.field);
    if (result == 1 && !graph && executor_call(attempt->prepare_executor, call_prepare, job, &err) != ATTN_OK)
        result = say(why, size, -1, "prepare on %s: %s (%s)", executor_name(attempt->prepare_executor),
                     err.message, err.field);
    if (result == 1)
        move_schedule(job);
    if (result == 1 && !graph && executor_call(attempt->executor, call_run, job, &err) != ATTN_OK)
        result = say(why, size, -1, "run on %s: %s (%s)", executor_name(attempt->executor), err.message,
                     err.field);
    if (result == 1 && !counters_clean(job))
        result = say(why, size, -1, "counters are not zero after the run");
    if (result == 1 && (!arena_check(&arena, &name) || !arena_check(&job->step->arena, &name)))
        result = say(why, size, -1, "wrote outside of %s", name);
    arena_finish(&arena);
    return result;
}

static int run_plan(struct step *step, struct attn_plan *plan, const struct attempt *attempt, char *why,
                    size_t size)
{
    struct job job = {.step = step, .plan = plan, .detours = attempt->detours, .tensors = step->tensors};
    struct attn_kv *kv = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    if (step->problem.kv_source == ATTN_KV_NEW)
        return prepare_and_run(&job, attempt, why, size);
    if (!step->use_handle) {
        job.tensors.kv_desc = &step->kv;
        return prepare_and_run(&job, attempt, why, size);
    }
    if (attn_kv_create(attempt->backend, &step->kv, &kv, &err) != ATTN_OK)
        return say(why, size, -1, "kv_create: %s (%s)", err.message, err.field);
    job.tensors.kv = kv;
    int result = prepare_and_run(&job, attempt, why, size);
    attn_kv_destroy(kv);
    return result;
}

int step_run(struct step *step, const struct target *target, const struct attempt *attempt, char *why,
             size_t size)
{
    struct attn_problem problem = step->problem;
    struct attn_plan *plan = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    problem.max_seqs += attempt->slack;
    problem.max_q += attempt->slack;
    problem.max_kv += attempt->slack;
    problem.max_rows += attempt->slack;
    step->numerics = 0;
    bool accepted = target_accepts(target, &problem, &step->numerics, why, size);
    int32_t status = attn_plan_create(attempt->backend, &problem, &plan, &err);
    if (accepted != (status == ATTN_OK)) {
        attn_plan_destroy(plan);
        return say(why, size, -1, "the query %s, but plan_create says %s: %s",
                   accepted ? "accepts" : "refuses", attn_status_name(status), err.message);
    }
    if (!accepted)
        return status == ATTN_E_UNSUPPORTED
                   ? 0
                   : say(why, size, -1, "refused with %s instead of ATTN_E_UNSUPPORTED",
                         attn_status_name(status));
    int result = run_plan(step, plan, attempt, why, size);
    attn_plan_destroy(plan);
    return result;
}

void step_report(const struct step *step, const struct reference *reference, int ran, char *why, size_t size)
{
    if (ran == 0) {
        tap_skip(why);
        return;
    }
    if (ran < 0)
        step_check_outside(step, NULL, 0);
    if (ran > 0 && step_judge(step, reference, why, size))
        tap_pass();
    else
        tap_fail("%s", why);
}
