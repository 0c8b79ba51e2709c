/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Chooses a backend, item by item of the wanted list and class by class, and keeps all answers. */
#include <stdio.h>
#include <stdlib.h>

#include "dispatch/call.h"
#include "select/problem.h"
#include "select/select.h"

#define PROBLEMS_MAX 4096

/* ---------------------------------------------------------------- arguments */

static int32_t bad_device(const char *text, struct attn_error *err)
{
    return attn__fail(
        err, ATTN_E_INVALID, 0, "device",
        "device is '%.64s'; accepted: what attn-info devices shows, alone or with :NUMBER, or any", text);
}

/* Accepts any device type, because plugins name their own; one that no plugin has excludes all candidates. */
static int32_t parse_device(struct attn__selection *selection, struct attn_error *err)
{
    const char *text = selection->options.device;
    selection->ordinal = -1;
    if (text == NULL || strcmp(text, "any") == 0)
        return ATTN_OK;
    const size_t length = strcspn(text, ":");
    if (length == 0 || length >= sizeof selection->device_type)
        return bad_device(text, err);
    memcpy(selection->device_type, text, length);
    if (text[length] == ':') {
        const char *digits = text + length + 1;
        const size_t count = strspn(digits, "0123456789");
        if (count == 0 || count > 9 || digits[count] != 0)
            return bad_device(text, err);
        selection->ordinal = (int32_t)strtol(digits, NULL, 10);
    }
    return ATTN_OK;
}

/* Best class first; if a CPU is asked for, plugins for CPUs come before those that open a driver. */
static void set_order(struct attn__selection *selection)
{
    const bool cpu_first = strcmp(selection->device_type, "cpu") == 0;
    for (uint32_t class = 1; class <= ATTN__CLASSES; class ++)
        selection->order[class] = cpu_first ? (class + 1) % ATTN__CLASSES : class - 1;
}

static int32_t take_problems(struct attn__selection *selection, const struct attn_problem *problems,
                             uint32_t count, struct attn_error *err)
{
    if (problems == NULL || count == 0 || count > PROBLEMS_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, problems == NULL ? "problems" : "count",
                          "%u problems are given; accepted: 1 to %d", problems == NULL ? 0 : count,
                          PROBLEMS_MAX);
    }
    selection->problems = calloc(count, sizeof *selection->problems);
    if (selection->problems == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "problems", "no memory for %u problems", count);
    selection->problem_count = count;
    const uint32_t stride = problems->struct_size; /* a newer caller's structs are larger */
    for (uint32_t i = 0; i < count; i++) {
        const void *one = (const char *)problems + (size_t)i * stride;
        const int32_t status = attn__problem_take(selection->context, one, &selection->problems[i], err);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

static int32_t take_options(struct attn__selection *selection, const struct attn_select_options *options,
                            struct attn_error *err)
{
    if (options != NULL) {
        const int32_t status = attn__take(&selection->options, sizeof selection->options, options,
                                          sizeof selection->options, "options", err);
        if (status != ATTN_OK)
            return status;
    }
    if (selection->options.strict > 2) {
        return attn__fail(err, ATTN_E_INVALID, 0, "strict", "strict is %u; accepted: 0, 1 or 2",
                          selection->options.strict);
    }
    /* The stricter of both: neither can be softened by the other. */
    const char *variable = attn__env_get(&selection->context->env, ATTN__VAR_ATTN_STRICT);
    selection->strict = selection->options.strict;
    if (selection->strict < (uint32_t)(variable[0] - '0'))
        selection->strict = (uint32_t)(variable[0] - '0');
    const char *list = selection->options.backend;
    char item[ATTN__NAME_SIZE];
    const char *cursor = list;
    if (list != NULL && !attn__item_next(&cursor, item, sizeof item)) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, "backend",
            "backend is '%.64s'; accepted: a comma list of vendor/flavour, vendor, flavour or auto, or "
            "none",
            list);
    }
    const int32_t status = parse_device(selection, err);
    set_order(selection);
    return status;
}

/* Takes the wanted list of the call, else of the environment, else the default. */
static int32_t take_wanted(struct attn__selection *selection, struct attn_error *err)
{
    const struct attn__env *env = &selection->context->env;
    struct attn_decision *decision = selection->decision;
    const bool given = attn__env_is_given(env, ATTN__VAR_ATTN_BACKEND);
    const char *variable = attn__env_get(env, ATTN__VAR_ATTN_BACKEND);
    const char *wanted = variable;
    decision->info.decided_by = given ? ATTN_DECIDED_BY_ENVIRONMENT : ATTN_DECIDED_BY_AUTOMATIC;
    if (selection->options.backend != NULL) {
        wanted = selection->options.backend;
        decision->info.decided_by = ATTN_DECIDED_BY_CALL;
        decision->overrules = given && strcmp(wanted, variable) != 0;
    }
    char item[ATTN__NAME_SIZE];
    const char *cursor = wanted;
    decision->requested = strdup(attn__item_next(&cursor, item, sizeof item) ? wanted : "auto");
    if (decision->requested == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "backend", "no memory for the wanted list");
    decision->info.requested = decision->requested;
    if (decision->overrules) {
        attn__log_once(&selection->context->log, ATTN_LOG_INFO, "select",
                       "the call asks for '%s', which overrules ATTN_BACKEND=%s", wanted, variable);
    }
    return ATTN_OK;
}

/* ---------------------------------------------------------------- attn_select */

static int32_t start(struct attn__selection *selection, const struct attn_problem *problems, uint32_t count,
                     const struct attn_select_options *options, struct attn_error *err)
{
    int32_t status = take_options(selection, options, err);
    if (status == ATTN_OK)
        status = take_problems(selection, problems, count, err);
    if (status != ATTN_OK)
        return status;
    selection->decision = calloc(1, sizeof *selection->decision);
    if (selection->decision == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "decision", "no memory for a decision");
    selection->decision->context = selection->context;
    attn__context_hold(selection->context);
    status = take_wanted(selection, err);
    return status == ATTN_OK ? attn__selection_list(selection, err) : status;
}

int32_t attn__select(struct attn_context *context, const struct attn_problem *problems, uint32_t count,
                     const struct attn_select_options *options, const char *split, struct attn_decision **out,
                     struct attn_error *err)
{
    struct attn__selection selection = {.context = context, .split = split};
    int32_t status = start(&selection, problems, count, options, err);
    if (status == ATTN_OK)
        status = attn__selection_ask(&selection, err);
    bool keep = false;
    if (status == ATTN_OK) {
        status = attn__selection_conclude(&selection, err);
        keep = status == ATTN_OK || status == ATTN_E_NO_BACKEND;
    }
    *out = keep ? selection.decision : NULL;
    if (!keep)
        attn_decision_destroy(selection.decision);
    free(selection.problems);
    free(selection.plugins);
    free(selection.slots);
    return status;
}

int32_t attn_select(struct attn_context *context, const struct attn_problem *problems, uint32_t count,
                    const struct attn_select_options *options, struct attn_decision **out,
                    struct attn_error *err)
{
    if (context == NULL || out == NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, context == NULL ? "context" : "out", "%s is NULL",
                          context == NULL ? "context" : "out");
    }
    *out = NULL;
    const int32_t status = attn__check_fork(context->born, "attn_select", err);
    return status == ATTN_OK ? attn__select(context, problems, count, options, NULL, out, err) : status;
}
