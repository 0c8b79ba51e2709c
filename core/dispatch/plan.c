/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Creates plans, and returns their sizes and descriptions. */
#include <stdlib.h>

#include "dispatch/plan.h"
#include "select/problem.h"

static int32_t check_maxima(const struct attn_problem *problem, struct attn_error *err)
{
    const struct {
        const char *name;
        uint32_t value;
    } maxima[] = {{"max_seqs", problem->max_seqs},
                  {"max_q", problem->max_q},
                  {"max_kv", problem->max_kv},
                  {"max_rows", problem->max_rows}};
    for (size_t i = 0; i < sizeof maxima / sizeof maxima[0]; i++) {
        if (maxima[i].value == 0) {
            return attn__fail(
                err, ATTN_E_INVALID, 0, maxima[i].name,
                "%s is not given; a plan needs max_seqs, max_q, max_kv and max_rows, each 1 to %u",
                maxima[i].name, ATTN__COUNT_MAX);
        }
    }
    return ATTN_OK;
}

/* Fails with one reason of a query that refused: an explicit one, else the first. */
static int32_t fail_refused(const struct attn_backend *backend, struct attn_query *query,
                            struct attn_error *err)
{
    const uint32_t written =
        query->reason_count < query->reason_capacity ? query->reason_count : query->reason_capacity;
    const char *name = backend->entry->table.name;
    if (written == 0) {
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "problem", "%s refuses the problem without a reason",
                          name);
    }
    struct attn_reason *reason = &query->reasons[0];
    for (uint32_t i = 0; i < written; i++)
        if (attn_reason_is_explicit(query->reasons[i].code) && !attn_reason_is_explicit(reason->code))
            reason = &query->reasons[i];
    reason->field[sizeof reason->field - 1] = 0;
    reason->kernel[sizeof reason->kernel - 1] = 0;
    reason->text[sizeof reason->text - 1] = 0;
    const char *text = reason->text[0] != 0 ? reason->text : attn_reason_text(reason->code);
    if (attn_reason_is_explicit(reason->code))
        return attn__fail(err, ATTN_E_UNSUPPORTED, reason->code, reason->field, "%s", text);
    return attn__fail(err, ATTN_E_UNSUPPORTED, reason->code, reason->field, "%s%s%s: %s; %s", name,
                      reason->kernel[0] != 0 ? " " : "", reason->kernel, text,
                      attn_reason_advice(reason->code));
}

/* Keeps names and graph level of the kernels of an answer; of many, the first few. */
static void keep_answer(const struct attn_query *query, struct attn_plan_info *out)
{
    size_t used = 0;
    ATTN_INIT(out);
    out->graph_level = query->graph_level;
    for (uint32_t i = 0; i < query->kernel_count && i < query->kernel_capacity; i++) {
        const size_t length = strnlen(query->kernels[i].name, sizeof query->kernels[i].name - 1);
        if (used + length + 2 > sizeof out->kernels)
            break;
        if (used > 0)
            out->kernels[used++] = ',';
        memcpy(out->kernels + used, query->kernels[i].name, length);
        used += length;
    }
}

/* No plan is created for a problem that the backend's query refuses. */
int32_t attn__plan_ask(struct attn_backend *backend, const struct attn_problem *problem,
                       struct attn_plan_info *out_answer, struct attn_error *err)
{
    struct attn_reason reasons[4];
    struct attn_kernel_info kernels[4];
    struct attn_query query;
    ATTN_INIT(&query);
    memset(reasons, 0, sizeof reasons);
    memset(kernels, 0, sizeof kernels);
    query.reasons = reasons;
    query.reason_capacity = 4;
    query.kernels = kernels;
    query.kernel_capacity = 4;
    const struct attn__backend *entry = backend->entry;
    const int32_t status = entry->table.query(entry->plugin->instance, &backend->device, problem, &query);
    if (status != ATTN_OK) {
        struct attn_error plugin_err;
        attn__error_open(&plugin_err);
        return attn__call_end(backend, status, &plugin_err, "query", err);
    }
    if (query.accepted != 1)
        return fail_refused(backend, &query, err);
    keep_answer(&query, out_answer);
    return ATTN_OK;
}

static int32_t create(struct attn_backend *backend, struct attn_plan *plan, struct attn_error *err)
{
    const struct attn_plan_table *table = &backend->entry->plan;
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    int32_t status =
        attn__call_end(backend, table->create(backend->impl, &plan->problem, &plan->impl, &plugin_err),
                       &plugin_err, "plan create", err);
    if (status != ATTN_OK)
        return status;
    if (plan->impl == NULL) {
        return attn__fail(err, ATTN_E_PLUGIN, 0, "out", "%s: plan create succeeded without a plan",
                          backend->entry->table.name);
    }
    ATTN_INIT(&plan->sizes);
    attn__error_open(&plugin_err);
    status = attn__call_end(backend, table->sizes(plan->impl, &plan->sizes), &plugin_err, "plan sizes", err);
    if (status != ATTN_OK)
        table->destroy(plan->impl);
    plan->sizes.struct_size = (uint32_t)sizeof plan->sizes;
    return status;
}

int32_t attn_plan_create(struct attn_backend *backend, const struct attn_problem *problem,
                         struct attn_plan **out, struct attn_error *err)
{
    int32_t status = attn__call_begin(backend, "attn_plan_create", err);
    if (status == ATTN_OK && out == NULL)
        status = attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL; a place for the plan is accepted");
    if (status != ATTN_OK)
        return status;
    *out = NULL;
    struct attn_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "plan", "no memory for a plan");
    const void *known;
    status = attn__problem_take(backend->context, problem, &plan->problem, err);
    if (status == ATTN_OK)
        status = check_maxima(&plan->problem, err);
    if (status == ATTN_OK) {
        status = attn__argument(backend, &plan->problem, NULL, sizeof plan->problem,
                                backend->entry->plugin->table.problem_size, "problem", &known, err);
    }
    if (status == ATTN_OK)
        status = attn__plan_ask(backend, &plan->problem, &plan->answer, err);
    if (status == ATTN_OK)
        status = create(backend, plan, err);
    if (status != ATTN_OK) {
        free(plan);
        return status;
    }
    atomic_init(&plan->refs, 1);
    plan->backend = backend;
    attn__backend_hold(backend);
    if (backend->trace) /* the lines name what the plan runs, not what the query had in mind */
        (void)attn_plan_describe(plan, &plan->answer, NULL);
    *out = plan;
    return ATTN_OK;
}

void attn_plan_destroy(struct attn_plan *plan)
{
    if (plan == NULL || atomic_fetch_sub_explicit(&plan->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (plan->backend->born == attn__fork_generation())
        plan->backend->entry->plan.destroy(plan->impl);
    attn__backend_drop(plan->backend);
    free(plan);
}

int32_t attn_plan_get_sizes(const struct attn_plan *plan, struct attn_plan_sizes *out, struct attn_error *err)
{
    const int32_t status = attn__plan_begin(plan, "attn_plan_get_sizes", err);
    return status == ATTN_OK ? attn__answer(out, &plan->sizes, sizeof plan->sizes, "out", err) : status;
}

int32_t attn_plan_describe(const struct attn_plan *plan, struct attn_plan_info *out, struct attn_error *err)
{
    struct attn_plan_info own;
    int32_t status = attn__plan_begin(plan, "attn_plan_describe", err);
    if (status == ATTN_OK)
        status = attn__answer_begin(out, sizeof own, "out", err);
    if (status != ATTN_OK)
        return status;
    struct attn_backend *backend = plan->backend;
    if (backend->entry->plan.describe == NULL)
        return attn__answer(out, &plan->answer, sizeof plan->answer, "out", err);
    ATTN_INIT(&own);
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    status = attn__call_end(backend, backend->entry->plan.describe(plan->impl, &own), &plugin_err,
                            "plan describe", err);
    own.kernels[sizeof own.kernels - 1] = 0;
    return status == ATTN_OK ? attn__answer(out, &own, sizeof own, "out", err) : status;
}
