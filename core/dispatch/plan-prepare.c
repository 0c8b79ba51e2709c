/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Once per step: checks a batch and lets the plugin write its schedule. */
#include "dispatch/plan.h"
#include "dispatch/trace.h"

#define MANY_AT_ONCE 32 /* plans of one prepare_many: more layer classes than any model has */

/* ---------------------------------------------------------------- prepare */

static int32_t check_step(const struct attn_plan *plan, const struct attn_batch *batch,
                          struct attn_batch *copy, const struct attn_span *schedule,
                          const struct attn_batch **out, struct attn_error *err)
{
    int32_t status = attn__batch_take(plan, batch, copy, out, err);
    if (status == ATTN_OK)
        status = attn__batch_check_host(&plan->problem, *out, err);
    return status == ATTN_OK ? attn__span_check(schedule, plan->sizes.schedule, "schedule", err) : status;
}

int32_t attn_plan_prepare(const struct attn_plan *plan, const struct attn_batch *batch,
                          const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                          struct attn_error *err)
{
    int32_t status = attn__plan_begin(plan, "attn_plan_prepare", err);
    if (status != ATTN_OK)
        return status;
    struct attn_batch copy;
    const struct attn_batch *known;
    status = check_step(plan, batch, &copy, schedule, &known, err);
    if (status == ATTN_OK)
        status = attn__span_check(staging, plan->sizes.staging, "staging", err);
    if (status != ATTN_OK)
        return status;
    struct attn_backend *backend = plan->backend;
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    const uint64_t began = attn__trace_begin(backend);
    status = backend->entry->plan.prepare(plan->impl, known, schedule, staging, stream, &plugin_err);
    attn__trace_plan(plan, began, status, "prepare", known);
    return attn__call_end(backend, status, &plugin_err, "plan prepare", err);
}

/*
 * Checks all plans before any is prepared. *out_staging is the staging that they need together; *out_current
 * is false if a batch is of another version's size and had to be copied.
 */
static int32_t check_many(const struct attn_plan *const *plans, const struct attn_batch *const *batches,
                          const struct attn_span *schedules, uint32_t n, uint64_t *out_staging,
                          bool *out_current, struct attn_error *err)
{
    *out_staging = 0;
    *out_current = true;
    for (uint32_t i = 0; i < n; i++) {
        int32_t status = attn__plan_begin(plans[i], "attn_plan_prepare_many", err);
        if (status != ATTN_OK)
            return status;
        if (plans[i]->backend != plans[0]->backend) {
            return attn__fail(
                err, ATTN_E_INVALID, 0, "plans",
                "plans[%u] belongs to another backend than plans[0]; plans of one backend are accepted", i);
        }
        struct attn_batch copy;
        const struct attn_batch *known;
        status = check_step(plans[i], batches[i], &copy, &schedules[i], &known, err);
        if (status != ATTN_OK)
            return status;
        *out_current = *out_current && known == batches[i];
        if (__builtin_add_overflow(*out_staging, plans[i]->sizes.staging, out_staging)) {
            return attn__fail(err, ATTN_E_SIZE, 0, "staging",
                              "the staging of %u plans overflows 64 bits; fewer plans are accepted", n);
        }
    }
    return ATTN_OK;
}

/* Prepares the plans one by one, each with its part of the staging. */
static int32_t prepare_each(const struct attn_plan *const *plans, const struct attn_batch *const *batches,
                            const struct attn_span *schedules, uint32_t n, const struct attn_span *staging,
                            void *stream, struct attn_error *err)
{
    struct attn_span part = {{NULL, 0}, 0};
    if (staging != NULL)
        part.buffer = staging->buffer;
    for (uint32_t i = 0; i < n; i++) {
        part.size = plans[i]->sizes.staging;
        const int32_t status = attn_plan_prepare(plans[i], batches[i], &schedules[i], &part, stream, err);
        if (status != ATTN_OK)
            return status;
        part.buffer.byte_offset += part.size;
    }
    return ATTN_OK;
}

int32_t attn_plan_prepare_many(const struct attn_plan *const *plans, const struct attn_batch *const *batches,
                               const struct attn_span *schedules, uint32_t n, const struct attn_span *staging,
                               void *stream, struct attn_error *err)
{
    if (n == 0)
        return ATTN_OK;
    if (plans == NULL || batches == NULL || schedules == NULL) {
        const char *name = plans == NULL ? "plans" : batches == NULL ? "batches" : "schedules";
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s is NULL, but n is %u; an array of as many is needed", name, n);
    }
    uint64_t needed;
    bool current;
    int32_t status = check_many(plans, batches, schedules, n, &needed, &current, err);
    if (status == ATTN_OK)
        status = attn__span_check(staging, needed, "staging", err);
    if (status != ATTN_OK)
        return status;
    struct attn_backend *backend = plans[0]->backend;
    if (backend->entry->plan.prepare_many == NULL || n > MANY_AT_ONCE || !current)
        return prepare_each(plans, batches, schedules, n, staging, stream, err);
    const struct attn_plan_impl *impls[MANY_AT_ONCE];
    for (uint32_t i = 0; i < n; i++)
        impls[i] = plans[i]->impl;
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    const uint64_t began = attn__trace_begin(backend);
    status = backend->entry->plan.prepare_many(impls, batches, schedules, n, staging, stream, &plugin_err);
    for (uint32_t i = 0; i < n; i++)
        attn__trace_plan(plans[i], began, status, "prepare_many", batches[i]);
    return attn__call_end(backend, status, &plugin_err, "plan prepare_many", err);
}
