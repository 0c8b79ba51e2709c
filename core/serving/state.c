/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* States: handles, arguments, and the calls into the backend's table. */
#include <stdlib.h>

#include "attn/parallel.h"
#include "serving/handle.h"

int32_t attn__state_begin(const struct attn_state *state, const char *what, struct attn_error *err)
{
    if (state == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "state", "%s: the handle is NULL", what);
    return attn__call_begin(state->backend, what, err);
}

int32_t attn__serving_end(struct attn_backend *backend, int32_t status, struct attn_error *own,
                          const char *what, struct attn_error *err)
{
    if (status == ATTN_OK)
        return ATTN_OK;
    if (!attn__is_status(status))
        return attn__call_end(backend, status, own, what, err);
    own->field[sizeof own->field - 1] = 0;
    own->message[sizeof own->message - 1] = 0;
    return attn__fail(err, attn__backend_result(backend, status), own->reason, own->field, "%s",
                      own->message[0] != 0 ? own->message : attn_status_text(status));
}

/*
 * Only the builder that made metadata can read its impl: the table of the state's backend must have its
 * functions.
 */
int32_t attn__state_reads(const struct attn_state *state, const struct attn_metadata *metadata,
                          struct attn_error *err)
{
    if (metadata->table->get == state->backend->entry->table.builder->get)
        return ATTN_OK;
    return attn__fail(
        err, ATTN_E_INVALID, 0, "metadata",
        "the metadata was built for %s and the state for %s; a builder of the state's backend is "
        "accepted",
        metadata->backend != NULL ? metadata->backend->entry->table.name : "no backend",
        state->backend->entry->table.name);
}

/* For calls that plugins may leave out. */
static int32_t begin(const struct attn_state *state, const char *what, bool offered, struct attn_error *err)
{
    const int32_t status = attn__state_begin(state, what, err);

    return status != ATTN_OK || offered
               ? status
               : attn__fail(err, ATTN_E_UNSUPPORTED, 0, "state", "%s: the state of %s has none", what,
                            state->backend->entry->table.name);
}

/* Whether the table behind a handle, which may be NULL, has this function. */
#define OFFERS(state, entry) ((state) != NULL && (state)->table->entry != NULL)

/* ---------------------------------------------------------------- create */

static struct attn_state *new_state(struct attn_backend *backend)
{
    struct attn_state *state = calloc(1, sizeof *state);

    if (state == NULL)
        return NULL;
    attn__backend_hold(backend);
    state->backend = backend;
    state->table = backend->entry->table.state;
    return state;
}

static void drop(struct attn_state *state)
{
    attn__backend_drop(state->backend);
    free(state->capture);
    free(state);
}

/* A plugin's own state that knows nothing of ranks would leave keys of others out. */
static int32_t check_ranks(const struct attn_backend *backend, const struct attn_state_params *params,
                           struct attn_error *err)
{
    return params->collectives == NULL || backend->entry->table.state->wait != NULL
               ? ATTN_OK
               : attn__fail(err, ATTN_E_UNSUPPORTED, 0, "collectives",
                            "collectives are given, but the state of %s has no ranks; NULL is accepted",
                            backend->entry->table.name);
}

int32_t attn_state_create(struct attn_backend *backend, const struct attn_layer_class *classes,
                          uint32_t count, const struct attn_state_params *params, struct attn_state **out,
                          struct attn_error *err)
{
    struct attn_serving_host host;
    struct attn_state_params copy;
    const void *known;

    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL");
    *out = NULL;
    int32_t status = attn__call_begin(backend, "attn_state_create", err);
    if (status == ATTN_OK)
        status = attn__serving_take(params, &copy, sizeof copy, backend->entry->table.state->params_size,
                                    "params", &known, err);
    if (status != ATTN_OK)
        return status;
    if (classes == NULL || count == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "classes",
                          "classes is %s and count %u; at least one is wanted",
                          classes == NULL ? "NULL" : "given", count);
    status = check_ranks(backend, known, err);
    if (status != ATTN_OK)
        return status;
    struct attn_state *state = new_state(backend);
    if (state == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "state", "no memory for a state");
    attn__serving_host(backend, &host);
    struct attn_error own;
    attn__error_open(&own);
    status =
        attn__serving_end(backend, state->table->create(&host, classes, count, known, &state->impl, &own),
                          &own, "state create", err);
    if (status != ATTN_OK) {
        drop(state);
        return status;
    }
    *out = state;
    return ATTN_OK;
}

void attn_state_destroy(struct attn_state *state)
{
    if (state == NULL)
        return;
    state->table->destroy(state->impl);
    drop(state);
}

/* ---------------------------------------------------------------- capture */

int32_t attn_state_begin_capture(struct attn_state *state, uint32_t max_batch, void *stream,
                                 struct attn_error *err)
{
    const int32_t status = begin(state, "attn_state_begin_capture", OFFERS(state, begin_capture), err);

    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    return attn__serving_end(state->backend,
                             state->table->begin_capture(state->impl, max_batch, stream, &own), &own,
                             "state begin_capture", err);
}

int32_t attn_state_end_capture(struct attn_state *state, struct attn_error *err)
{
    int32_t status = begin(state, "attn_state_end_capture", OFFERS(state, end_capture), err);

    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    status = attn__serving_end(state->backend, state->table->end_capture(state->impl, &own), &own,
                               "state end_capture", err);
    if (status != ATTN_OK)
        return status;
    free(state->capture);
    state->capture = NULL;
    return ATTN_OK;
}

int32_t attn_state_get_capture_metadata(struct attn_state *state, const struct attn_state_capture_args *args,
                                        void *stream, struct attn_metadata **out, struct attn_error *err)
{
    struct attn_state_capture_args copy;
    const void *known;
    int32_t status =
        begin(state, "attn_state_get_capture_metadata", OFFERS(state, get_capture_metadata), err);

    if (status == ATTN_OK && out == NULL)
        status = attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL");
    if (status != ATTN_OK)
        return status;
    *out = NULL;
    status = attn__serving_take(args, &copy, sizeof copy, state->table->capture_size, "args", &known, err);
    if (status != ATTN_OK)
        return status;
    struct attn_metadata *metadata = calloc(1, sizeof *metadata);
    if (metadata == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "metadata", "no memory for metadata");
    struct attn_error own;
    attn__error_open(&own);
    status = state->table->get_capture_metadata(state->impl, known, stream, &metadata->impl, &own);
    status = attn__serving_end(state->backend, status, &own, "state get_capture_metadata", err);
    if (status != ATTN_OK) {
        free(metadata);
        return status;
    }
    metadata->table = state->backend->entry->table.builder;
    metadata->backend = state->backend;
    metadata->born = state->backend->born;
    free(state->capture);
    state->capture = metadata;
    *out = metadata;
    return ATTN_OK;
}

int32_t attn_state_clone(struct attn_state *state, uint32_t batch, struct attn_state **out,
                         struct attn_error *err)
{
    int32_t status = begin(state, "attn_state_clone", OFFERS(state, clone), err);

    if (status != ATTN_OK)
        return status;
    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL");
    *out = NULL;
    struct attn_state *clone = new_state(state->backend);
    if (clone == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "batch", "no memory for a state of %u sequences", batch);
    struct attn_error own;
    attn__error_open(&own);
    status = attn__serving_end(state->backend, state->table->clone(state->impl, batch, &clone->impl, &own),
                               &own, "state clone", err);
    if (status != ATTN_OK) {
        drop(clone);
        return status;
    }
    clone->capture = state->capture;
    state->capture = NULL;
    *out = clone;
    return ATTN_OK;
}

int32_t attn_state_get_input(const struct attn_state *state, uint32_t field, uint32_t index,
                             struct attn_view *out, struct attn_error *err)
{
    struct attn_view view;
    int32_t status = begin(state, "attn_state_get_input", OFFERS(state, get_input), err);

    if (status == ATTN_OK)
        status = attn__answer_begin(out, sizeof view, "out", err);
    if (status != ATTN_OK)
        return status;
    ATTN_INIT(&view);
    struct attn_error own;
    attn__error_open(&own);
    status = state->table->get_input(state->impl, field, index, &view, &own);
    status = attn__serving_end(state->backend, status, &own, "state get_input", err);
    return status == ATTN_OK ? attn__answer(out, &view, sizeof view, "out", err) : status;
}

/* ---------------------------------------------------------------- steps */

int32_t attn_state_prepare(struct attn_state *state, const struct attn_metadata *metadata, void *stream,
                           struct attn_error *err)
{
    int32_t status = begin(state, "attn_state_prepare", OFFERS(state, prepare), err);

    if (status == ATTN_OK)
        status = attn__metadata_begin(metadata, "attn_state_prepare", err);
    if (status == ATTN_OK)
        status = attn__state_reads(state, metadata, err);
    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    return attn__serving_end(state->backend, state->table->prepare(state->impl, metadata->impl, stream, &own),
                             &own, "state prepare", err);
}

int32_t attn_state_begin_forward(struct attn_state *state, const struct attn_metadata *metadata, void *stream,
                                 struct attn_error *err)
{
    int32_t status = attn__state_begin(state, "attn_state_begin_forward", err);

    if (status == ATTN_OK)
        status = attn__metadata_begin(metadata, "attn_state_begin_forward", err);
    if (status == ATTN_OK)
        status = attn__state_reads(state, metadata, err);
    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    return attn__serving_end(state->backend,
                             state->table->begin_forward(state->impl, metadata->impl, stream, &own), &own,
                             "state begin_forward", err);
}

int32_t attn_state_get_step(const struct attn_state *state, uint32_t layer_class, struct attn_state_step *out,
                            struct attn_error *err)
{
    struct attn_state_step step;
    int32_t status = begin(state, "attn_state_get_step", OFFERS(state, get_step), err);

    if (status == ATTN_OK)
        status = attn__answer_begin(out, sizeof step, "out", err);
    if (status != ATTN_OK)
        return status;
    ATTN_INIT(&step);
    struct attn_error own;
    attn__error_open(&own);
    status = state->table->get_step(state->impl, layer_class, &step, &own);
    status = attn__serving_end(state->backend, status, &own, "state get_step", err);
    return status == ATTN_OK ? attn__answer(out, &step, sizeof step, "out", err) : status;
}

int32_t attn_state_wait(struct attn_state *state, void *stream, struct attn_error *err)
{
    const int32_t status = begin(state, "attn_state_wait", OFFERS(state, wait), err);

    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    return attn__serving_end(state->backend, state->table->wait(state->impl, stream, &own), &own,
                             "state wait", err);
}
