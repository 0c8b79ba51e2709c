/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Serving: what a query accepts, builder, state and layers serve in every flow, with the numbers of the
 * oracle; what it refuses, they refuse with the reason of the query.
 */
#include "classes.h"
#include "conform.h"

#include <stdio.h>

static struct model model;

static bool ask(const struct target *target, const struct attn_problem *problem, struct attn_reason *out)
{
    struct attn_query query;

    ATTN_INIT(&query);
    memset(out, 0, sizeof *out);
    query.reasons = out;
    query.reason_capacity = 1;
    return attn_context_query(target->context, target->name, &target->device, problem, &query, NULL) ==
               ATTN_OK &&
           query.accepted != 0;
}

static bool is_refusal(const char *call, bool made, const struct attn_reason *reason)
{
    if (made)
        tap_fail("the query refuses the class with %s, but %s makes one", attn_reason_name(reason->code),
                 call);
    else if (model.refusal.status != ATTN_E_UNSUPPORTED || model.refusal.reason != reason->code)
        tap_fail("the query refuses the class with %s, but %s", attn_reason_name(reason->code), model.why);
    else
        return true;
    return false;
}

/* A class that the query refuses. */
static void check_refusal(uint32_t c, const struct attn_reason *reason)
{
    if (is_refusal("attn_state_create", model_make_state(&model), reason) &&
        is_refusal("attn_layer_create", model_make_layer(&model, c), reason))
        tap_pass();
}

static void check_flow(const struct target *target, struct served *served, const struct flow *flow,
                       const struct run_options *options)
{
    char name[160];

    snprintf(name, sizeof name, "%s: %s", served->name, flow->name);
    if (!options_wants(options, name))
        return;
    tap_begin(target, "serving", name, options->seed);
    served->def.chunked = flow->chunked;
    if (model_init(&model, &served->def, target->context, target->backend, options->seed) &&
        flow->run(&model))
        tap_pass();
    else
        tap_fail("%s: %s", served->texts[0], model.why);
    model_finish(&model);
}

/* All flows of a class that is accepted; otherwise its refusal. */
static void check_class(const struct target *target, struct served *served, uint32_t *cases,
                        const struct run_options *options)
{
    struct attn_reason reason;
    bool accepted = true, described;

    described = model_describe(&model, &served->def, target->context, target->backend, options->seed);
    for (uint32_t c = 0; c < model.count && described && accepted; c++) {
        accepted = ask(target, &model.problems[c], &reason);
        if (!accepted && options_mine(options, (*cases)++) && options_wants(options, served->name)) {
            tap_begin(target, "serving", served->name, options->seed);
            check_refusal(c, &reason);
        }
    }
    model_finish(&model);
    for (uint32_t f = 0; f < flow_count && described && accepted; f++)
        if ((flows[f].wants & ~served->has) == 0 && options_mine(options, (*cases)++))
            check_flow(target, served, &flows[f], options);
}

void check_serving(struct target_list *list, const struct run_options *options)
{
    static struct served served;

    for (uint32_t t = 0; t < list->count; t++) {
        const struct target *target = &list->targets[t];
        const uint32_t known = flavour_of(target->name);
        const uint32_t flavour = known != 0 ? known : (uint32_t)ATTN_FLASH_ATTN;
        uint32_t cases = 0;
        for (uint32_t n = 0; class_init(&served, n, options->seed, flavour); n++) {
            served.def.flavour = known != 0 ? 0 : flavour;
            served.def.device = &target->device;
            if (served.def.classes[0].problem != NULL)
                check_class(target, &served, &cases, options);
        }
    }
}
