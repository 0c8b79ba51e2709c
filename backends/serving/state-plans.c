/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Creates the plans of all layer classes of a model, and allocates their schedules in one block of memory. */
#include <stdlib.h>

#include "fail.h"
#include "state.h"

bool attn__class_has_new(const struct attn_problem *problem)
{
    return problem->kv_source != ATTN_KV_NEW && problem->cp == 0;
}

struct attn_plan *attn__set_plan(const struct attn__plan_set *set, uint32_t layer_class,
                                 enum attn__run_kind kind)
{
    return set->plans[2 * (size_t)layer_class + (kind == ATTN__RUN_NEW ? 1 : 0)];
}

void attn__set_destroy(struct attn__state_core *core, struct attn__plan_set *set)
{
    if (set == NULL)
        return;
    for (uint32_t i = 0; set->plans != NULL && i < 2 * set->count; i++)
        core->host.plan_destroy(set->plans[i]);
    attn__release(&core->host, &set->memory);
    free(set->plans);
    free(set->schedules);
    free(set);
}

int32_t attn__fail_class(uint32_t number, int32_t status, const struct attn_error *inner,
                         struct attn_error *err)
{
    if (attn__reason_is_explicit(inner->reason))
        return attn__fail(err, status, inner->reason, inner->field, "%s", inner->message);
    return attn__fail(err, status, inner->reason, inner->field, "classes[%u]: %s", number, inner->message);
}

/* ---------------------------------------------------------------- plans */

/* The problem of a class. With `size`, the step that a graph is captured with, its maxima are that step's. */
static struct attn_problem problem_of(const struct attn__state_core *core, uint32_t i,
                                      const struct attn_step *size)
{
    struct attn_problem problem = core->problems[i];

    if (size == NULL)
        return problem;
    problem.max_seqs = size->seqs;
    problem.max_rows = size->num_tokens;
    problem.max_q = size->max_q;
    problem.max_kv =
        core->params.max_capture_len < problem.max_kv ? core->params.max_capture_len : problem.max_kv;
    return problem;
}

/* The same attention over new keys and values, which have their own types. It is never captured. */
static struct attn_problem new_problem(const struct attn__state_core *core, uint32_t i)
{
    struct attn_problem problem = core->problems[i];

    if (problem.kv_source == ATTN_KV_CACHE) {
        problem.k_dtype = problem.v_dtype = core->classes[i].new_dtype;
        problem.k_scale = problem.v_scale = ATTN_SCALES_NONE;
    }
    problem.kv_source = ATTN_KV_NEW;
    problem.layout = ATTN_STRIDED;
    problem.addressing = ATTN_TABLE;
    problem.graph = ATTN_GRAPH_NEVER;
    return problem;
}

static int32_t make_plan(struct attn__state_core *core, struct attn__plan_set *set, uint32_t i,
                         struct attn_error *err)
{
    struct attn_problem problem = problem_of(core, i, set->size);
    struct attn_error inner;

    attn__error_open(&inner);
    int32_t status = core->host.plan_create(core->host.backend, &problem, &set->plans[2 * (size_t)i], &inner);
    if (status != ATTN_OK)
        return attn__fail_class(i, status, &inner, err);
    if (set->size != NULL || !attn__class_has_new(&core->problems[i]))
        return ATTN_OK;
    /* A backend that refuses this can still run steps with block tables. The refusal is kept for the layer
     * call. */
    problem = new_problem(core, i);
    attn__error_open(&core->no_new[i]);
    status = core->host.plan_create(core->host.backend, &problem, &set->plans[2 * (size_t)i + 1],
                                    &core->no_new[i]);
    return status == ATTN_OK || status == ATTN_E_UNSUPPORTED
               ? ATTN_OK
               : attn__fail_class(i, status, &core->no_new[i], err);
}

/* ---------------------------------------------------------------- schedules */

const enum attn__run_kind attn__run_order[ATTN__RUNS] = {ATTN__RUN_NEW, ATTN__RUN_MAIN};

/* Adds the sizes of one more run; false if a sum does not fit 64 bits. */
static bool place(struct attn__plan_set *set, const struct attn_plan_sizes *sizes, struct attn_span *schedule,
                  uint64_t *bytes)
{
    set->sizes.alignment = sizes->alignment > set->sizes.alignment ? sizes->alignment : set->sizes.alignment;
    set->sizes.scratch = attn__larger(set->sizes.scratch, sizes->scratch);
    set->sizes.counters = attn__larger(set->sizes.counters, sizes->counters);
    *bytes = attn__round_up(*bytes, sizes->alignment);
    *schedule = (struct attn_span){{NULL, *bytes}, sizes->schedule};
    return !__builtin_add_overflow(*bytes, sizes->schedule, bytes) &&
           !__builtin_add_overflow(set->sizes.staging, sizes->staging, &set->sizes.staging);
}

static int32_t place_schedules(struct attn__state_core *core, struct attn__plan_set *set,
                               struct attn_error *err)
{
    const uint32_t runs = set->count * ATTN__RUNS;
    uint64_t bytes = 0;
    struct attn_plan_sizes sizes;

    for (uint32_t n = 0; n < runs; n++) {
        const enum attn__run_kind kind = attn__run_order[n / set->count];
        const uint32_t i = n % set->count, r = i * ATTN__RUNS + kind;
        const struct attn_plan *plan = attn__set_plan(set, i, kind);
        if (plan == NULL)
            continue;
        ATTN_INIT(&sizes);
        const int32_t status = core->host.plan_get_sizes(plan, &sizes, err);
        if (status != ATTN_OK)
            return status;
        if (!place(set, &sizes, &set->schedules[r], &bytes))
            return attn__fail(err, ATTN_E_SIZE, 0, "classes", "schedules of %u classes do not fit 64 bits",
                              set->count);
    }
    const int32_t status = attn__allocate(&core->host, bytes, &set->memory, err);
    for (uint32_t r = 0; r < runs && status == ATTN_OK; r++) {
        set->schedules[r].buffer.data = set->memory.buffer.data;
        set->schedules[r].buffer.byte_offset += set->memory.buffer.byte_offset;
    }
    return status;
}

int32_t attn__set_create(struct attn__state_core *core, const struct attn_step *size,
                         struct attn__plan_set **out, struct attn_error *err)
{
    struct attn__plan_set *set = calloc(1, sizeof *set);
    int32_t status = ATTN_OK;

    *out = NULL;
    if (set != NULL) {
        set->count = core->count;
        set->size = size;
        set->plans = calloc(2 * (size_t)core->count, sizeof(struct attn_plan *));
        set->schedules = calloc((size_t)core->count * ATTN__RUNS, sizeof *set->schedules);
    }
    if (set == NULL || set->plans == NULL || set->schedules == NULL) {
        attn__set_destroy(core, set);
        return attn__fail(err, ATTN_E_MEMORY, 0, "classes", "no memory for the plans of %u classes",
                          core->count);
    }
    for (uint32_t i = 0; i < core->count && status == ATTN_OK; i++)
        status = make_plan(core, set, i, err);
    if (status == ATTN_OK)
        status = place_schedules(core, set, err);
    if (status != ATTN_OK) {
        attn__set_destroy(core, set);
        return status;
    }
    *out = set;
    return ATTN_OK;
}
