/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fills the batch of a run from the metadata of a step. */
#include "fail.h"
#include "state-step.h"

int32_t attn__step_number(const struct attn__step_view *step, uint32_t field, uint32_t index, int64_t *out,
                          struct attn_error *err)
{
    struct attn_view view;
    const int32_t status = attn__step_get(step, field, index, &view, err);

    *out = status == ATTN_OK && view.kind == ATTN_VIEW_NUMBER ? view.value : 0;
    return status;
}

int32_t attn__step_tokens(const struct attn__step_view *step, uint32_t *out, struct attn_error *err)
{
    int64_t all, decodes = 0;
    int32_t status = attn__step_number(step, ATTN_FIELD_MAX_QUERY_LEN, 0, &all, err);

    if (status == ATTN_OK)
        status = attn__step_number(step, ATTN_FIELD_DECODE_QUERY_LEN, 0, &decodes, err);
    all = all > decodes ? all : decodes;
    *out = status == ATTN_OK && all > 1 ? (uint32_t)all : 1;
    return status;
}

/* ---------------------------------------------------------------- members of a batch */

/* Points a member at an array of the capture buffers; returns its host copy, or NULL if the host has none. */
static const void *set_capture(const struct attn__step_view *step, const struct attn__capture_array *array,
                               struct attn_buffer *out)
{
    const struct attn__capture *capture = step->state->capture;
    const char *image = step->metadata == &step->state->fields ? NULL : capture->image;

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

/* The largest number of query tokens of a sequence, for flavours whose metadata does not tell. */
static uint32_t widest(const int32_t *starts, uint32_t count)
{
    int32_t max = 0;

    for (uint32_t i = 0; i < count; i++)
        max = starts[i + 1] - starts[i] > max ? starts[i + 1] - starts[i] : max;
    return (uint32_t)max;
}

/* Sets the query tokens; a graph has as many of each sequence as it was captured for. */
static void set_queries(const struct attn__step_view *step, const struct attn_problem *problem, uint32_t seqs,
                        struct attn__run *run)
{
    struct attn_batch *batch = run->batch;
    struct attn_batch_host *host = run->host;
    const uint32_t bound = problem->max_q < step->num_tokens ? problem->max_q : step->num_tokens;

    batch->seqs = seqs;
    batch->num_tokens = step->num_tokens;
    batch->max_q = step->max_q != 0 ? step->max_q : bound;
    batch->q_offsets = step->starts.device;
    host->q_offsets = step->starts.host;
    if (step->state->batch == 0)
        return;
    const uint32_t tokens = step->state->tokens;
    const struct attn__capture_array starts = attn__capture_starts(&step->state->capture->layout, tokens);
    host->q_offsets = set_capture(step, &starts, &batch->q_offsets);
    batch->num_tokens = seqs * tokens;
    batch->max_q = tokens;
}

/* Sets the block table; *out_found is false if it has no columns, because nothing is cached. */
static int32_t set_table(const struct attn__step_view *step, uint32_t field, uint32_t group,
                         struct attn__run *run, bool *out_found, struct attn_error *err)
{
    struct attn_view table;
    const int32_t status = attn__step_get(step, field, group, &table, err);

    *out_found = false;
    if (status != ATTN_OK || table.kind != ATTN_VIEW_ARRAY || table.shape[1] == 0)
        return status;
    if (table.dtype != ATTN_INT32)
        return attn__fail(err, ATTN_E_INVALID, ATTN_REASON_INDEX, attn__field_name(field),
                          "%s has elements of i64; a plan reads tables of i32", attn__field_name(field));
    struct attn_batch *batch = run->batch;
    *out_found = true;
    batch->table = table.device;
    batch->table_stride = table.stride;
    batch->table_width = (uint32_t)table.shape[1];
    run->host->table = table.host;
    if (step->state->batch == 0)
        return ATTN_OK;
    const struct attn__capture_layout *layout = &step->state->capture->layout;
    const bool cross = field == ATTN_FIELD_CROSS_BLOCK_TABLES;
    batch->table_width = cross ? layout->cross_width : layout->group[group].width;
    batch->table_stride = (int64_t)layout->row_stride;
    run->host->table =
        set_capture(step, cross ? &layout->cross_table : &layout->group[group].table, &batch->table);
    return ATTN_OK;
}

/* ---------------------------------------------------------------- classes */

/* FlashInfer in a graph reads all arrays from the capture buffers. */
static void set_captured_pages(const struct attn__step_view *step, uint32_t group, struct attn__run *run)
{
    const struct attn__capture_layout *layout = &step->state->capture->layout;
    const struct attn__capture_group *buffers = &layout->group[group];
    struct attn_batch *batch = run->batch;
    struct attn_batch_host *host = run->host;

    host->kv_lens = set_capture(step, &layout->lens[group], &batch->kv_lens);
    host->csr_indptr = set_capture(step, &buffers->indptr, &batch->csr_indptr);
    host->csr_indices = set_capture(step, &layout->indices, &batch->csr_indices);
    host->last_page_lens = set_capture(step, &buffers->last_page_lens, &batch->last_page_lens);
}

int32_t attn__fail_padding(struct attn_error *err)
{
    return attn__fail(
        err, ATTN_E_UNSUPPORTED, ATTN_REASON_KV_SOURCE, "kv_source",
        "padding of a FlashInfer step has no keys, and kv_source=cache+new reads one of each sequence; "
        "kv_source=cache is accepted");
}

/* Of a step that the host does not know, the builder was given the lengths with the pages. */
static int32_t set_device_lens(const struct attn__step_view *step, uint32_t group, struct attn_batch *batch,
                               struct attn_error *err)
{
    struct attn_view lens;
    const int32_t status = attn__step_get(step, ATTN_FIELD_SEQ_LENS_TENSOR, group, &lens, err);

    batch->kv_lens = lens.device;
    return status;
}

/* FlashInfer: computes sequence lengths from the pages. */
static int32_t set_pages(const struct attn__step_view *step, uint32_t group, uint32_t seqs,
                         struct attn__run *run, bool *out_found, struct attn_error *err)
{
    const struct attn__state_core *core = step->state->core;
    const int32_t block = (int32_t)core->groups[group].block;
    struct attn_batch *batch = run->batch;
    struct attn_batch_host *host = run->host;
    struct attn_view indptr, indices, last;
    int32_t status = attn__step_get(step, ATTN_FIELD_PAGED_KV_INDPTR, group, &indptr, err);

    if (status == ATTN_OK)
        status = attn__step_get(step, ATTN_FIELD_PAGED_KV_INDICES, group, &indices, err);
    if (status == ATTN_OK)
        status = attn__step_get(step, ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN, group, &last, err);
    *out_found = status == ATTN_OK && indptr.kind != ATTN_VIEW_NULL && indptr.shape[0] > 1;
    if (!*out_found)
        return status;
    if (step->state->batch != 0) {
        set_captured_pages(step, group, run);
        return ATTN_OK;
    }
    if (seqs > core->max_seqs)
        return attn__fail(err, ATTN_E_INVALID, ATTN_REASON_MAX_SEQS, "seqs",
                          "the step has %u sequences; the largest max_seqs of the classes is %u", seqs,
                          core->max_seqs);
    if (indptr.shape[0] != (uint64_t)seqs + 1 || last.shape[0] != seqs)
        return attn__fail(err, ATTN_E_INVALID, 0, "paged_kv_indptr",
                          "paged_kv_indptr has %llu elements; %u sequences want %u",
                          (unsigned long long)indptr.shape[0], seqs, seqs + 1);
    batch->csr_indptr = indptr.device;
    batch->csr_indices = indices.device;
    batch->last_page_lens = last.device;
    if (indptr.host == NULL || last.host == NULL)
        return set_device_lens(step, group, batch, err);
    const int32_t *starts = indptr.host, *lasts = last.host;
    int32_t *lens = step->lens + (size_t)group * core->max_seqs;
    for (uint32_t i = 0; i < seqs; i++) {
        lens[i] = starts[i + 1] > starts[i] ? (starts[i + 1] - starts[i] - 1) * block + lasts[i] : 0;
        if (lens[i] == 0 && run->source == ATTN_KV_CACHE_NEW)
            return attn__fail_padding(err);
    }
    batch->kv_lens = core->lens.buffer;
    batch->kv_lens.byte_offset += (uint64_t)group * core->max_seqs * 4;
    host->kv_lens = lens;
    host->csr_indptr = indptr.host;
    host->csr_indices = indices.host;
    host->last_page_lens = last.host;
    return ATTN_OK;
}

/* Self-attention over the cache of a group, or over the new tokens. */
static int32_t set_self(const struct attn__step_view *step, uint32_t i, struct attn__run *run,
                        bool *out_found, struct attn_error *err)
{
    const struct attn_state_impl *state = step->state;
    const uint32_t group = state->core->classes[i].group;
    struct attn_batch *batch = run->batch;
    struct attn_view lens;
    int32_t status = attn__step_get(step, ATTN_FIELD_SEQ_LENS_TENSOR, group, &lens, err);

    *out_found = status == ATTN_OK;
    if (status != ATTN_OK)
        return status;
    const uint32_t seqs = state->batch != 0 ? state->batch : (uint32_t)lens.shape[0];
    if (state->batch != 0 && lens.kind != ATTN_VIEW_NULL &&
        (lens.shape[0] > seqs || (state->tokens == 1 && lens.shape[0] != seqs)))
        return attn__fail(err, ATTN_E_INVALID, 0, "seq_lens_tensor",
                          "the step has %llu sequences; the graph was captured for %u",
                          (unsigned long long)lens.shape[0], seqs);
    set_queries(step, &state->core->problems[i], seqs, run);
    if (state->core->infer && run->source != ATTN_KV_NEW)
        return set_pages(step, group, seqs, run, out_found, err);
    batch->kv_lens = lens.device;
    run->host->kv_lens = lens.host;
    if (state->batch != 0 && !state->core->infer)
        run->host->kv_lens = set_capture(step, &state->capture->layout.lens[group], &batch->kv_lens);
    if (run->source != ATTN_KV_NEW)
        return set_table(step, ATTN_FIELD_BLOCK_TABLES, group, run, out_found, err);
    /* This run reads no cache: tokens attend to the new tokens of their sequence alone. */
    batch->kv_lens = (struct attn_buffer){NULL, 0};
    run->host->kv_lens = NULL;
    return ATTN_OK;
}

/* Encoder self-attention, over the encoder tokens of the step's prompts. */
static int32_t set_encoder(const struct attn__step_view *step, uint32_t max_q, struct attn__run *run,
                           bool *out_found, struct attn_error *err)
{
    struct attn_view starts;
    int64_t tokens;
    int32_t status = attn__step_get(step, ATTN_FIELD_ENCODER_SEQ_START_LOC, 0, &starts, err);

    if (status == ATTN_OK)
        status = attn__step_number(step, ATTN_FIELD_NUM_ENCODER_TOKENS, 0, &tokens, err);
    *out_found = status == ATTN_OK && step->prefills > 0 && starts.kind != ATTN_VIEW_NULL;
    if (!*out_found)
        return status;
    const int32_t *host = starts.host;
    run->batch->seqs = step->prefills;
    run->batch->num_tokens = host != NULL ? (uint32_t)host[step->prefills] : (uint32_t)tokens;
    run->batch->max_q = max_q;
    run->batch->q_offsets = starts.device;
    run->host->q_offsets = host;
    return ATTN_OK;
}

/* Encoder self-attention and cross-attention, whose keys are of encoder tokens. */
static int32_t set_cross(const struct attn__step_view *step, uint32_t i, struct attn__run *run,
                         bool *out_found, struct attn_error *err)
{
    const struct attn_state_impl *state = step->state;
    const struct attn_problem *problem = &state->core->problems[i];
    struct attn_batch *batch = run->batch;
    struct attn_view lens, starts;
    int64_t max_q;
    int32_t status = attn__step_get(step, ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR, 0, &lens, err);

    if (status == ATTN_OK)
        status = attn__step_number(step, ATTN_FIELD_MAX_ENCODER_SEQ_LEN, 0, &max_q, err);
    *out_found = status == ATTN_OK && lens.kind != ATTN_VIEW_NULL;
    if (!*out_found)
        return status;
    batch->kv_lens = lens.device;
    run->host->kv_lens = lens.host;
    if (problem->type == ATTN_ENCODER)
        return set_encoder(step, (uint32_t)max_q, run, out_found, err);
    set_queries(step, problem, (uint32_t)lens.shape[0], run);
    if (state->batch != 0)
        run->host->kv_lens = set_capture(step, &state->capture->layout.encoder_lens, &batch->kv_lens);
    if (run->source != ATTN_KV_NEW)
        return set_table(step, ATTN_FIELD_CROSS_BLOCK_TABLES, 0, run, out_found, err);
    status = attn__step_get(step, ATTN_FIELD_ENCODER_SEQ_START_LOC, 0, &starts, err);
    *out_found = status == ATTN_OK && starts.kind != ATTN_VIEW_NULL && step->prefills > 0;
    batch->kv_offsets = starts.device;
    run->host->kv_offsets = starts.host;
    return status;
}

int32_t attn__run_fill(const struct attn__step_view *step, uint32_t layer_class, struct attn__run *run,
                       bool *out_found, struct attn_error *err)
{
    const uint32_t type = step->state->core->problems[layer_class].type;

    ATTN_INIT(run->batch);
    ATTN_INIT(run->host);
    return type == ATTN_ENCODER || type == ATTN_ENCODER_DECODER
               ? set_cross(step, layer_class, run, out_found, err)
               : set_self(step, layer_class, run, out_found, err);
}

void attn__run_finish(const struct attn__step_view *step, const struct attn_problem *problem,
                      struct attn__run *run)
{
    struct attn_batch *batch = run->batch;
    const struct attn_batch_host *host = run->host;
    const struct {
        const void *device, *host;
    } arrays[] = {{batch->q_offsets.data, host->q_offsets},   {batch->kv_lens.data, host->kv_lens},
                  {batch->kv_offsets.data, host->kv_offsets}, {batch->table.data, host->table},
                  {batch->csr_indptr.data, host->csr_indptr}, {batch->csr_indices.data, host->csr_indices}};
    bool all = true;

    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        all = all && (arrays[i].device == NULL || arrays[i].host != NULL);
    if (step->max_q == 0 && host->q_offsets != NULL)
        batch->max_q = widest(host->q_offsets, batch->seqs);
    batch->max_kv = problem->max_kv;
    if (host->kv_lens != NULL)
        batch->max_kv = longest(host->kv_lens, batch->seqs);
    else if (batch->kv_lens.data == NULL && batch->kv_offsets.data == NULL)
        batch->max_kv = batch->max_q; /* keys are the new tokens alone */
    if (step->state->batch != 0)      /* captured arguments have to hold for every replay */
        batch->max_kv = step->state->core->params.max_capture_len < problem->max_kv
                            ? step->state->core->params.max_capture_len
                            : problem->max_kv;
    batch->given = all ? ATTN_GIVEN_HOST_COPIES : 0;
    batch->host = all ? host : NULL;
}
