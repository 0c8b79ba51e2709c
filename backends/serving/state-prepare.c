/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Prepares a step of a graph: finds the clone of its size and fills that clone's capture buffers. */
#include "fail.h"
#include "state-copy.h"

/* ---------------------------------------------------------------- which state */

static struct attn_state_impl *find_clone(struct attn_state_impl *state, uint64_t batch)
{
    for (struct attn_state_impl *clone = state->clones; clone != NULL; clone = clone->next)
        if (clone->batch == batch)
            return clone;
    return NULL;
}

int32_t attn__state_find(struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                         struct attn_state_impl **out, struct attn_error *err)
{
    const struct attn__step_view step = {.state = state, .metadata = metadata};
    int64_t graph, prompts, decodes;
    int32_t status = attn__step_number(&step, ATTN_FIELD_USE_CUDA_GRAPH, 0, &graph, err);

    *out = state;
    if (status == ATTN_OK)
        status = attn__step_number(&step, ATTN_FIELD_NUM_PREFILL_TOKENS, 0, &prompts, err);
    if (status == ATTN_OK)
        status = attn__step_number(&step, ATTN_FIELD_NUM_DECODE_TOKENS, 0, &decodes, err);
    if (status != ATTN_OK || (graph == 0 && state->batch == 0))
        return status;
    if (graph == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "use_cuda_graph",
                          "use_cuda_graph is 0; the state of a captured size takes steps of graphs");
    if (prompts != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "num_prefill_tokens",
                          "num_prefill_tokens is %lld; a graph of one token each has none",
                          (long long)prompts);
    if (state->batch == 0)
        *out = find_clone(state, (uint64_t)decodes);
    if (*out == NULL || (*out)->batch != (uint64_t)decodes)
        return attn__fail(err, *out == NULL ? ATTN_E_STATE : ATTN_E_INVALID, 0, "num_decode_tokens",
                          "num_decode_tokens is %lld; no graph of that size %s", (long long)decodes,
                          *out == NULL ? "was captured" : "is this state's");
    return ATTN_OK;
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

/* Graphs are captured with one query token of each sequence. */
static int32_t check_queries(const struct attn__step_view *step, struct attn_error *err)
{
    int64_t all, decodes = 0;
    int32_t status = attn__step_number(step, ATTN_FIELD_MAX_QUERY_LEN, 0, &all, err);

    if (status == ATTN_OK)
        status = attn__step_number(step, ATTN_FIELD_DECODE_QUERY_LEN, 0, &decodes, err);
    if (status != ATTN_OK)
        return status;
    all = all > decodes ? all : decodes;
    return all <= 1 ? ATTN_OK
                    : attn__fail(err, ATTN_E_INVALID, 0, "max_query_len",
                                 "a sequence has %lld new tokens; graphs are captured with one of each",
                                 (long long)all);
}

bool attn__capture_holds(const struct attn__capture *capture, const struct attn_metadata_impl *metadata)
{
    return capture->metadata == metadata && capture->step == metadata->step;
}

int32_t attn__capture_copy(const struct attn_state_impl *clone, const struct attn_metadata_impl *metadata,
                           void *stream, struct attn_error *err)
{
    struct attn__capture *capture = clone->capture;
    struct attn__step_copy copy = {
        .clone = clone, .step = {.state = clone, .metadata = metadata}, .on_host = true, .stream = stream};
    int32_t status = check_queries(&copy.step, err);

    if (status == ATTN_OK)
        status = attn__step_copy_check(&copy, err);

    if (status != ATTN_OK)
        return status;
    /* Arrays of a step that was built on the device are copied one by one. */
    status = copy.on_host ? copy_image(&copy, err) : attn__step_copy_run(&copy, err);
    if (status == ATTN_E_BUSY)
        return status;
    capture->initial = false;
    capture->image = copy.image;
    capture->metadata = status == ATTN_OK ? metadata : NULL;
    capture->step = metadata->step;
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
