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

/*
 * Prompts without rows attend to new keys alone, whatever the class reads: a problem of its own, which a
 * backend may refuse too.
 */
static bool is_refusal_of_new(const struct target *target)
{
    const uint32_t c = model.class_at;
    struct attn_problem problem = model.problems[c];
    struct attn_reason reason;

    if (model.refusal.status != ATTN_E_UNSUPPORTED || problem.kv_source == ATTN_KV_NEW)
        return false;
    if (problem.kv_source == ATTN_KV_CACHE) {
        problem.k_dtype = problem.v_dtype = new_dtype(&model, c);
        problem.k_scale = problem.v_scale = ATTN_SCALES_NONE;
    }
    problem.kv_source = ATTN_KV_NEW;
    problem.layout = ATTN_STRIDED;
    problem.addressing = ATTN_TABLE;
    problem.graph = ATTN_GRAPH_NEVER;
    return !ask(target, &problem, &reason) && reason.code == model.refusal.reason;
}

/*
 * Steps that attn/layer.h excludes: they are refused as not supported, by the field that stands in the way,
 * and nothing has happened then. Any other failure of a class that a query accepts is a hole.
 */
static bool is_documented(void)
{
    static const struct {
        int32_t status; /* vLLM's own words are of arguments that cannot be */
        const char *field;
    } refusals[] = {
        {ATTN_E_UNSUPPORTED, "window"}, /* prompts longer than a builder's window, and rows trimmed to one */
        {ATTN_E_UNSUPPORTED, "seq_lens"},           /* such rows do not advance */
        {ATTN_E_UNSUPPORTED, "max_encoder_tokens"}, /* steps with an encoder are not set on a device */
        {ATTN_E_UNSUPPORTED, "metadata"},           /* and what is set there does not advance */
        {ATTN_E_UNSUPPORTED, "set_device"},         /* builders without it */
        {ATTN_E_UNSUPPORTED, "advance_step"},       /* backends without it */
        {ATTN_E_UNSUPPORTED, "paged_kv_indptr"}, /* graphs of FlashInfer steps that the device alone knows */
        {ATTN_E_UNSUPPORTED, "kv_source"},       /* new keys that a step does not have, or reads separately */
        {ATTN_E_INVALID, "query_len"}, /* several query tokens of a decode: FlashAttention's builder alone */
        {ATTN_E_INVALID,
         "encoder_decoder"}, /* graphs of cross-attention: FlashAttention's and XFormers' states */
    };

    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        if (model.refusal.status == refusals[i].status && strcmp(model.refusal.field, refusals[i].field) == 0)
            return true;
    return false;
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
    bool good = model_init(&model, &served->def, target->context, target->backend, options->seed);
    if (good)
        good = flow->run(&model) || is_refusal_of_new(target) || is_documented();
    else
        good = is_documented();
    if (good)
        tap_pass();
    else
        tap_fail("%s: %s", served->texts[model.class_at], model.why);
    model_finish(&model);
}

/* All flows of a class that is accepted; otherwise its refusal. */
static void check_class(const struct target *target, struct served *served, const struct run_options *options)
{
    struct attn_reason reason;
    bool accepted = model_describe(&model, &served->def, target->context, target->backend, options->seed);

    for (uint32_t c = 0; c < model.count && accepted; c++) {
        accepted = ask(target, &model.problems[c], &reason);
        if (accepted || !options_wants(options, served->name))
            continue;
        tap_begin(target, "serving", served->name, options->seed);
        check_refusal(c, &reason);
    }
    model_finish(&model);
    for (uint32_t f = 0; f < flow_count && accepted; f++)
        if ((flows[f].wants & ~served->has) == 0)
            check_flow(target, served, &flows[f], options);
}

/*
 * The cases of a backend are its classes. At a second level other kernels run behind the same builder and
 * state: a part is enough. Passes beyond the first have other types of queries and caches.
 */
static void check_target(const struct target *target, bool second, const struct run_options *options)
{
    static struct served served;
    const uint32_t flavour = flavour_of(target->name);
    const uint32_t classes = class_count();
    const uint32_t quick = second && options->filter == NULL ? classes / 4 : classes;
    const uint32_t cases = options_cases(options, quick, 3 * classes);
    struct run_options pass = *options;

    for (uint32_t left = cases; left > 0; pass.seed++) {
        const uint32_t wanted = left < classes ? left : classes;
        for (uint32_t n = 0; n < classes; n++) {
            if (n * wanted / classes == (n + 1) * wanted / classes || !options_mine(options, n))
                continue;
            class_init(&served, n, pass.seed, flavour);
            served.def.device = &target->device;
            check_class(target, &served, &pass);
        }
        left -= wanted;
    }
}

void check_serving(struct target_list *list, const struct run_options *options)
{
    for (uint32_t t = 0; t < list->count; t++) {
        bool second = false;
        for (uint32_t i = 0; i < t; i++)
            second = second || strcmp(list->targets[i].name, list->targets[t].name) == 0;
        check_target(&list->targets[t], second, options);
    }
}
