/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* builder_flashinfer.json, begin_forward_calls: what a state plans for a step. */
#include "check-builder.h"
#include "compat/run.h"
#include "plans.h"

static struct plans_model model_of(const struct step *step)
{
    struct plans_model model = {.flavour = step->flavour,
                                .block = step->block,
                                .columns = step->graph_blocks,
                                .max_seqs =
                                    step_seqs(step) > step->max_seqs ? step_seqs(step) : step->max_seqs,
                                .max_tokens = step_tokens(step) + (step->pad > 0 ? step->pad : 0),
                                .max_len = step->graph_blocks * step->block};
    int64_t longest = step_longest(step);

    model.max_blocks = longest > step->graph_blocks ? longest : step->graph_blocks;
    model.max_indices = model.max_seqs * model.max_blocks;
    model.max_tokens = model.max_tokens > model.max_seqs ? model.max_tokens : model.max_seqs;
    for (size_t i = 0; i < step->count; i++)
        model.max_len =
            step->sequence[i].orig_len > model.max_len ? step->sequence[i].orig_len : model.max_len;
    return model;
}

/* A graph's step is planned by the state of its size. */
static bool capture(struct golden *g, struct attn_state *state, const struct step *step,
                    struct attn_state **clone)
{
    struct attn_state_capture_args args;
    struct attn_metadata *metadata;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&args);
    args.batch = (uint32_t)step_seqs(step);
    int32_t status = attn_state_begin_capture(state, (uint32_t)step->max_seqs, NULL, &err);
    if (status == ATTN_OK)
        status = attn_state_get_capture_metadata(state, &args, NULL, &metadata, &err);
    if (status == ATTN_OK)
        status = attn_state_clone(state, args.batch, clone, &err);
    if (status == ATTN_OK)
        status = attn_state_end_capture(state, &err);
    return golden_ok(g, "capture", status, &err);
}

/* Prompts come first, and are planned by themselves. What reads new tokens has no wrapper. */
static json_t *calls_of(const struct step *step, uint32_t first)
{
    uint32_t count;
    const struct recorded_call *calls = plans_calls(&count);
    json_t *list = json_array();
    size_t prompts = 0;

    for (size_t i = 0; i < step->count; i++)
        prompts += step->sequence[i].prompt;
    for (uint32_t i = first; i < count; i++) {
        if (calls[i].kind != RECORDED_PREPARE || calls[i].problem.kv_source == ATTN_KV_NEW)
            continue;
        if (prompts > 0)
            json_array_append_new(
                list, plans_prefill(&calls[i], "BatchPrefillWithPagedKVCacheWrapper.begin_forward"));
        else
            json_array_append_new(
                list, plans_decode(&calls[i], "BatchDecodeWithPagedKVCacheWrapper.begin_forward"));
        prompts = 0;
    }
    return list;
}

/* Begins the step, and plans both of its parts as the original does; *first is the first call of theirs. */
static int32_t begin(const struct plans_model *model, struct attn_state *state,
                     struct attn_metadata *metadata, uint32_t *first, struct attn_error *err)
{
    struct attn_problem problem;
    struct compat_parts parts;
    const struct compat_run run = {.problem = &problem, .state = state, .metadata = metadata};
    int32_t status = plans_problem(model, &problem, err);

    plans_clear();
    if (status == ATTN_OK)
        status = attn_state_begin_forward(state, metadata, NULL, err);
    plans_calls(first);
    if (status == ATTN_OK)
        status = compat_split(&run, &parts, err);
    *first = status == ATTN_OK && parts.count > 0 ? *first : 0;
    return status;
}

void check_plans(struct golden *g, const json_t *expected, const struct step *step,
                 struct attn_backend *backend, struct attn_metadata *metadata)
{
    const struct plans_model model = model_of(step);
    struct attn_state *state = plans_state(g, backend, &model);
    struct attn_state *clone = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    if (state != NULL && (step->pad < 0 || capture(g, state, step, &clone))) {
        uint32_t first;
        if (golden_ok(g, "attn_state_begin_forward", begin(&model, state, metadata, &first, &err), &err)) {
            json_t *actual = calls_of(step, first);
            plans_compare(g, expected, actual);
            json_decref(actual);
        }
    }
    attn_state_destroy(clone);
    attn_state_destroy(state);
}
