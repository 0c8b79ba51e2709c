/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fills the batch of a run from a step. */
#include "cascade.h"
#include "fail.h"
#include "flashinfer.h"
#include "state-step.h"

const void *attn__set_capture(const struct attn__step_view *view, const struct attn__capture_array *array,
                              struct attn_buffer *out)
{
    const struct attn__capture *capture = view->state->capture;
    const char *image = view->metadata == &view->state->fields ? NULL : capture->image;

    *out = capture->place.device;
    out->byte_offset += array->offset;
    return image != NULL ? image + array->offset : NULL;
}

static uint32_t longest(const int32_t *lens, uint32_t count)
{
    int32_t max = 0;

    for (uint32_t i = 0; i < count; i++)
        max = lens[i] > max ? lens[i] : max;
    return (uint32_t)max;
}

/* Sets the query tokens; a graph has as many as it was captured for. */
static void set_queries(const struct attn__step_view *view, const struct attn_problem *problem, uint32_t seqs,
                        struct attn__run *run)
{
    const struct attn_step *step = view->step;
    struct attn_batch *batch = run->batch;
    struct attn_batch_host *host = run->host;
    const uint32_t bound = problem->max_q < step->num_tokens ? problem->max_q : step->num_tokens;

    batch->seqs = seqs;
    batch->num_tokens = step->num_tokens;
    batch->max_q = step->max_q != 0 ? step->max_q : bound;
    batch->q_offsets = step->query_starts.device;
    host->q_offsets = step->query_starts.host;
    if (view->state->batch == 0)
        return;
    const struct attn_step *size = &view->state->fields.step;
    const struct attn__capture_array starts =
        attn__capture_starts(&view->state->capture->layout, view->state->tokens);
    host->q_offsets = attn__set_capture(view, &starts, &batch->q_offsets);
    batch->num_tokens = size->num_tokens;
    batch->max_q = size->max_q;
}

/* Sets the block table; false if it has no columns, because nothing is cached. */
static bool set_table(const struct attn_step_array *table, struct attn__run *run)
{
    struct attn_batch *batch = run->batch;

    if (table->dtype == 0 || table->width == 0)
        return false;
    batch->table = table->device;
    batch->table_stride = table->stride;
    batch->table_width = table->width;
    run->host->table = table->host;
    return true;
}

/* The same of a graph, whose table is in the capture buffers. */
static void set_captured_table(const struct attn__step_view *view, const struct attn__capture_array *table,
                               uint32_t width, struct attn__run *run)
{
    run->batch->table_width = width;
    run->batch->table_stride = (int64_t)view->state->capture->layout.row_stride;
    run->host->table = attn__set_capture(view, table, &run->batch->table);
}

static int32_t check_index(const struct attn_step_array *table, const char *name, struct attn_error *err)
{
    return table->dtype != ATTN_INT64 || table->width == 0
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, ATTN_REASON_INDEX, name,
                            "%s has elements of i64; a plan reads tables of i32", name);
}

/* ---------------------------------------------------------------- classes */

/* With ranks: this one, its keys, and those of all. */
static void set_ranks(const struct attn_step *step, const struct attn_step_group *from, struct attn__run *run)
{
    run->batch->cp_rank = step->cp_rank;
    run->batch->cp_world = step->cp_world;
    run->batch->cp_interleave = step->cp_interleave;
    run->batch->kv_global_lens = from->seq_lens.device;
    run->host->kv_global_lens = from->seq_lens.host;
    run->batch->kv_lens = from->rank_lens.device;
    run->host->kv_lens = from->rank_lens.host;
}

/* Self-attention over the cache of a group, or over the new tokens. */
static int32_t set_self(const struct attn__step_view *view, uint32_t i, struct attn__run *run,
                        bool *out_found, struct attn_error *err)
{
    const struct attn_state_impl *state = view->state;
    const uint32_t group = state->core->classes[i].group;
    const struct attn_step_group *from = &view->step->group[group];
    const uint32_t seqs = state->batch != 0 ? state->batch : view->step->seqs;

    *out_found = true;
    set_queries(view, &state->core->problems[i], seqs, run);
    if (run->source == ATTN_KV_NEW) /* tokens attend to the new tokens of their sequence alone */
        return ATTN_OK;
    if (state->core->flavour->pages)
        return attn__pages_batch(view, group, seqs, run, out_found, err);
    const int32_t status = check_index(&from->table, "block_tables", err);
    *out_found = status == ATTN_OK && set_table(&from->table, run);
    run->batch->kv_lens = from->seq_lens.device;
    run->host->kv_lens = from->seq_lens.host;
    if (view->step->cp_world != 0)
        set_ranks(view->step, from, run);
    if (!*out_found || state->batch == 0)
        return status;
    const struct attn__capture_layout *layout = &state->capture->layout;
    run->host->kv_lens = attn__set_capture(view, &layout->lens[group], &run->batch->kv_lens);
    if (layout->shard.world != 0) {
        run->batch->kv_global_lens = run->batch->kv_lens;
        run->host->kv_global_lens = run->host->kv_lens;
        run->host->kv_lens = attn__set_capture(view, &layout->group[group].rank_lens, &run->batch->kv_lens);
    }
    set_captured_table(view, &layout->group[group].table, layout->group[group].width, run);
    return ATTN_OK;
}

/* Encoder self-attention, over the encoder tokens of the step's prompts. */
static bool set_encoder(const struct attn_step *step, struct attn__run *run)
{
    const struct attn_step_encoder *encoder = &step->encoder;
    const int32_t *starts = encoder->seq_starts.host;

    if (step->prefills == 0 || encoder->seq_starts.dtype == 0)
        return false;
    run->batch->seqs = step->prefills;
    run->batch->num_tokens = starts != NULL ? (uint32_t)starts[step->prefills] : encoder->num_tokens;
    run->batch->max_q = encoder->max_len;
    run->batch->q_offsets = encoder->seq_starts.device;
    run->host->q_offsets = starts;
    return true;
}

/* Encoder self-attention and cross-attention, whose keys are of encoder tokens. */
static int32_t set_cross(const struct attn__step_view *view, uint32_t i, struct attn__run *run,
                         bool *out_found, struct attn_error *err)
{
    const struct attn_state_impl *state = view->state;
    const struct attn_problem *problem = &state->core->problems[i];
    const struct attn_step_encoder *encoder = &view->step->encoder;

    *out_found = encoder->seq_lens.dtype != 0;
    if (!*out_found)
        return ATTN_OK;
    run->batch->kv_lens = encoder->seq_lens.device;
    run->host->kv_lens = encoder->seq_lens.host;
    if (problem->type == ATTN_ENCODER) {
        *out_found = set_encoder(view->step, run);
        return ATTN_OK;
    }
    set_queries(view, problem, state->batch != 0 ? state->batch : view->step->seqs, run);
    const struct attn__capture_layout *layout = state->batch != 0 ? &state->capture->layout : NULL;
    if (layout != NULL)
        run->host->kv_lens = attn__set_capture(view, &layout->encoder_lens, &run->batch->kv_lens);
    if (run->source != ATTN_KV_NEW) {
        const int32_t status = check_index(&encoder->table, "cross_block_tables", err);
        *out_found = status == ATTN_OK && set_table(&encoder->table, run);
        if (*out_found && layout != NULL)
            set_captured_table(view, &layout->cross_table, layout->cross_width, run);
        return status;
    }
    *out_found = encoder->seq_starts.dtype != 0 && view->step->prefills > 0;
    run->batch->kv_offsets = encoder->seq_starts.device;
    run->host->kv_offsets = encoder->seq_starts.host;
    return ATTN_OK;
}

int32_t attn__run_fill(const struct attn__step_view *view, uint32_t layer_class, struct attn__run *run,
                       bool *out_found, struct attn_error *err)
{
    const uint32_t type = view->state->core->problems[layer_class].type;

    ATTN_INIT(run->batch);
    ATTN_INIT(run->host);
    return type == ATTN_ENCODER || type == ATTN_ENCODER_DECODER
               ? set_cross(view, layer_class, run, out_found, err)
               : set_self(view, layer_class, run, out_found, err);
}

void attn__run_finish(const struct attn__step_view *view, const struct attn_problem *problem,
                      struct attn__run *run)
{
    struct attn_batch *batch = run->batch;
    const struct attn_batch_host *host = run->host;
    const struct {
        const void *device, *host;
    } arrays[] = {
        {batch->q_offsets.data, host->q_offsets},          {batch->kv_lens.data, host->kv_lens},
        {batch->kv_offsets.data, host->kv_offsets},        {batch->table.data, host->table},
        {batch->csr_indptr.data, host->csr_indptr},        {batch->csr_indices.data, host->csr_indices},
        {batch->kv_global_lens.data, host->kv_global_lens}};
    bool all = true;

    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        all = all && (arrays[i].device == NULL || arrays[i].host != NULL);
    batch->max_kv = problem->max_kv;
    if (host->kv_lens != NULL)
        batch->max_kv = longest(host->kv_lens, batch->seqs);
    else if (batch->kv_lens.data == NULL && batch->kv_offsets.data == NULL)
        batch->max_kv = batch->max_q; /* keys are the new tokens alone */
    if (view->state->batch != 0)      /* captured arguments have to hold for every replay */
        batch->max_kv = view->state->core->params.max_capture_len < problem->max_kv
                            ? view->state->core->params.max_capture_len
                            : problem->max_kv;
    batch->given = all ? ATTN_GIVEN_HOST_COPIES : 0;
    batch->host = all ? host : NULL;
    /* What a graph replays has other pages each time. */
    batch->cascade = attn__batch_has_cascade(problem, batch, view->state->batch == 0 ? batch->host : NULL);
}
