/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Chooses the runs of each layer class in a step: one over the whole step, or one for prompts and one for
 * decodes. */
#include "fail.h"
#include "flavour.h"
#include "parts.h"
#include "state-step.h"

/* ---------------------------------------------------------------- the step */

static int32_t open_step(struct attn__step_view *step, struct attn_error *err)
{
    const struct {
        uint32_t field;
        int64_t *value;
    } numbers[] = {
        {ATTN_FIELD_NUM_PREFILL_TOKENS, &(int64_t){0}},   {ATTN_FIELD_NUM_DECODE_TOKENS, &(int64_t){0}},
        {ATTN_FIELD_NUM_PREFILLS, &(int64_t){0}},         {ATTN_FIELD_MAX_QUERY_LEN, &(int64_t){0}},
        {ATTN_FIELD_MAX_DECODE_QUERY_LEN, &(int64_t){0}}, {ATTN_FIELD_DECODE_QUERY_LEN, &(int64_t){0}}};
    int32_t status = ATTN_OK;

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == ATTN_OK; i++)
        status = attn__step_number(step, numbers[i].field, 0, numbers[i].value, err);
    if (status == ATTN_OK)
        status = attn__step_get(step, ATTN_FIELD_QUERY_START_LOC, 0, &step->starts, err);
    if (status != ATTN_OK)
        return status;
    const int64_t max_q = *numbers[3].value, decode_q = *numbers[4].value + *numbers[5].value;
    step->prompt_tokens = (uint32_t)*numbers[0].value;
    step->num_tokens = step->prompt_tokens + (uint32_t)*numbers[1].value;
    step->prefills = (uint32_t)*numbers[2].value;
    /* FlashInfer's page indices have the blocks of all prompts. */
    step->prefills_without_table = step->state->core->infer ? 0 : step->metadata->prefills_without_table;
    step->decode_q = (uint32_t)decode_q;
    step->max_q = (uint32_t)(max_q != 0 ? max_q : step->prefills == 0 ? decode_q : 0);
    return ATTN_OK;
}

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
static void keep_prompts(const struct attn__step_view *step, struct attn__run *run)
{
    run->batch->seqs = step->prefills;
    run->batch->num_tokens = step->prompt_tokens;
}

/* Query offsets of the decodes alone. FlashAttention has them in its decode part; others decode one token
 * each. */
static int32_t set_decode_starts(const struct attn__step_view *step, struct attn__run *run,
                                 struct attn_error *err)
{
    const struct attn__state_core *core = step->state->core;
    const struct attn_metadata_impl *part;
    struct attn_view starts;

    run->batch->q_offsets = core->starts;
    run->host->q_offsets = core->host_starts;
    run->batch->max_q = 1;
    if (run->batch->num_tokens == run->batch->seqs && step->decode_q <= 1)
        return ATTN_OK;
    int32_t status = attn__metadata_decodes(step->metadata, &part, err);
    ATTN_INIT(&starts);
    if (status == ATTN_OK && part != NULL)
        status = attn__metadata_get(part, ATTN_FIELD_QUERY_START_LOC, 0, &starts, err);
    if (status != ATTN_OK)
        return status;
    if (starts.kind != ATTN_VIEW_ARRAY || starts.shape[0] != (uint64_t)run->batch->seqs + 1)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "query_start_loc",
                          "%u decodes have %u tokens; beside prompts that run by themselves the %s flavour "
                          "takes one token of each",
                          run->batch->seqs, run->batch->num_tokens, attn__flavour_name(core->params.flavour));
    run->batch->q_offsets = starts.device;
    run->host->q_offsets = starts.host;
    run->batch->max_q = step->decode_q;
    return ATTN_OK;
}

/* Only the decodes, which come after the prompts. */
static int32_t keep_decodes(const struct attn__step_view *step, struct attn__run *run, struct attn_error *err)
{
    const uint64_t skipped = step->prefills;
    struct attn_batch *batch = run->batch;
    struct attn_batch_host *host = run->host;

    if (skipped == 0)
        return ATTN_OK;
    batch->seqs -= step->prefills;
    batch->num_tokens -= step->prompt_tokens;
    move(&batch->kv_lens, skipped * 4);
    move(&batch->table, skipped * (uint64_t)batch->table_stride);
    host->kv_lens = moved(host->kv_lens, skipped * 4);
    host->table = moved(host->table, skipped * (uint64_t)batch->table_stride);
    return set_decode_starts(step, run, err);
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

static int32_t fill(const struct attn__step_view *step, uint32_t i, enum attn__run_kind kind, bool *out_found,
                    struct attn_error *err)
{
    struct attn__run run = run_of(step->state->core, i, kind);
    const int32_t status = attn__run_fill(step, i, &run, out_found, err);

    if (status != ATTN_OK || !*out_found)
        ATTN_INIT(run.batch);
    return status;
}

static void close_run(const struct attn__step_view *step, uint32_t i, enum attn__run_kind kind)
{
    struct attn__run run = run_of(step->state->core, i, kind);

    if (run.batch->seqs > 0)
        attn__run_finish(step, &step->state->core->problems[i], &run);
}

/* Prompts over new keys and values. Their plan may be missing; attn_layer_forward then fails with the reason.
 */
static int32_t fill_new(const struct attn__step_view *step, uint32_t i, struct attn_error *err)
{
    struct attn__run run = run_of(step->state->core, i, ATTN__RUN_NEW);
    bool found;
    const int32_t status = fill(step, i, ATTN__RUN_NEW, &found, err);

    if (status == ATTN_OK && found)
        keep_prompts(step, &run);
    return status;
}

/* Reduces the main run, which has all sequences, to the decodes. */
static int32_t cut_decodes(const struct attn__step_view *step, uint32_t i, struct attn_error *err)
{
    struct attn__run run = run_of(step->state->core, i, ATTN__RUN_MAIN);

    if (run.batch->seqs <= step->prefills) {
        ATTN_INIT(run.batch);
        return ATTN_OK;
    }
    return keep_decodes(step, &run, err);
}

static int32_t check_tables(const struct attn__step_view *step, bool found, uint32_t i,
                            struct attn_error *err)
{
    const struct attn__state_core *core = step->state->core;

    if (found && step->prefills_without_table > 0 && step->prefills_without_table < step->prefills &&
        core->problems[i].type != ATTN_ENCODER_DECODER)
        return attn__fail(err, ATTN_E_INVALID, 0, "block_tables",
                          "%u of %u prompts have no row in block_tables; all or none are accepted, and all "
                          "have one from a builder made with chunked = 1",
                          step->prefills_without_table, step->prefills);
    return ATTN_OK;
}

/*
 * If a prompt is longer than the window of its cache group, the builder assigns slots to its last tokens
 * alone: a run that reads the cache would not find the others.
 */
static int32_t check_window(const struct attn__step_view *step, uint32_t i, struct attn_error *err)
{
    const struct attn__state_core *core = step->state->core;
    const struct attn_builder_group *group = &core->groups[core->classes[i].group];
    const int32_t *starts = step->starts.host;

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
    return ATTN_OK;
}

/* The runs of a class that reads a cache. */
static int32_t fill_cached(const struct attn__step_view *step, uint32_t i, struct attn_error *err)
{
    const struct attn__state_core *core = step->state->core;
    const bool cross = core->problems[i].type == ATTN_ENCODER_DECODER;
    bool found;
    int32_t status = fill(step, i, ATTN__RUN_MAIN, &found, err);

    if (status == ATTN_OK)
        status = check_tables(step, found, i, err);
    if (status != ATTN_OK || step->prefills == 0)
        return status;
    if (found && !cross && step->prefills_without_table == 0)
        return check_window(step, i, err);
    status = fill_new(step, i, err);
    return status == ATTN_OK && found ? cut_decodes(step, i, err) : status;
}

static int32_t fill_class(const struct attn__step_view *step, uint32_t i, struct attn_error *err)
{
    const struct attn__state_core *core = step->state->core;
    const uint32_t kinds = ATTN__RUNS;
    bool found;
    int32_t status;

    for (uint32_t kind = 0; kind < kinds; kind++)
        ATTN_INIT(&core->batches[(size_t)i * kinds + kind]);
    if (core->problems[i].kv_source == ATTN_KV_NEW)
        status = fill(step, i, ATTN__RUN_MAIN, &found, err);
    else
        status = fill_cached(step, i, err);
    for (uint32_t kind = 0; kind < kinds && status == ATTN_OK; kind++)
        close_run(step, i, (enum attn__run_kind)kind);
    return status;
}

/* ---------------------------------------------------------------- what layers need beside their runs */

static int32_t note_class(const struct attn__step_view *step, uint32_t i, struct attn_error *err)
{
    const struct attn__state_core *core = step->state->core;
    const bool cross = core->problems[i].type == ATTN_ENCODER_DECODER;
    struct attn__class_step *out = &core->steps[i];
    struct attn_view slots;
    const int32_t status =
        cross ? attn__step_get(step, ATTN_FIELD_CROSS_SLOT_MAPPING, 0, &slots, err)
              : attn__step_get(step, ATTN_FIELD_SLOT_MAPPING, core->classes[i].group, &slots, err);

    *out = (struct attn__class_step){.skipped = 0};
    if (status != ATTN_OK)
        return status;
    if (slots.kind == ATTN_VIEW_ARRAY) {
        out->slots = slots.device;
        out->slot_count = (uint32_t)slots.shape[0];
    }
    if (step->state->batch != 0 &&
        !cross) { /* a captured write reads the buffers, whatever metadata the step has */
        const struct attn__capture *capture = step->state->capture;
        out->slots = capture->place.device;
        out->slots.byte_offset += capture->layout.group[core->classes[i].group].slots.offset;
        out->slot_count = step->state->batch * step->state->tokens;
    }
    const struct attn_batch *main = &core->batches[(size_t)i * ATTN__RUNS];
    if (core->problems[i].kv_source != ATTN_KV_NEW && main->seqs > 0 && main->num_tokens < step->num_tokens)
        out->skipped = step->prompt_tokens;
    return ATTN_OK;
}

int32_t attn__state_batches(const struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                            int32_t *lens, struct attn_error *err)
{
    struct attn__step_view step = {.state = state, .metadata = metadata, .lens = lens};
    int32_t status = open_step(&step, err);

    for (uint32_t i = 0; i < state->core->count && status == ATTN_OK; i++) {
        status = fill_class(&step, i, err);
        if (status == ATTN_OK)
            status = note_class(&step, i, err);
    }
    return status;
}
