/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Chooses the runs of each layer class in a step: one over the whole step, or one for prompts and one for
 * decodes. */
#include "fail.h"
#include "state-step.h"

/* ---------------------------------------------------------------- parts of a run */

static void move(struct attn_buffer *buffer, uint64_t bytes)
{
    if (buffer->data != NULL)
        buffer->byte_offset += bytes;
}

static const void *moved(const void *host, uint64_t bytes)
{
    return host != NULL ? (const char *)host + bytes : NULL;
}

/* Only the prompts, which come first. */
static void keep_prompts(const struct attn_step *step, struct attn__run *run)
{
    run->batch->seqs = step->prefills;
    run->batch->num_tokens = step->prefill_tokens;
}

/* Query offsets of the decodes alone. */
static void set_decode_starts(const struct attn__step_view *view, struct attn__run *run)
{
    const struct attn__state_core *core = view->state->core;
    const struct attn_step *step = view->step;

    run->batch->q_offsets = core->starts;
    run->host->q_offsets = core->host_starts;
    run->batch->max_q = 1;
    if (run->batch->num_tokens == run->batch->seqs &&
        (step->max_decode_q <= 1 || step->max_decode_q == ATTN_STEP_NONE))
        return;
    run->batch->q_offsets = step->decode_starts.device;
    run->host->q_offsets = step->decode_starts.host;
    run->batch->max_q = step->max_decode_q;
}

/* Only the decodes, which come after the prompts. */
static void keep_decodes(const struct attn__step_view *view, struct attn__run *run)
{
    const uint64_t skipped = view->step->prefills;
    struct attn_batch *batch = run->batch;
    struct attn_batch_host *host = run->host;

    if (skipped == 0)
        return;
    batch->seqs -= view->step->prefills;
    batch->num_tokens -= view->step->prefill_tokens;
    move(&batch->kv_lens, skipped * 4);
    move(&batch->table, skipped * (uint64_t)batch->table_stride);
    host->kv_lens = moved(host->kv_lens, skipped * 4);
    host->table = moved(host->table, skipped * (uint64_t)batch->table_stride);
    set_decode_starts(view, run);
}

/* ---------------------------------------------------------------- classes */

/* The run of a class, over the core's arrays. */
static struct attn__run run_of(const struct attn__state_core *core, uint32_t i, enum attn__run_kind kind)
{
    const size_t r = (size_t)i * ATTN__RUNS + kind;

    return (struct attn__run){.batch = &core->batches[r],
                              .host = &core->hosts[r],
                              .source = kind == ATTN__RUN_NEW ? (uint32_t)ATTN_KV_NEW
                                                              : core->problems[i].kv_source};
}

static int32_t fill(const struct attn__step_view *view, uint32_t i, enum attn__run_kind kind, bool *out_found,
                    struct attn_error *err)
{
    struct attn__run run = run_of(view->state->core, i, kind);
    const int32_t status = attn__run_fill(view, i, &run, out_found, err);

    if (status != ATTN_OK || !*out_found)
        ATTN_INIT(run.batch);
    return status;
}

static void close_run(const struct attn__step_view *view, uint32_t i, enum attn__run_kind kind)
{
    struct attn__run run = run_of(view->state->core, i, kind);

    if (run.batch->seqs > 0)
        attn__run_finish(view, &view->state->core->problems[i], &run);
}

/* Prompts over new keys and values. Their plan may be missing; attn_layer_forward then fails with the reason.
 */
static int32_t fill_new(const struct attn__step_view *view, uint32_t i, struct attn_error *err)
{
    struct attn__run run = run_of(view->state->core, i, ATTN__RUN_NEW);
    bool found;
    const int32_t status = fill(view, i, ATTN__RUN_NEW, &found, err);

    if (status == ATTN_OK && found)
        keep_prompts(view->step, &run);
    return status;
}

/* Reduces the main run, which has all sequences, to the decodes. */
static void cut_decodes(const struct attn__step_view *view, uint32_t i)
{
    struct attn__run run = run_of(view->state->core, i, ATTN__RUN_MAIN);

    if (run.batch->seqs <= view->step->prefills)
        ATTN_INIT(run.batch);
    else
        keep_decodes(view, &run);
}

static int32_t check_tables(const struct attn__step_view *view, bool found, uint32_t i,
                            struct attn_error *err)
{
    const struct attn__state_core *core = view->state->core;

    if (found && view->step->prefills_without_table > 0 &&
        view->step->prefills_without_table < view->step->prefills &&
        core->problems[i].type != ATTN_ENCODER_DECODER)
        return attn__fail(err, ATTN_E_INVALID, 0, "block_tables",
                          "%u of %u prompts have no row in block_tables; all or none are accepted, and all "
                          "have one from a builder made with chunked = 1",
                          view->step->prefills_without_table, view->step->prefills);
    return ATTN_OK;
}

int32_t attn__step_check_window(const struct attn__state_core *core, const struct attn_step *step, uint32_t i,
                                struct attn_error *err)
{
    const struct attn_builder_group *group = &core->groups[core->classes[i].group];
    const int32_t *starts = step->query_starts.host;

    if ((group->given & ATTN_GIVEN_WINDOW) == 0 || core->problems[i].kv_source != ATTN_KV_CACHE)
        return ATTN_OK;
    for (uint32_t n = 0; starts != NULL && n < step->prefills; n++)
        if ((uint32_t)(starts[n + 1] - starts[n]) > group->window)
            return attn__fail(
                err, ATTN_E_UNSUPPORTED, ATTN_REASON_WINDOW, "window",
                "prompt %u has %d new tokens, of which only the last %u, the window of cache "
                "group %u, have slots, and class %u reads the cache; shorter chunks or a builder "
                "without the window are accepted",
                n, starts[n + 1] - starts[n], group->window, core->classes[i].group, i);
    if (starts == NULL && step->prefills > 0 && step->max_q > group->window)
        return attn__fail(
            err, ATTN_E_UNSUPPORTED, ATTN_REASON_WINDOW, "window",
            "prompts have up to %u new tokens, and only the last %u, the window of cache group %u, have "
            "slots, "
            "and class %u reads the cache; max_q of up to the window or a builder without it are accepted",
            step->max_q, group->window, core->classes[i].group, i);
    return ATTN_OK;
}

/* The runs of a class that reads a cache. */
static int32_t fill_cached(const struct attn__step_view *view, uint32_t i, struct attn_error *err)
{
    const struct attn__state_core *core = view->state->core;
    const bool cross = core->problems[i].type == ATTN_ENCODER_DECODER;
    bool found;
    int32_t status = fill(view, i, ATTN__RUN_MAIN, &found, err);

    if (status == ATTN_OK)
        status = check_tables(view, found, i, err);
    if (status != ATTN_OK || view->step->prefills == 0)
        return status;
    if (found && !cross && view->step->prefills_without_table == 0)
        return attn__step_check_window(core, view->step, i, err);
    status = fill_new(view, i, err);
    if (status == ATTN_OK && found)
        cut_decodes(view, i);
    return status;
}

static int32_t fill_class(const struct attn__step_view *view, uint32_t i, struct attn_error *err)
{
    const struct attn__state_core *core = view->state->core;
    const uint32_t kinds = ATTN__RUNS;
    bool found;
    int32_t status;

    for (uint32_t kind = 0; kind < kinds; kind++)
        ATTN_INIT(&core->batches[(size_t)i * kinds + kind]);
    if (core->problems[i].kv_source == ATTN_KV_NEW)
        status = fill(view, i, ATTN__RUN_MAIN, &found, err);
    else
        status = fill_cached(view, i, err);
    for (uint32_t kind = 0; kind < kinds && status == ATTN_OK; kind++)
        close_run(view, i, (enum attn__run_kind)kind);
    return status;
}

/* ---------------------------------------------------------------- what layers need beside their runs */

static void note_class(const struct attn__step_view *view, uint32_t i)
{
    const struct attn__state_core *core = view->state->core;
    const bool cross = core->problems[i].type == ATTN_ENCODER_DECODER;
    const struct attn_step_array *slots =
        cross ? &view->step->encoder.slots : &view->step->group[core->classes[i].group].slots;
    struct attn__class_step *out = &core->steps[i];

    *out = (struct attn__class_step){.skipped = 0};
    if (slots->dtype != 0) {
        out->slots = slots->device;
        out->slot_count = (uint32_t)slots->count;
    }
    if (view->state->batch != 0 &&
        !cross) { /* a captured write reads the buffers, whatever metadata the step has */
        const struct attn__capture *capture = view->state->capture;
        out->slots = capture->place.device;
        out->slots.byte_offset += capture->layout.group[core->classes[i].group].slots.offset;
        out->slot_count = view->state->fields.step.num_tokens;
    }
    const struct attn_batch *main = &core->batches[(size_t)i * ATTN__RUNS];
    if (core->problems[i].kv_source != ATTN_KV_NEW && main->seqs > 0 &&
        main->num_tokens < view->step->num_tokens)
        out->skipped = view->step->prefill_tokens;
}

int32_t attn__state_batches(const struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                            int32_t *lens, struct attn_error *err)
{
    const struct attn__step_view view = {
        .state = state, .metadata = metadata, .step = &metadata->step, .lens = lens};
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < state->core->count && status == ATTN_OK; i++) {
        status = fill_class(&view, i, err);
        if (status == ATTN_OK)
            note_class(&view, i);
    }
    return status;
}
