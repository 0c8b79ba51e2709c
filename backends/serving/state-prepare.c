/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Prepares a step of a graph: finds the clone of its size and fills that clone's capture buffers. */
#include "fail.h"
#include "state-copy.h"

/* ---------------------------------------------------------------- which state */

/*
 * Whether a clone takes a step. Builders pad decodes of one token each to its size; others have fewer
 * sequences, or query tokens, and the state pads them.
 */
static bool takes(const struct attn_state_impl *clone, const struct attn_step *step)
{
    const uint64_t tokens = clone->tokens, seqs = step->seqs;

    if (tokens == 0)
        return seqs == step->queries && seqs <= clone->batch &&
               step->num_tokens <= clone->fields.step.num_tokens;
    return step->prefill_tokens == 0 && seqs > 0 && seqs * tokens == step->decode_tokens &&
           (step->max_q == tokens || (step->max_q == 0 && tokens == 1)) &&
           (tokens == 1 ? seqs == clone->batch : seqs <= clone->batch);
}

/* Whether a step goes to clone `a` rather than to `b`, of those that take it. */
static bool is_closer(const struct attn_state_impl *a, const struct attn_state_impl *b)
{
    const uint32_t first = a->fields.step.num_tokens, second = b->fields.step.num_tokens;

    if ((a->tokens == 0) != (b->tokens == 0))
        return a->tokens != 0;
    return first != second ? first < second : a->batch < b->batch;
}

static struct attn_state_impl *find_clone(struct attn_state_impl *state, const struct attn_step *step)
{
    struct attn_state_impl *found = NULL;

    if (state->batch != 0)
        return takes(state, step) ? state : NULL;
    for (struct attn_state_impl *clone = state->clones; clone != NULL; clone = clone->next)
        if (takes(clone, step) && (found == NULL || is_closer(clone, found)))
            found = clone;
    return found;
}

static bool has_mix(const struct attn_state_impl *state)
{
    const struct attn_state_impl *clone = state->clones;

    while (clone != NULL && clone->tokens != 0)
        clone = clone->next;
    return state->batch != 0 ? state->tokens == 0 : clone != NULL;
}

static int32_t fail_size(const struct attn_state_impl *state, const struct attn_step *step,
                         struct attn_error *err)
{
    const uint32_t tokens = step->max_q > 1 ? step->max_q : 1;
    const int32_t status = state->batch == 0 ? ATTN_E_STATE : ATTN_E_INVALID;

    if (has_mix(state))
        return attn__fail(
            err, status, 0, "num_tokens",
            "the step has %u sequences, %u of them padding, and %u query tokens; no graph of any "
            "mix with room for them, which pads by itself, %s",
            step->seqs, step->seqs - step->queries, step->num_tokens,
            state->batch == 0 ? "was captured" : "is this state's");
    if (step->prefill_tokens != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "num_prefill_tokens",
                          "num_prefill_tokens is %u; a graph of decodes has none", step->prefill_tokens);
    if (state->batch != 0 && state->tokens != tokens)
        return attn__fail(err, ATTN_E_INVALID, 0, "max_query_len",
                          "a sequence has %u new tokens; the graph was captured with %u of each", tokens,
                          state->tokens);
    return attn__fail(err, status, 0, "num_decode_tokens",
                      "num_decode_tokens is %u, up to %u of a sequence; no graph of that size %s",
                      step->decode_tokens, tokens, state->batch == 0 ? "was captured" : "is this state's");
}

/* Refuses a step that the state cannot read: it has other cache groups, or no pages where kernels read them.
 */
static int32_t check_step(const struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                          struct attn_error *err)
{
    const struct attn__state_core *core = state->core;

    if (metadata->step.groups < core->params.groups)
        return attn__fail(err, ATTN_E_INVALID, 0, "groups",
                          "the step has %u cache groups; the state was made for %u", metadata->step.groups,
                          core->params.groups);
    return metadata->flavour->pages == core->flavour->pages
               ? attn__ranks_check_step(core, &metadata->step, err)
               : attn__fail(err, ATTN_E_INVALID, 0, "flavour",
                            "the step is of flavour %s; this state reads %s of flavour %s",
                            metadata->flavour->name, core->flavour->pages ? "pages" : "block tables",
                            core->flavour->name);
}

int32_t attn__state_find(struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                         struct attn_state_impl **out, struct attn_error *err)
{
    const struct attn_step *step = &metadata->step;
    const int32_t status = check_step(state, metadata, err);

    *out = state;
    if (status != ATTN_OK || (step->graph == 0 && state->batch == 0))
        return status;
    if (step->graph == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "use_cuda_graph",
                          "use_cuda_graph is 0; the state of a captured size takes steps of graphs");
    *out = find_clone(state, step);
    return *out != NULL ? ATTN_OK : fail_size(state, step, err);
}

/* ---------------------------------------------------------------- the copy */

/* Writes the image of the step and copies it to the device, unless kernels read the image itself. */
static int32_t copy_image(struct attn__step_copy *copy, struct attn_error *err)
{
    struct attn__capture *capture = copy->clone->capture;
    const struct attn_serving_host *host = &capture->core->host;
    struct attn_buffer to = capture->place.device;

    if (capture->direct) {
        copy->image = (char *)to.data + to.byte_offset;
        return attn__step_copy_run(copy, err);
    }
    int32_t status = attn__staging_take(&capture->images, host, &copy->image, err);
    if (status != ATTN_OK)
        return status;
    const uint64_t first = capture->layout.first;
    const struct attn_buffer from = {copy->image, first};
    capture->metadata = NULL;
    status = attn__step_copy_run(copy, err);
    to.byte_offset += first;
    if (status == ATTN_OK)
        status = host->memory_copy(host->backend, &to, &from, copy->end - first, ATTN_COPY_TO_DEVICE,
                                   copy->stream, err);
    return attn__staging_mark(&capture->images, host, status, copy->stream, err);
}

bool attn__capture_holds(const struct attn__capture *capture, const struct attn_metadata_impl *metadata)
{
    return capture->metadata == metadata && capture->step == metadata->step.number;
}

int32_t attn__capture_copy(const struct attn_state_impl *clone, const struct attn_metadata_impl *metadata,
                           void *stream, struct attn_error *err)
{
    struct attn__capture *capture = clone->capture;
    struct attn__step_copy copy = {
        .clone = clone, .step = &metadata->step, .on_host = true, .stream = stream};
    int32_t status = attn__step_copy_check(&copy, err);

    if (status != ATTN_OK)
        return status;
    /* Arrays of a step that was built on the device are copied one by one. */
    status = copy.on_host ? copy_image(&copy, err) : attn__step_copy_run(&copy, err);
    if (status == ATTN_E_BUSY)
        return status;
    capture->initial = false;
    capture->image = copy.image;
    capture->metadata = status == ATTN_OK ? metadata : NULL;
    capture->step = metadata->step.number;
    /* The step that was begun is over: the graph's launch overwrites its schedules. */
    clone->core->owner = NULL;
    return status;
}

int32_t attn__state_prepare(struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                            void *stream, struct attn_error *err)
{
    struct attn_state_impl *clone = NULL;
    const int32_t status = attn__state_find(state, metadata, &clone, err);

    if (status != ATTN_OK)
        return status;
    if (clone->batch == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "use_cuda_graph",
                          "use_cuda_graph is 0; there is nothing to prepare for a step without a graph");
    if (metadata == &clone->fields)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "metadata",
            "this is the metadata of a capture, which shows the buffers; a builder's is accepted");
    return attn__capture_copy(clone, metadata, stream, err);
}
