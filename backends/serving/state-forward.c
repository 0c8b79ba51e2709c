/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Begins a step of a state: prepares the plans of all classes, and returns what a layer runs with. */
#include "fail.h"
#include "state.h"

/* Lists the runs of the step; returns their number. */
static uint32_t list_runs(const struct attn_state_impl *state)
{
    const struct attn__state_core *core = state->core;
    uint32_t count = 0;

    for (uint32_t n = 0; n < core->count * ATTN__RUNS; n++) {
        const enum attn__run_kind kind = attn__run_order[n / core->count];
        const uint32_t i = n % core->count, r = i * ATTN__RUNS + kind;
        const struct attn_plan *plan = attn__set_plan(state->set, i, kind);
        if (core->batches[r].seqs == 0 || plan == NULL)
            continue;
        core->plan_list[count] = plan;
        core->batch_list[count] = &core->batches[r];
        core->schedule_list[count++] = state->set->schedules[r];
    }
    return count;
}

/* Copies lengths that follow from pages to the device, and prepares the plans of all classes. */
static int32_t plan_step(const struct attn_state_impl *state, char *block, void *stream,
                         struct attn_error *err)
{
    const struct attn__state_core *core = state->core;
    const uint64_t staging = core->staging.bytes - core->lens.size;
    int32_t status = ATTN_OK;

    if (core->lens.size > 0 && state->batch == 0) {
        const struct attn_buffer from = {block, staging};
        status = core->host.memory_copy(core->host.backend, &core->lens.buffer, &from, core->lens.size,
                                        ATTN_COPY_TO_DEVICE, stream, err);
    }
    if (status != ATTN_OK)
        return status;
    const struct attn_span span = {{block, 0}, staging};
    return core->host.plan_prepare_many(core->plan_list, core->batch_list, core->schedule_list,
                                        list_runs(state), &span, stream, err);
}

/*
 * Prepares the plans of a graph while it is captured. The device plans when the graph is launched, over what
 * the buffers then have: nothing is read or copied on the host.
 */
static int32_t plan_capture(const struct attn_state_impl *clone, const struct attn_metadata_impl *metadata,
                            void *stream, struct attn_error *err)
{
    const struct attn__state_core *core = clone->core;
    const struct attn__staging *staging = &clone->capture->staging;
    const struct attn_span span = {{staging->blocks != NULL ? staging->blocks->memory : NULL, 0},
                                   staging->bytes};
    const int32_t status = attn__state_batches(clone, metadata, NULL, err);

    return status == ATTN_OK
               ? core->host.plan_prepare_many(core->plan_list, core->batch_list, core->schedule_list,
                                              list_runs(clone), &span, stream, err)
               : status;
}

static int32_t plan(const struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                    void *stream, struct attn_error *err)
{
    struct attn__state_core *core = state->core;
    char *block;
    int32_t status = attn__staging_take(&core->staging, &core->host, &block, err);

    if (status == ATTN_OK && state->batch != 0 && !attn__capture_holds(state->capture, metadata))
        status = attn__capture_copy(state, metadata, stream, err);
    if (status != ATTN_OK)
        return status;
    core->owner = NULL;
    int32_t *lens = NULL;
    if (core->lens.size > 0 &&
        state->batch == 0) /* groups without pages keep no lengths of an earlier step */
        lens = memset(block + (core->staging.bytes - core->lens.size), 0, core->lens.size);
    status = attn__state_batches(state, metadata, lens, err);
    if (status != ATTN_OK)
        return status;
    status = plan_step(state, block, stream, err);
    return attn__staging_mark(&core->staging, &core->host, status, stream, err);
}

int32_t attn__state_forward(struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                            void *stream, struct attn_error *err)
{
    struct attn__state_core *core = state->core;
    const bool captured = metadata == &state->fields;

    if (captured)
        core->owner = NULL;
    const int32_t status =
        captured ? plan_capture(state, metadata, stream, err) : plan(state, metadata, stream, err);
    if (status == ATTN_E_BUSY)
        return status;
    for (uint32_t i = 0; i < core->count * ATTN__RUNS; i++) { /* host copies are read by prepare alone */
        core->batches[i].given = 0;
        core->batches[i].host = NULL;
    }
    core->owner = status == ATTN_OK ? state : NULL;
    core->begun = metadata;
    return status;
}

int32_t attn__state_begin_forward(struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                                  void *stream, struct attn_error *err)
{
    struct attn_state_impl *found = NULL;

    if (state->core->flavour->pages && state->batch == 0 && state->capture != NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "state",
                          "attn_state_begin_forward: graphs are captured; clones can begin steps, or end it");
    const int32_t status = attn__state_find(state, metadata, &found, err);
    if (status != ATTN_OK) {
        state->core->owner = NULL; /* after a failure there is no step */
        return status;
    }
    return attn__state_forward(found, metadata, stream, err);
}

int32_t attn__state_owner(const struct attn_state_impl *state, const char *what, struct attn_error *err)
{
    const struct attn__state_core *core = state->core;

    if (core->owner == state || (core->owner != NULL && core->owner->parent == state))
        return ATTN_OK;
    return attn__fail(err, ATTN_E_STATE, 0, "state",
                      "%s: the state has no step; call attn_state_begin_forward first", what);
}

int32_t attn__state_get_step(const struct attn_state_impl *state, uint32_t layer_class,
                             struct attn_state_step *out, struct attn_error *err)
{
    const struct attn__state_core *core = state->core;
    if (layer_class >= core->count)
        return attn__fail(err, ATTN_E_INVALID, 0, "layer_class", "layer_class is %u; there are %u classes",
                          layer_class, core->count);
    const int32_t status = attn__state_owner(state, "attn_state_get_step", err);
    if (status != ATTN_OK)
        return status;
    const size_t first = (size_t)layer_class * ATTN__RUNS;
    uint32_t kind = ATTN__RUN_MAIN, runs = 0;
    for (uint32_t k = 0; k < ATTN__RUNS; k++)
        if (core->batches[first + k].seqs > 0) {
            kind = k;
            runs++;
        }
    if (runs > 1)
        return attn__fail(
            err, ATTN_E_UNSUPPORTED, 0, "layer_class",
            "class %u runs prompts and decodes of this step separately; attn_layer_forward does both",
            layer_class);
    out->plan = attn__set_plan(core->owner->set, layer_class, (enum attn__run_kind)kind);
    out->batch = &core->batches[first + kind];
    out->schedule = &core->owner->set->schedules[first + kind];
    out->scratch = &core->scratch;
    return ATTN_OK;
}
