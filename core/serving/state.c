/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* States and the clones that graphs are captured with: handles, lifetimes, and which calls may follow which.
 */
#include <stdlib.h>

#include "attn/device.h"
#include "builder-table.h"
#include "dispatch/call.h"
#include "serving/state.h"

int32_t attn__state_begin(const struct attn_state *state, const char *what, struct attn_error *err)
{
    if (state == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "state", "%s: the handle is NULL", what);
    return attn__call_begin(state->core->backend, what, err);
}

static struct attn_state *new_state(struct attn__state_core *core)
{
    struct attn_state *state = calloc(1, sizeof *state);

    if (state == NULL)
        return NULL;
    state->core = core;
    state->set = core->set;
    core->refs++;
    return state;
}

static void drop_capture(struct attn__capture *capture)
{
    if (capture == NULL || --capture->refs > 0)
        return;
    attn_memory_free(capture->core->backend, &capture->place.device);
    attn__staging_finish(&capture->images, capture->core->backend);
    attn__staging_finish(&capture->staging, capture->core->backend);
    free(capture->place.host);
    free(capture->layout.group);
    free(capture->layout.lens);
    attn__core_drop(capture->core);
    free(capture);
}

/* Clones outlive their state, but are not found by size any more. */
static void unlink_state(struct attn_state *state)
{
    for (struct attn_state *clone = state->clones; clone != NULL; clone = clone->next)
        clone->parent = NULL;
    if (state->parent == NULL)
        return;
    for (struct attn_state **at = &state->parent->clones; *at != NULL; at = &(*at)->next) {
        if (*at != state)
            continue;
        *at = state->next;
        return;
    }
}

void attn_state_destroy(struct attn_state *state)
{
    if (state == NULL)
        return;
    attn_state_destroy(state->pending);
    unlink_state(state);
    if (state->core->owner == state)
        state->core->owner = NULL;
    if (state->batch != 0 && state->set != state->core->set)
        attn__set_destroy(state->core, state->set);
    drop_capture(state->capture);
    free(state->fields.views);
    attn__core_drop(state->core);
    free(state);
}

/* ---------------------------------------------------------------- create */

static uint32_t flavour_of(const struct attn_backend *backend)
{
    for (uint32_t i = ATTN_FLASH_ATTN; attn_flavour_name(i) != NULL; i++)
        if (attn__same_name(backend->entry->flavour, attn_flavour_name(i)))
            return i;
    return 0;
}

int32_t attn_state_create(struct attn_backend *backend, const struct attn_layer_class *classes,
                          uint32_t count, const struct attn_state_params *params, struct attn_state **out,
                          struct attn_error *err)
{
    struct attn_state_params own;
    struct attn__state_core *core = NULL;

    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL");
    *out = NULL;
    int32_t status = attn__call_begin(backend, "attn_state_create", err);
    if (status == ATTN_OK)
        status = attn__take(&own, sizeof own, params, sizeof own, "params", err);
    if (status != ATTN_OK)
        return status;
    if (classes == NULL || count == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "classes",
                          "classes is %s and count %u; at least one is wanted",
                          classes == NULL ? "NULL" : "given", count);
    own.flavour = own.flavour != 0 ? own.flavour : flavour_of(backend);
    if (own.flavour == 0 || attn_flavour_name(own.flavour) == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "flavour",
                          "flavour is %u; enum attn_flavour is accepted, and %s does not tell one",
                          own.flavour, backend->entry->table.name);
    if (own.index_dtype != 0 && own.index_dtype != ATTN_INT32 && own.index_dtype != ATTN_INT64)
        return attn__fail(err, ATTN_E_INVALID, 0, "index_dtype",
                          "index_dtype is 0x%x; ATTN_INT32 and ATTN_INT64 are accepted", own.index_dtype);
    status = attn__core_create(backend, classes, count, &own, &core, err);
    if (status != ATTN_OK)
        return status;
    *out = new_state(core);
    attn__core_drop(core);
    return *out != NULL ? ATTN_OK : attn__fail(err, ATTN_E_MEMORY, 0, "state", "no memory for a state");
}

/* ---------------------------------------------------------------- capture */

static int32_t lay_out(struct attn__capture *capture, uint32_t max_batch, struct attn_error *err)
{
    struct attn__state_core *core = capture->core;
    struct attn__capture_layout *layout = &capture->layout;
    const uint32_t groups = core->params.groups;

    layout->flavour = core->params.flavour;
    layout->groups = groups;
    layout->max_batch = max_batch;
    layout->max_len = core->params.max_capture_len;
    layout->index_dtype = core->params.index_dtype;
    layout->cross_width = core->cross_width;
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
    struct attn_backend *backend = capture->core->backend;
    const struct attn_buffer from = {capture->place.host, 0};

    if (capture->initial)
        return ATTN_OK;
    capture->metadata = NULL;
    int32_t status = attn_memory_copy(backend, &capture->place.device, &from, capture->layout.bytes,
                                      ATTN_COPY_TO_DEVICE, stream, err);
    if (status == ATTN_OK)
        status = attn_stream_synchronize(backend, stream, err);
    capture->initial = status == ATTN_OK;
    return status;
}

/* Staging for the steps that are copied into the buffers, and for the plans over them. */
static int32_t make_staging(struct attn__capture *capture, struct attn_error *err)
{
    struct attn__state_core *core = capture->core;
    const uint64_t bytes = capture->layout.bytes;

    capture->direct = core->backend->device.type == ATTN_DEVICE_CPU;
    int32_t status = attn__staging_init(&capture->staging, core->backend, 1, core->set->sizes.staging, err);
    if (status == ATTN_OK)
        status = attn__staging_init(&capture->images, core->backend, core->params.steps,
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
    int32_t status = attn_memory_alloc(capture->core->backend, bytes, &capture->place.device, err);
    if (status == ATTN_OK)
        status = make_staging(capture, err);
    return status == ATTN_OK ? refresh(capture, stream, err) : status;
}

int32_t attn_state_begin_capture(struct attn_state *state, uint32_t max_batch, void *stream,
                                 struct attn_error *err)
{
    int32_t status = attn__state_begin(state, "attn_state_begin_capture", err);

    if (status != ATTN_OK)
        return status;
    if (state->batch != 0 || state->capture != NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "state", "attn_state_begin_capture: the state %s",
                          state->batch != 0 ? "is of a captured size itself" : "captures already");
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
        drop_capture(capture);
    return status;
}

int32_t attn_state_end_capture(struct attn_state *state, struct attn_error *err)
{
    const int32_t status = attn__state_begin(state, "attn_state_end_capture", err);

    if (status != ATTN_OK)
        return status;
    if (state->batch != 0 || state->capture == NULL)
        return attn__fail(
            err, ATTN_E_STATE, 0, "state",
            "attn_state_end_capture: the state does not capture; call attn_state_begin_capture first");
    attn_state_destroy(state->pending);
    state->pending = NULL;
    drop_capture(state->capture);
    state->capture = NULL;
    return ATTN_OK;
}

/* The message is vLLM's, with vLLM's names of backends. */
static int32_t check_cross(const struct attn__state_core *core, struct attn_error *err)
{
    static const char *const names[] = {"", "FLASH_ATTN", "FLASHINFER", "ROCM_FLASH", "XFORMERS"};

    if (core->params.flavour != ATTN_FLASH_ATTN && core->params.flavour != ATTN_XFORMERS)
        return attn__fail(err, ATTN_E_INVALID, 0, "encoder_decoder",
                          "Expected attn_backend name to be either 'XFORMERS' or 'FLASH_ATTN', but got '%s'",
                          names[core->params.flavour]);
    return core->cross_width > 0
               ? ATTN_OK
               : attn__fail(
                     err, ATTN_E_INVALID, 0, "encoder_decoder",
                     "encoder_decoder is 1, but the state was made without a cross group; give it one");
}

static int32_t make_clone(struct attn_state *state, const struct attn_state_capture_args *args,
                          struct attn_state **out, struct attn_error *err)
{
    struct attn__state_core *core = state->core;
    struct attn_state *clone = new_state(core);

    if (clone != NULL)
        clone->fields.views = calloc((size_t)core->params.groups * ATTN_FIELDS, sizeof *clone->fields.views);
    if (clone == NULL || clone->fields.views == NULL) {
        attn_state_destroy(clone);
        return attn__fail(err, ATTN_E_MEMORY, 0, "batch", "no memory for a state of %u sequences",
                          args->batch);
    }
    clone->capture = state->capture;
    clone->capture->refs++;
    clone->batch = args->batch;
    clone->cross = args->encoder_decoder != 0;
    attn__capture_fields(&clone->capture->layout, &clone->capture->place, &core->problems[0], clone->batch,
                         clone->cross, &clone->fields);
    clone->capture_builder.born = core->backend->born;
    clone->capture_builder.backend = core->backend;
    clone->capture_builder.table = &attn__common_builder;
    clone->capture_builder.whole.builder = &clone->capture_builder;
    clone->capture_builder.whole.impl = &clone->fields;
    *out = clone;
    if (!core->infer)
        return ATTN_OK;
    const int32_t status = attn__set_create(core, clone->batch, &clone->set, err);
    if (status != ATTN_OK)
        return status;
    const struct attn_plan_sizes *own = &clone->set->sizes, *all = &core->set->sizes;
    if (own->scratch > all->scratch || own->counters > all->counters || own->staging > all->staging)
        return attn__fail(err, ATTN_E_PLUGIN, 0, "batch",
                          "%s: a plan for %u sequences asks for more memory than one for the maxima",
                          core->backend->entry->table.name, clone->batch);
    return ATTN_OK;
}

int32_t attn_state_get_capture_metadata(struct attn_state *state, const struct attn_state_capture_args *args,
                                        void *stream, struct attn_metadata **out, struct attn_error *err)
{
    struct attn_state_capture_args own;
    int32_t status = attn__state_begin(state, "attn_state_get_capture_metadata", err);

    if (status == ATTN_OK && out == NULL)
        status = attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL");
    if (status != ATTN_OK)
        return status;
    *out = NULL;
    if (state->batch != 0 || state->capture == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "state",
                          "attn_state_get_capture_metadata: the state does not capture; call "
                          "attn_state_begin_capture first");
    status = attn__take(&own, sizeof own, args, sizeof own, "args", err);
    if (status == ATTN_OK && (own.batch == 0 || own.batch > state->capture->layout.max_batch))
        status =
            attn__fail(err, ATTN_E_INVALID, 0, "batch", "batch is %u; 1 to %u, the capture's, are accepted",
                       own.batch, state->capture->layout.max_batch);
    if (status == ATTN_OK && own.encoder_decoder != 0)
        status = check_cross(state->core, err);
    if (status != ATTN_OK)
        return status;
    attn_state_destroy(state->pending);
    state->pending = NULL;
    struct attn_state *clone = NULL;
    status = refresh(state->capture, stream, err);
    if (status == ATTN_OK)
        status = make_clone(state, &own, &clone, err);
    if (status == ATTN_OK && state->core->infer)
        status = attn__state_forward(clone, &clone->capture_builder.whole, stream, err);
    if (status == ATTN_E_UNSUPPORTED) /* the backend plans on the host alone, once there is a step */
        status = ATTN_OK;
    if (status != ATTN_OK) {
        attn_state_destroy(clone);
        return status;
    }
    state->pending = clone;
    *out = &clone->capture_builder.whole;
    return ATTN_OK;
}

int32_t attn_state_clone(struct attn_state *state, uint32_t batch, struct attn_state **out,
                         struct attn_error *err)
{
    const int32_t status = attn__state_begin(state, "attn_state_clone", err);

    if (status != ATTN_OK)
        return status;
    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL");
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
static bool is_input(const struct attn_state *state, uint32_t field)
{
    if (field == ATTN_FIELD_SLOT_MAPPING)
        return true;
    if (field == ATTN_FIELD_SEQ_LENS_TENSOR || field == ATTN_FIELD_BLOCK_TABLES)
        return !state->core->infer;
    return state->cross && (field == ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR ||
                            field == ATTN_FIELD_CROSS_SLOT_MAPPING || field == ATTN_FIELD_CROSS_BLOCK_TABLES);
}

int32_t attn_state_get_input(const struct attn_state *state, uint32_t field, uint32_t index,
                             struct attn_view *out, struct attn_error *err)
{
    struct attn_view own;
    int32_t status = attn__state_begin(state, "attn_state_get_input", err);

    if (status == ATTN_OK && state->batch == 0)
        status = attn__fail(err, ATTN_E_STATE, 0, "state",
                            "attn_state_get_input: the state is of no captured size; clones have inputs");
    if (status == ATTN_OK)
        status = attn__answer_begin(out, sizeof own, "out", err);
    if (status != ATTN_OK)
        return status;
    ATTN_INIT(&own);
    status = attn_metadata_get(&state->capture_builder.whole, field, index, &own, err);
    if (status != ATTN_OK)
        return status;
    if (!is_input(state, field)) {
        ATTN_INIT(&own);
        own.kind = ATTN_VIEW_NULL;
    }
    return attn__answer(out, &own, sizeof own, "out", err);
}
