/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Capturing graphs: the buffers, the metadata of a captured size, and its clone of the state. */
#include <stdlib.h>

#include "fail.h"
#include "flashinfer.h"
#include "state.h"

void attn__capture_drop(struct attn__capture *capture)
{
    if (capture == NULL || --capture->refs > 0)
        return;
    capture->core->host.memory_free(capture->core->host.backend, &capture->place.device);
    attn__staging_finish(&capture->images, &capture->core->host);
    attn__staging_finish(&capture->staging, &capture->core->host);
    free(capture->place.host);
    free(capture->layout.group);
    free(capture->layout.lens);
    attn__core_drop(capture->core);
    free(capture);
}

static int32_t lay_out(struct attn__capture *capture, uint32_t max_batch, struct attn_error *err)
{
    struct attn__state_core *core = capture->core;
    struct attn__capture_layout *layout = &capture->layout;
    const uint32_t groups = core->params.groups;

    layout->flavour = core->flavour;
    layout->groups = groups;
    layout->max_batch = max_batch;
    layout->max_len = core->params.max_capture_len;
    layout->max_tokens = core->params.capture_tokens;
    layout->max_mixed = core->params.capture_num_tokens;
    layout->index_dtype = core->params.index_dtype;
    layout->cross_width = core->cross_width;
    layout->shard = (struct attn_cp_shard){core->cp_rank, core->cp_world, core->cp_interleave};
    layout->group = calloc(groups, sizeof *layout->group);
    layout->lens = calloc(groups, sizeof *layout->lens);
    if (layout->group == NULL || layout->lens == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "group", "no memory for %u cache groups", groups);
    for (uint32_t g = 0; g < groups; g++) {
        const struct attn_builder_group *group = &core->groups[g];
        layout->group[g].block = group->block;
        layout->group[g].width = group->graph_blocks;
        const uint64_t indices =
            group->max_indices != 0 ? group->max_indices : (uint64_t)max_batch * group->max_blocks;
        layout->group[g].max_indices =
            attn__larger(indices, max_batch); /* a capture uses one page of each sequence */
    }
    return attn__capture_layout(layout)
               ? ATTN_OK
               : attn__fail(err, ATTN_E_SIZE, 0, "max_batch",
                            "capture buffers of %u sequences do not fit 64 bits", max_batch);
}

/* Restores the first contents, with which a warm-up writes no cache and reads only pages that exist. */
static int32_t refresh(struct attn__capture *capture, void *stream, struct attn_error *err)
{
    const struct attn_serving_host *host = &capture->core->host;
    const struct attn_buffer from = {capture->place.host, 0};

    if (capture->initial)
        return ATTN_OK;
    capture->metadata = NULL;
    int32_t status = host->memory_copy(host->backend, &capture->place.device, &from, capture->layout.bytes,
                                       ATTN_COPY_TO_DEVICE, stream, err);
    if (status == ATTN_OK)
        status = host->stream_synchronize(host->backend, stream, err);
    capture->initial = status == ATTN_OK;
    return status;
}

/* Staging for the steps that are copied into the buffers, and for the plans over them. */
static int32_t make_staging(struct attn__capture *capture, struct attn_error *err)
{
    struct attn__state_core *core = capture->core;
    const uint64_t bytes = capture->layout.bytes;

    capture->direct = core->host.device_type == ATTN_DEVICE_CPU;
    int32_t status = attn__staging_init(&capture->staging, &core->host, 1, core->set->sizes.staging, err);
    if (status == ATTN_OK)
        status = attn__staging_init(&capture->images, &core->host, core->params.steps,
                                    capture->direct ? 0 : bytes, err);
    for (uint32_t i = 0; i < capture->images.count && status == ATTN_OK; i++)
        memcpy(capture->images.blocks[i].memory, capture->place.host, bytes);
    return status;
}

static int32_t make_buffers(struct attn__capture *capture, void *stream, struct attn_error *err)
{
    const uint64_t bytes = capture->layout.bytes;
    void *image = NULL;

    if (posix_memalign(&image, 64, bytes) != 0)
        return attn__fail(err, ATTN_E_MEMORY, 0, "max_batch", "no memory for %llu bytes of capture buffers",
                          (unsigned long long)bytes);
    capture->place.host = memset(image, 0, bytes);
    attn__capture_fill(&capture->layout, image);
    int32_t status =
        capture->core->host.memory_alloc(capture->core->host.backend, bytes, &capture->place.device, err);
    if (status == ATTN_OK)
        status = make_staging(capture, err);
    return status == ATTN_OK ? refresh(capture, stream, err) : status;
}

int32_t attn__state_begin_capture(struct attn_state_impl *state, uint32_t max_batch, void *stream,
                                  struct attn_error *err)
{
    if (state->batch != 0 || state->capture != NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "state", "attn_state_begin_capture: the state %s",
                          state->batch != 0 ? "is of a captured size itself" : "captures already");
    int32_t status = attn__ranks_check_capture(state->core, err);
    if (status != ATTN_OK)
        return status;
    if (state->core->params.capture_tokens > state->core->params.max_capture_len)
        return attn__fail(err, ATTN_E_INVALID, 0, "capture_tokens",
                          "capture_tokens is %u; at most max_capture_len, %u, is accepted",
                          state->core->params.capture_tokens, state->core->params.max_capture_len);
    if (max_batch == 0 || max_batch > state->core->max_seqs)
        return attn__fail(err, ATTN_E_INVALID, 0, "max_batch",
                          "max_batch is %u; 1 to %u, the largest max_seqs, are accepted", max_batch,
                          state->core->max_seqs);
    struct attn__capture *capture = calloc(1, sizeof *capture);
    if (capture == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "max_batch", "no memory for a capture");
    capture->refs = 1;
    capture->core = state->core;
    state->core->refs++;
    status = lay_out(capture, max_batch, err);
    if (status == ATTN_OK)
        status = make_buffers(capture, stream, err);
    if (status == ATTN_OK)
        state->capture = capture;
    else
        attn__capture_drop(capture);
    return status;
}

int32_t attn__state_end_capture(struct attn_state_impl *state, struct attn_error *err)
{
    if (state->batch != 0 || state->capture == NULL)
        return attn__fail(
            err, ATTN_E_STATE, 0, "state",
            "attn_state_end_capture: the state does not capture; call attn_state_begin_capture first");
    attn__state_destroy(state->pending);
    state->pending = NULL;
    attn__capture_drop(state->capture);
    state->capture = NULL;
    return ATTN_OK;
}

/* The message is vLLM's, with vLLM's names of backends. */
static int32_t check_cross(const struct attn__state_core *core, struct attn_error *err)
{
    if (!core->flavour->captures_cross)
        return attn__fail(err, ATTN_E_INVALID, 0, "encoder_decoder",
                          "Expected attn_backend name to be either 'XFORMERS' or 'FLASH_ATTN', but got '%s'",
                          core->flavour->original_name);
    return core->cross_width > 0
               ? ATTN_OK
               : attn__fail(
                     err, ATTN_E_INVALID, 0, "encoder_decoder",
                     "encoder_decoder is 1, but the state was made without a cross group; give it one");
}

/* How large the graph of a clone is. */
static void set_size(struct attn_state_impl *clone, const struct attn_state_capture_args *args)
{
    struct attn_step *step = &clone->fields.step;

    clone->batch = args->batch;
    clone->tokens = args->num_tokens != 0 ? 0 : args->tokens != 0 ? args->tokens : 1;
    step->seqs = args->batch;
    step->num_tokens = args->num_tokens != 0 ? args->num_tokens : args->batch * clone->tokens;
    step->max_q = args->num_tokens != 0 ? attn__mix_max_q(clone->core, args->num_tokens) : clone->tokens;
    step->map = &clone->no_map;
}

static int32_t make_clone(struct attn_state_impl *state, const struct attn_state_capture_args *args,
                          struct attn_state_impl **out, struct attn_error *err)
{
    struct attn__state_core *core = state->core;
    struct attn_state_impl *clone = attn__state_new(core);

    if (clone != NULL)
        clone->fields.step.group = calloc(core->params.groups, sizeof *clone->fields.step.group);
    if (clone == NULL || clone->fields.step.group == NULL) {
        attn__state_destroy(clone);
        return attn__fail(err, ATTN_E_MEMORY, 0, "batch", "no memory for a state of %u sequences",
                          args->batch);
    }
    clone->capture = state->capture;
    clone->capture->refs++;
    clone->cross = args->encoder_decoder != 0;
    clone->fields.flavour = core->flavour;
    set_size(clone, args);
    attn__capture_step(&clone->capture->layout, &clone->capture->place, &core->problems[0], clone->tokens,
                       clone->cross, &clone->fields.step);
    *out = clone;
    return core->flavour->pages ? attn__pages_make_plans(clone, err) : ATTN_OK;
}

/* Several query tokens of each sequence: where the builder takes such decodes. */
static int32_t check_tokens(const struct attn__state_core *core, const struct attn_state_capture_args *args,
                            struct attn_error *err)
{
    if (args->tokens > core->params.capture_tokens)
        return attn__fail(err, ATTN_E_INVALID, 0, "tokens",
                          "tokens is %u; 1 to %u, capture_tokens of the state, are accepted", args->tokens,
                          core->params.capture_tokens);
    if (args->tokens > 1 && !core->flavour->drafts)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "tokens",
                          "tokens is %u; a decode of the %s flavour has one token", args->tokens,
                          core->flavour->name);
    for (uint32_t i = 0; i < core->count; i++)
        if (core->problems[i].type != ATTN_ENCODER &&
            (args->tokens > core->problems[i].max_q ||
             (uint64_t)args->batch * args->tokens > core->problems[i].max_rows))
            return attn__fail(err, ATTN_E_INVALID, 0, "tokens",
                              "%u sequences of %u tokens are asked for; at most max_q=%u and max_rows=%u of "
                              "class %u are accepted",
                              args->batch, args->tokens, core->problems[i].max_q, core->problems[i].max_rows,
                              i);
    return ATTN_OK;
}

static int32_t check_capture(const struct attn_state_impl *state, const struct attn_state_capture_args *args,
                             struct attn_error *err)
{
    if (state->batch != 0 || state->capture == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "state",
                          "attn_state_get_capture_metadata: the state does not capture; call "
                          "attn_state_begin_capture first");
    if (args->batch == 0 || args->batch > state->capture->layout.max_batch)
        return attn__fail(err, ATTN_E_INVALID, 0, "batch",
                          "batch is %u; 1 to %u, the capture's, are accepted", args->batch,
                          state->capture->layout.max_batch);
    if (args->num_tokens != 0)
        return attn__mix_check_size(state->core, args, err);
    const int32_t status = check_tokens(state->core, args, err);
    return status == ATTN_OK && args->encoder_decoder != 0 ? check_cross(state->core, err) : status;
}

int32_t attn__state_capture_metadata(struct attn_state_impl *state,
                                     const struct attn_state_capture_args *args, void *stream,
                                     struct attn_metadata_impl **out, struct attn_error *err)
{
    int32_t status = check_capture(state, args, err);

    *out = NULL;
    if (status != ATTN_OK)
        return status;
    attn__state_destroy(state->pending);
    state->pending = NULL;
    struct attn_state_impl *clone = NULL;
    status = refresh(state->capture, stream, err);
    if (status == ATTN_OK)
        status = make_clone(state, args, &clone, err);
    if (status == ATTN_OK && state->core->flavour->pages)
        status = attn__state_forward(clone, &clone->fields, stream, err);
    if (status == ATTN_E_UNSUPPORTED) /* the backend plans on the host alone, when a step begins */
        status = ATTN_OK;
    if (status != ATTN_OK) {
        attn__state_destroy(clone);
        return status;
    }
    state->pending = clone;
    *out = &clone->fields;
    return ATTN_OK;
}

int32_t attn__state_clone(struct attn_state_impl *state, uint32_t batch, struct attn_state_impl **out,
                          struct attn_error *err)
{
    *out = NULL;
    if (state->batch != 0 || state->capture == NULL)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "state",
            "attn_state_clone: the state does not capture; call attn_state_begin_capture first");
    if (state->pending == NULL || state->pending->batch != batch)
        return attn__fail(
            err, ATTN_E_STATE, 0, "batch", "batch is %u; the capture metadata that was taken last %s", batch,
            state->pending == NULL ? "has its clone already, or there is none" : "is of another size");
    *out = state->pending;
    state->pending = NULL;
    (*out)->parent = state;
    (*out)->next = state->clones;
    state->clones = *out;
    return ATTN_OK;
}

/* The fields that engines fill in themselves. */
static bool is_input(const struct attn_state_impl *state, uint32_t field)
{
    if (field == ATTN_FIELD_SLOT_MAPPING || (field == ATTN_FIELD_QUERY_START_LOC && state->tokens == 0))
        return true;
    if (field == ATTN_FIELD_SEQ_LENS_TENSOR || field == ATTN_FIELD_BLOCK_TABLES)
        return !state->core->flavour->pages;
    return state->cross && (field == ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR ||
                            field == ATTN_FIELD_CROSS_SLOT_MAPPING || field == ATTN_FIELD_CROSS_BLOCK_TABLES);
}

int32_t attn__state_get_input(const struct attn_state_impl *state, uint32_t field, uint32_t index,
                              struct attn_view *out, struct attn_error *err)
{
    if (state->batch == 0)
        return attn__fail(err, ATTN_E_STATE, 0, "state",
                          "attn_state_get_input: the state is of no captured size; clones have inputs");
    const int32_t status = attn__metadata_get(&state->fields, field, index, out, err);
    if (status == ATTN_OK && !is_input(state, field)) {
        ATTN_INIT(out);
        out->kind = ATTN_VIEW_NULL;
    }
    return status;
}
